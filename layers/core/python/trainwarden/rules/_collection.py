"""Several rules with one condition and shared actions, written in Python."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trainwarden.actions import Action, ActionList
from trainwarden.errors import ConfigError
from trainwarden.model import Json, Rule

MAX_NAME_CHARS = 64


class RuleCollection:
    """A set of rules for ``trainwarden.watch(rules=…)``: one verdict, one message, shared actions.

        RuleCollection([Overfit(), Overtraining(patience=3)], action=StopTrainingAction())

    Args:
        rules: Rules, rule classes, or whatever else an entry of a list of rules may be.
        action: What to do when the condition holds; the deployment decides if None.
        when: ``any`` (one rule is enough), ``all``, or ``{"at_least": 2}``.
        name: Key of the set in the job; made of its rules' names if empty.
        severity: ``info``, ``warning`` or ``error``; that of the loudest rule if empty.

    Raises:
        ConfigError: no rule at all, or an action that is none.
    """

    def __init__(
        self,
        rules: Sequence[Rule[Any] | type[Rule[Any]] | str | Mapping[str, Json]],
        action: Action | str | Sequence[Action | str] | None = None,
        *,
        when: str | Mapping[str, int] = "any",
        name: str = "",
        severity: str = "",
    ) -> None:
        single = isinstance(rules, str | Mapping) or not isinstance(rules, Iterable)
        self.rules = (rules,) if single else tuple(rules)
        if not self.rules:
            raise ConfigError("a set with at least one rule", "none")
        if any(isinstance(rule, RuleCollection) for rule in self.rules):
            raise ConfigError("rules (a set holds no sets)", "a RuleCollection")
        self.actions = () if action is None else _words(action)
        self.when, self.severity = when, severity
        names = [_name(rule) for rule in self.rules]
        self.name = name or "-".join(names if len(names) > 1 else [*names, "set"])[:MAX_NAME_CHARS]

    def to_json(self) -> dict[str, Json]:
        """Return it as an entry of a list of rules; the rules in it are as they were given."""
        return {
            "set": self.name,
            "when": self.when,
            "rules": list(self.rules),
            **({"action": list(self.actions)} if self.actions else {}),
            **({"severity": self.severity} if self.severity else {}),
        }


def _name(rule: object) -> str:
    meta = getattr(rule, "meta", None)
    if meta is not None:
        return str(meta.name)
    if isinstance(rule, Mapping):
        return str(rule.get("key") or rule.get("rule") or next(iter(rule), "rule"))
    return str(rule)


def _words(action: Any) -> tuple[str, ...]:
    if inspect.isclass(action) and issubclass(action, Action):
        action = action()  # StopTrainingAction without its parentheses
    if isinstance(action, Action):
        return action.words()
    if isinstance(action, str):
        return (action,)
    if isinstance(action, Sequence):
        return tuple(word for one in action for word in _words(one))
    expected = f"an action such as StopTrainingAction() or {ActionList.__name__}(…)"
    raise ConfigError(expected, repr(action)[:80])
