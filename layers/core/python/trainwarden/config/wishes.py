"""What one source says about the rules: the settings of one rule, checked one by one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from trainwarden.config.model import Problem, canonical, nearest, shown, text
from trainwarden.config.units import read, unit_of
from trainwarden.errors import ConfigError
from trainwarden.model import Json, Mode, Severity
from trainwarden.rules import (
    PROFILES,
    WITHOUT_EFFECT,
    Parameter,
    build,
    checked,
    parameters,
    registry,
)

ACTIONS = ("stop", "capture-more", "notify", "none")
ADDRESS = re.compile(r"[^@\s:]+@[^@\s]+\.[^@\s.]+")
PHONE = re.compile(r"\+[0-9]{6,15}")
TOPIC = re.compile(r"trainwarden-[A-Za-z0-9_-]{1,244}")
SPELLINGS = (
    "action",
    "start_step",
    "end_step",
    "every",
    "EvaluationFrequency",
    "modes",
    "profile",
    "severity",
)
SWITCH_OFF = frozenset({"off", "none", "false", "no", "0", "disabled"})
# Telephone numbers begin with a plus and addresses may hold one: split before known words only.
_BETWEEN_ACTIONS = re.compile(
    rf"\+(?=(?:{'|'.join(ACTIONS)})(?:\+|$)|email:|sms:)|[,;\s]+", re.IGNORECASE
)
# A manifest may come from anybody, and all of this is kept in one item of the ledger.
MAX_PROBLEMS = 30  # of one source
MAX_ENTRIES = 100
MAX_ACTIONS = 10
MAX_VALUE_BYTES = 1_024
MAX_SHOWN = 320
_LAST_STEP = 10**15
T = TypeVar("T")
_LISTED = re.compile(r"[+,;\s]+")


@dataclass
class Wish:
    """What one source wants of one rule.

    Attributes:
        key: The rule's key in this job.
        name: The registered rule it runs.
        parameters: Checked parameters, as ``rules.build`` takes them.
        options: Checked fields of ``RuleSpec`` other than key, name and parameters.
        on: False switches the rule off.
    """

    key: str
    name: str
    parameters: dict[str, Json] = field(default_factory=dict)
    options: dict[str, Json] = field(default_factory=dict)
    on: bool = True


@dataclass
class SetWish:
    """A set of rules as one source wants it.

    Attributes:
        key: The set's key in this job.
        members: Keys of its rules.
        at_least: How many of them have to find issues; 0 means all.
        options: Checked ``actions`` and ``severity``.
        on: False switches the set off.
    """

    key: str
    members: list[str] = field(default_factory=list)
    at_least: int = 1
    options: dict[str, Json] = field(default_factory=dict)
    on: bool = True


@dataclass
class Source:
    """Everything one source says.

    Attributes:
        name: As in ``Problem.source``.
        chosen: Keys of the rules it chooses; None if it leaves the choice to weaker sources.
        wishes: Settings by key.
        sets: Sets of rules by key.
        entries: Settings of the entries of its list, by key: two of one key need be alike.
        problems: What was not understood in it.
        plus_separates: Lists are separated by ``+``: tag values know no comma.
    """

    name: str
    chosen: list[str] | None = None
    wishes: dict[str, Wish] = field(default_factory=dict)
    sets: dict[str, SetWish] = field(default_factory=dict)
    entries: dict[str, Json] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    plus_separates: bool = False

    def reject(self, key: str, found: object, expected: str, choices: Collection[str] = ()) -> None:
        """Note a problem; ``choices`` are the right ones."""
        if len(self.problems) < MAX_PROBLEMS:
            near = nearest(str(found), choices) if choices else ""
            where = text(key, MAX_SHOWN)
            self.problems.append(Problem(self.name, where, shown(found), expected, near))
        elif len(self.problems) == MAX_PROBLEMS:
            least = f"at most {MAX_PROBLEMS} problems"
            self.problems.append(Problem(self.name, "", "still more", least))

    def first(self, where: str, entries: Sequence[T]) -> Sequence[T]:
        """Return as many entries as are read: a document may come from anybody."""
        if len(entries) > MAX_ENTRIES:
            self.reject(
                where, len(entries), f"at most {MAX_ENTRIES} entries (the others are skipped)"
            )
        return entries[:MAX_ENTRIES]

    def choose(self, key: str) -> None:
        """Add a rule to the chosen ones."""
        self.chosen = self.chosen if self.chosen is not None else []
        if key not in self.chosen:
            self.chosen.append(key)

    def wish(self, key: str, name: str) -> Wish:
        """Return what it wants of the rule ``key``, from now on at least that it runs."""
        return self.wishes.setdefault(key, Wish(key, name))

    def set_all(self, where: str, wish: Wish, settings: Mapping[str, Json]) -> None:
        """Check settings one by one; a wrong one is noted, the others take effect."""
        for name, value in self.first(where, list(settings.items())):
            self.set(f"{where} {name}".strip(), wish, name, value)

    def set(self, where: str, wish: Wish, name: str, value: Json) -> None:
        """Check one setting, a parameter of the rule or an option of every rule."""
        own = {canonical(p.name): p for p in parameters(registry()[wish.name])}
        word = canonical(name)
        try:
            if word in own:
                wish.parameters[own[word].name] = self._parameter(wish.name, own[word], value)
            elif word in OPTIONS:
                self.option(where, wish.options, word, value)
            elif name == "stop_training_on_fire":  # SageMaker's StalledTrainingRule
                if str(value).strip().lower() in {"true", "yes", "1", "on"}:
                    wish.options["actions"] = ("stop",)
            elif name not in WITHOUT_EFFECT:
                known = [*(p.name for p in own.values()), *SPELLINGS]
                settings = ", ".join(p.name for p in own.values()) or "it has none of its own"
                self.reject(where, name, f"a setting of {wish.name} ({settings})", known)
        except ConfigError as error:
            self.reject(where, value, error.expected)

    def option(self, where: str, options: dict[str, Json], word: str, value: Json) -> None:
        """Read what every rule or set may have into ``options``; ``word`` is one of ``OPTIONS``."""
        name, cast = OPTIONS[word]
        try:
            options[name] = cast(value)
        except ConfigError as error:
            found = value[0] if isinstance(value, list | tuple) and len(value) == 1 else value
            self.reject(where, found, error.expected, _CHOICES.get(word, ()))

    def _parameter(self, rule: str, parameter: Parameter, value: Json) -> Json:
        if parameter.type.startswith("list") and isinstance(value, str) and self.plus_separates:
            value = value.split("+")
        number = read(value, unit_of(parameter))
        found = _alone(rule, parameter.name, number)
        plain = list(found) if isinstance(found, tuple) else found
        if len(json.dumps(plain)) > MAX_VALUE_BYTES:
            raise ConfigError(f"a value of at most {MAX_VALUE_BYTES} bytes", shown(value))
        return plain


def _alone(rule: str, name: str, value: Json) -> Json:
    """Check one parameter without the others, by the rule itself where it needs no other."""
    found = checked(rule, name, value)
    try:
        build(rule)
    except ConfigError:  # all of its parameters are checked together, once they are known
        return found
    return getattr(build(rule, {name: found}), name)


def listed(value: Json) -> list[str]:
    """Return a list, or text separated by ``+``, commas or spaces, as a list of words."""
    if isinstance(value, list | tuple):
        return [str(item) for item in value]
    return [word for word in _LISTED.split(str(value)) if word]


def _actions(value: Json) -> tuple[str, ...]:
    if isinstance(value, list | tuple):
        words = [str(word) for word in value]
    else:
        words = [word for word in _BETWEEN_ACTIONS.split(str(value)) if word]
    if len(words) > MAX_ACTIONS or any(len(word) > MAX_SHOWN for word in words):
        raise ConfigError(f"at most {MAX_ACTIONS} actions", shown(value))
    if not words:
        raise ConfigError("an action, or none", repr(value))
    for word in words:
        kind, _, address = word.partition(":")
        if word in ACTIONS or (kind == "email" and ADDRESS.fullmatch(address)):
            continue
        if not (kind == "sms" and PHONE.fullmatch(address)):
            words_of_ours = ", ".join(ACTIONS)
            raise ConfigError(f"{words_of_ours}, email:ADDRESS or sms:+NUMBER", repr(word))
    return tuple(dict.fromkeys(words))


def _step(least: int) -> Callable[[Json], int]:
    def cast(value: Json) -> int:
        try:
            number = int(str(value).strip())
        except ValueError:
            number = least - 1
        if isinstance(value, bool) or not least <= number <= _LAST_STEP:
            raise ConfigError(f"a whole number of steps ≥ {least}", repr(value))
        return number

    return cast


def _modes(value: Json) -> tuple[str, ...]:
    words = [word.upper() for word in listed(value)]
    if not words or any(word not in Mode.__members__ for word in words):
        raise ConfigError("modes like TRAIN or TRAIN+EVAL", repr(value))
    return tuple(dict.fromkeys(words))


def _profile(value: Json) -> str:
    word = str(value).strip().lower()
    if word not in PROFILES:
        raise ConfigError(f"a profile ({' or '.join(PROFILES)})", repr(value))
    return word


def _severity(value: Json) -> str:
    word = str(value).lower()
    if word not in {s.value for s in Severity}:
        raise ConfigError("info, warning or error", repr(value))
    return word


OPTIONS: Mapping[str, tuple[str, Callable[[Json], Json]]] = {
    "action": ("actions", _actions),
    "actions": ("actions", _actions),
    "startstep": ("start_step", _step(0)),
    "endstep": ("end_step", _step(1)),
    "every": ("every", _step(1)),
    "evaluationfrequency": ("every", _step(1)),
    "mode": ("modes", _modes),
    "modes": ("modes", _modes),
    "profile": ("profile", _profile),
    "severity": ("severity", _severity),
}


_CHOICES: Mapping[str, tuple[str, ...]] = {
    "action": ACTIONS,
    "actions": ACTIONS,
    "mode": tuple(Mode.__members__),
    "modes": tuple(Mode.__members__),
    "profile": PROFILES,
    "severity": tuple(s.value for s in Severity),
}
