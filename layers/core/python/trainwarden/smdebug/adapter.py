"""Lets a rule written for SageMaker Debugger run as one of ours: replayed, or in a deployed job.

    GradientRule = as_rule(CustomGradientRule, code="CUS901")

The class stays as it is. At each saved step it is built anew with the parameters of the job, gets
back what it kept in ``self``, and is asked ``invoke_at_step(step)``. What it sees of the run is in
``smdebug.view``, what of its attributes can be kept in ``smdebug.attributes``.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, make_dataclass
from typing import Any, ClassVar

from trainwarden.errors import BadInputError, ConfigError
from trainwarden.model import Finding, Json, Observation, RuleMeta, Severity, Tier
from trainwarden.model import Rule as OurRule
from trainwarden.smdebug.attributes import CannotKeepError, decode, encode
from trainwarden.smdebug.exceptions import (
    InsufficientInformationForRuleInvocation,
    RuleEvaluationConditionMet,
)
from trainwarden.smdebug.rules.rule import Rule
from trainwarden.smdebug.view import FoldSource, FoldTrial, past_of, remember
from trainwarden.trial.exceptions import TrialError

_OURS = frozenset(
    {"base_trial", "other_trials", "trials", "rule_name", "logger", "req_tensors", "actions"}
)
_NOT_SAID = frozenset({"self", "base_trial", "action_str", "other_trials"})
_TYPES: Mapping[str, Any] = {"int": int, "float": float, "bool": bool, "str": str}
_PASSED_OVER = (TrialError, InsufficientInformationForRuleInvocation)


@dataclass(frozen=True, kw_only=True)
class SmdebugRule(OurRule[Json]):
    """A rule of SageMaker Debugger's shape; its parameters are those of the class it stands for."""

    meta: ClassVar[RuleMeta]
    target: ClassVar[type[Rule]]

    def start(self) -> Json:
        """Nothing was seen."""
        return {"past": [], "members": {}, "attributes": {}, "since": -1}

    def inspects(self, obs: Observation) -> bool:
        """Anything that was saved may be what it looks at."""
        return bool(obs.stats.size) or bool(obs.scalars)

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Ask the class about this step; one finding as long as it goes on firing.

        Raises:
            BadInputError: it keeps something in ``self`` that JSON cannot hold.
        """
        past, members = past_of(state)
        source = FoldSource(obs, past, members)
        trial = FoldTrial(source)
        attributes, fired, judged = dict(state["attributes"]), False, True
        try:
            rule = self._built(trial)
            built, before = dict(vars(rule)), _encoded(vars(rule))
            for name, value in attributes.items():
                setattr(rule, name, decode(value))
        except _PASSED_OVER:  # __init__ asked for something that is not there yet
            return {**state, **remember(state, trial, source)}, ()
        try:
            fired = rule.judge(obs.step)
        except RuleEvaluationConditionMet:
            fired = True
        except _PASSED_OVER:  # as invoke_rule does: the rule has nothing to say of this step
            judged = False
        attributes = _kept(rule, built, before)
        now = {**state, **remember(state, trial, source), "attributes": attributes}
        if not fired:
            return ({**now, "since": -1} if judged else now), ()
        since = obs.step if state["since"] < 0 else state["since"]
        findings = [self._finding(obs, trial)] if state["since"] < 0 else []
        return {**now, "since": since}, findings

    def _built(self, trial: FoldTrial) -> Rule:
        given = {one.name: getattr(self, one.name) for one in fields(self)}
        if "action_str" in inspect.signature(self.target.__init__).parameters:
            given["action_str"] = ""
        return self.target(trial, **given)

    def _finding(self, obs: Observation, trial: FoldTrial) -> Finding:
        looked = list(trial.touched)
        tensor = looked[0] if len(looked) == 1 else ""
        message = f"{self.meta.name} met its condition at step {obs.step}"
        if looked:
            more = f" and {len(looked) - 3} more" if len(looked) > 3 else ""  # noqa: PLR2004 - shown
            message += f", looking at {', '.join(looked[:3])}{more}"
        evidence = {"tensors": looked[:10], "mode": obs.mode.value}
        return Finding(obs.step, tensor, 1.0, 0.0, message, obs.step, evidence)


def as_rule(
    cls: type[Rule],
    *,
    code: str = "CUS900",
    name: str = "",
    severity: Severity = Severity.WARNING,
    remedies: tuple[str, ...] = (),
) -> type[SmdebugRule]:
    """Return a rule of ours that asks ``cls``.

    Args:
        cls: Derived from ``trainwarden.smdebug.rules.Rule``; the arguments of its ``__init__``
            after ``base_trial`` become the rule's parameters, typed by default or annotation.
        code: A code of one's own.
        name: Name in the configuration; that of the class.
        severity: How loudly its findings are announced.
        remedies: What to try.

    Raises:
        ConfigError: it is no such class, or needs another job beside its own.
    """
    given: object = cls
    if not (inspect.isclass(given) and issubclass(given, Rule) and given is not Rule):
        raise ConfigError("a class derived from trainwarden.smdebug.rules.Rule", repr(cls))
    parameters = [_parameter(cls, one) for one in _signature(cls).values()]
    meta = RuleMeta(
        code,
        name or cls.__name__,
        severity,
        Tier.EVIDENCE,
        (),
        remedies or ("See what the rule's author says.",),
        f"capture what {cls.__name__} asks for: see its source",
        default=False,
    )
    namespace = {
        "meta": meta,
        "target": cls,
        "__module__": cls.__module__,
        "__doc__": inspect.getdoc(cls) or f"The class {cls.__name__}.",
    }
    made = make_dataclass(
        cls.__name__,
        [(n, t, f) for n, t, f in parameters],
        bases=(SmdebugRule,),
        namespace=namespace,
        frozen=True,
        kw_only=True,
    )
    found: type[SmdebugRule] = made
    return found


def _signature(cls: type[Rule]) -> Mapping[str, inspect.Parameter]:
    found = inspect.signature(cls.__init__).parameters
    return {
        name: one
        for name, one in found.items()
        if name not in _NOT_SAID and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    }


def _parameter(cls: type[Rule], one: inspect.Parameter) -> tuple[str, Any, Field[Any]]:
    if one.name.startswith("other_trial"):
        raise ConfigError(
            "a rule about one job",
            f"{cls.__name__}({one.name})",
            "compare runs with open_trial and invoke_rule",
        )
    annotation = getattr(one.annotation, "__name__", str(one.annotation)).strip("'\"")
    if one.default is one.empty:
        made: Field[Any] = field()
        return one.name, _TYPES.get(annotation, str), made
    made = field(default=one.default)
    if type(one.default) in (bool, int, float, str):
        declared = _TYPES.get(annotation)
        wider = declared is float and type(one.default) is int
        return one.name, float if wider else type(one.default), made
    if one.default is None:
        return one.name, _TYPES.get(annotation.partition(" |")[0], str) | None, made
    if isinstance(one.default, (list, tuple)):
        listed: tuple[str, ...] = tuple(map(str, one.default))
        as_field: Any = field(default=listed)
        return one.name, tuple[str, ...], as_field
    raise ConfigError(
        "parameters that are numbers, text or lists of text",
        f"{cls.__name__}({one.name}={one.default!r})",
    )


def _encoded(attributes: Mapping[str, object]) -> dict[str, Json]:
    """Return what can be kept of a rule as it was built."""
    found = {}
    for name, value in attributes.items():
        if name not in _OURS:
            kept = _try(value)
            if kept is not MISSING:
                found[name] = kept
    return found


def _try(value: object) -> Json:
    try:
        return encode(value)
    except CannotKeepError:
        return MISSING


def _kept(rule: Rule, built: Mapping[str, object], before: Mapping[str, Json]) -> dict[str, Json]:
    """Return the attributes that are not as ``__init__`` makes them."""
    found = {}
    for name, value in vars(rule).items():
        if name in _OURS:
            continue
        kept = _try(value)
        if kept is MISSING:
            if value is not built.get(name, MISSING):
                raise BadInputError(
                    f"attributes of {rule.rule_name} that are numbers, text, lists, dicts, sets or "
                    "small arrays: they outlive a step as JSON",
                    f"self.{name} of {type(value).__name__}",
                    "keep the numbers that it stands for",
                )
        elif name not in before or before[name] != kept:
            found[name] = kept
    return found
