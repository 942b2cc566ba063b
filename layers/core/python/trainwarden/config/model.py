"""What a job's configuration is once all of its sources were read."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from trainwarden.engine import RuleSpec, SetSpec
from trainwarden.model import Json, Mode, Severity
from trainwarden.rules import DEFAULT


@dataclass(frozen=True)
class Problem:
    """One thing in a job's configuration that was not understood; the rest works.

    Attributes:
        source: Where it stands: ``tag``, ``DebugRuleConfigurations``, ``DebugHookConfig``,
            ``script`` (what was passed to ``watch``) or ``deployment``.
        key: The tag, rule or path within the source.
        found: What stands there.
        expected: What would have been right.
        nearest: The nearest right one; empty if nothing is near.
    """

    source: str
    key: str
    found: str
    expected: str
    nearest: str = ""

    def __str__(self) -> str:
        hint = f"; did you mean {self.nearest}?" if self.nearest else ""
        return f"{self.source} {self.key}: expected {self.expected}, found {self.found}{hint}"


@dataclass(frozen=True)
class JobConfig:
    """How one job is judged and who hears of it.

    Attributes:
        rules: The rules to run, in order of their keys' first mention.
        sets: Sets of these rules, with one condition and shared actions each.
        stop: True only if the job carries the tag ``trainwarden:stop=allow``.
        notify: Addresses or topic names from ``trainwarden:notify``; empty means all subscribers.
        nonce: Part of the run's identity, from ``trainwarden:nonce``.
        muted: Keys of rules that are evaluated but not announced and never stop; ``*`` is all.
        problems: Everything that was not understood.
    """

    rules: tuple[RuleSpec, ...] = ()
    sets: tuple[SetSpec, ...] = ()
    stop: bool = False
    notify: tuple[str, ...] = ()
    nonce: str = ""
    muted: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()

    def is_muted(self, rule: str) -> bool:
        """Tell whether nobody is to hear of ``rule``."""
        return "*" in self.muted or rule in self.muted

    def rule(self, key: str) -> RuleSpec | None:
        """Return the rule of this key, None if there is none (``NoData`` has none)."""
        return next((spec for spec in self.rules if spec.key == key), None)

    def asked(self, key: str) -> RuleSpec | SetSpec | None:
        """Return the rule or the set of this key, None if there is neither."""
        return self.rule(key) or next((spec for spec in self.sets if spec.key == key), None)

    def set_of(self, key: str) -> SetSpec | None:
        """Return the set that speaks for a rule; None if it speaks for itself.

        A member with actions of its own does.
        """
        spec = self.rule(key)
        if spec is None or spec.actions:
            return None
        return next((one for one in self.sets if key in one.members), None)

    def to_json(self) -> dict[str, Json]:
        """Return the JSON form that ``from_json`` reads."""
        return {
            "rules": [_spec_to_json(spec) for spec in self.rules],
            "sets": [_set_to_json(spec) for spec in self.sets],
            "stop": self.stop,
            "notify": list(self.notify),
            "nonce": self.nonce,
            "muted": list(self.muted),
            "problems": [asdict(problem) for problem in self.problems],
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Json]) -> JobConfig:
        """Read what ``to_json`` wrote; absent keys have their defaults."""
        return cls(
            rules=tuple(_spec_from_json(spec) for spec in body.get("rules", ())),
            sets=tuple(_set_from_json(spec) for spec in body.get("sets", ())),
            stop=body.get("stop") is True,
            notify=tuple(body.get("notify", ())),
            nonce=str(body.get("nonce", "")),
            muted=tuple(body.get("muted", ())),
            problems=tuple(Problem(**problem) for problem in body.get("problems", ())),
        )


def _spec_to_json(spec: RuleSpec) -> dict[str, Json]:
    """Return what differs from a rule left as it is: the record of a job is written often."""
    whole = {
        "name": "" if spec.name == spec.key else spec.name,
        "parameters": dict(spec.parameters),
        "start_step": spec.start_step,
        "end_step": spec.end_step,
        "every": 0 if spec.every == 1 else spec.every,
        "modes": [str(mode) for mode in spec.modes],
        "severity": str(spec.severity) if spec.severity else None,
        "actions": list(spec.actions),
        "profile": "" if spec.profile == DEFAULT else spec.profile,
    }
    kept = {key: value for key, value in whole.items() if value or key == "end_step"}
    if spec.end_step is None:
        del kept["end_step"]
    return {"key": spec.key, **kept}


def _spec_from_json(body: Mapping[str, Json]) -> RuleSpec:
    severity = body.get("severity")
    return RuleSpec(
        key=body["key"],
        name=body.get("name", body["key"]),
        parameters=body.get("parameters", {}),
        start_step=body.get("start_step", 0),
        end_step=body.get("end_step"),
        every=body.get("every", 1),
        modes=tuple(Mode(mode) for mode in body.get("modes", ())),
        severity=Severity(severity) if severity else None,
        actions=tuple(body.get("actions", ())),
        profile=str(body.get("profile", DEFAULT)),
    )


def _set_to_json(spec: SetSpec) -> dict[str, Json]:
    return {
        "key": spec.key,
        "members": list(spec.members),
        "at_least": spec.at_least,
        "severity": str(spec.severity) if spec.severity else None,
        "actions": list(spec.actions),
    }


def _set_from_json(body: Mapping[str, Json]) -> SetSpec:
    severity = body.get("severity")
    return SetSpec(
        body["key"],
        tuple(body["members"]),
        int(body.get("at_least", 1)),
        Severity(severity) if severity else None,
        tuple(body.get("actions", ())),
    )


def canonical(name: str) -> str:
    """Return ``name`` as names are compared: case, ``_``, ``-`` and ``Amazon-`` do not count."""
    folded = "".join(c for c in name[:256].lower() if c not in "_- ")
    return folded.removeprefix("amazon")


def nearest(word: str, choices: Iterable[str]) -> str:
    """Return the choice most like ``word``, empty if none is like it."""
    by_form = {canonical(choice): choice for choice in choices}
    # No name is longer, and comparing takes time with the square of the length.
    found = difflib.get_close_matches(canonical(word)[:64], by_form, n=1, cutoff=0.6)
    return by_form[found[0]] if found else ""


def shown(value: object, chars: int = 120) -> str:
    """Return ``value`` as it is quoted in a problem: short and printable."""
    try:
        return text(repr(value), chars)
    except RecursionError:
        return f"a {type(value).__name__} nested too deep"


def text(value: str, chars: int) -> str:
    """Return at most ``chars`` characters of ``value``, as valid Unicode."""
    clean = value.encode("utf-8", "replace").decode("utf-8")
    return clean if len(clean) <= chars else clean[: chars - 1] + "…"
