"""One root cause, one message: which verdicts are symptoms of which. Pure.

A rule names the rules whose findings are symptoms of its own (``RuleMeta.explains``). The group of
a verdict depends on which rules found issues and since when, never on the order of arrival.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple


class Standing(NamedTuple):
    """A verdict that found issues.

    Attributes:
        key: Key of the rule in the job.
        name: Name of the rule in the registry; empty for a set of rules.
        since: First bad step.
        of: Keys of the members that found issues, if it is a set.
    """

    key: str
    name: str
    since: int
    of: tuple[str, ...] = ()


def closure(explains: Mapping[str, Iterable[str]]) -> dict[str, frozenset[str]]:
    """Return everything that each rule explains, directly or through others.

    Rules that explain each other in a circle do not: neither is told instead of the other.
    """
    reached: dict[str, set[str]] = {}
    for name in explains:
        found: set[str] = set()
        ahead = [*explains[name]]
        while ahead:
            other = ahead.pop()
            if other not in found:
                found.add(other)
                ahead += explains.get(other, ())
        reached[name] = found
    return {
        name: frozenset(o for o in found if name not in reached.get(o, ()))
        for name, found in reached.items()
    }


def circles(explains: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """Return the rules that explain themselves, directly or through others."""
    whole = closure(explains)
    return tuple(
        name
        for name, direct in explains.items()
        if any(other == name or other not in whole[name] for other in direct)
    )


def causes(standing: Sequence[Standing], explained: Mapping[str, frozenset[str]]) -> dict[str, str]:
    """Return symptom → root cause, both by key; what is nobody's symptom is left out.

    Of several root causes the one that began first counts, among equals the first by key. A set is
    a symptom where all of its members that found issues are symptoms of one cause; a member that
    is nobody else's symptom is one of its set.

    Args:
        standing: The verdicts of a job that found issues, in any order.
        explained: Rule → all that it explains, from ``closure``.
    """
    ordered = sorted(standing, key=lambda one: (one.since, one.key))
    rules = [one for one in ordered if not one.of]
    roots = [one for one in rules if not any(_explains(other, one, explained) for other in rules)]
    found: dict[str, str] = {}
    for one in rules:
        cause = next((root.key for root in roots if _explains(root, one, explained)), "")
        if cause:
            found[one.key] = cause
    for one in ordered:
        above = {found.get(member, "") for member in one.of}
        if one.of and len(above) == 1 and "" not in above:
            found[one.key] = above.pop()
    for one in ordered:
        for member in one.of:
            if member not in found:
                found[member] = one.key
    return found


def _explains(cause: Standing, other: Standing, explained: Mapping[str, frozenset[str]]) -> bool:
    return other.name in explained.get(cause.name, ())
