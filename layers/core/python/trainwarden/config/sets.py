"""Sets of rules: several rules with one condition, one verdict and shared actions.

In JSON, as one entry of a list of rules::

    {"set": "generalization", "when": {"at_least": 2}, "rules": ["Overfit", …], "action": "stop"}

As a tag, ``trainwarden:set:generalization`` = ``Overfit Overtraining at_least=2 action=stop``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from trainwarden.config.model import canonical
from trainwarden.config.names import Names, rule_key
from trainwarden.config.wishes import SWITCH_OFF, SetWish, Source, Wish
from trainwarden.engine import SetSpec
from trainwarden.model import Json, Severity

ANY, ALL = "any", "all"
MAX_SETS = 10
KEYS = ("set", "when", "rules", "action", "severity")
_SETTINGS = ("at_least", "when", "action", "severity")
_NAME = "a name that no rule has"
_CONDITION = 'any, all or {"at_least": 2}'
Member = Callable[[str, Json], Wish | None]


@dataclass
class _Reader:
    """Reads one set; whatever is wrong in it becomes a problem of its source."""

    source: Source
    where: str
    wish: SetWish

    def condition(self, where: str, value: Json) -> None:
        """Read ``any``, ``all`` or ``{"at_least": n}``."""
        word = canonical(value) if isinstance(value, str) else ""
        if isinstance(value, Mapping) and [canonical(str(k)) for k in value] == ["atleast"]:
            self.at_least(where, next(iter(value.values())))
        elif word in {ANY, ALL}:
            self.wish.at_least = 1 if word == ANY else 0
        else:
            self.source.reject(where, value, _CONDITION, (ANY, ALL, "at_least"))

    def at_least(self, where: str, value: Json) -> None:
        """Read the number of rules that have to find issues."""
        try:
            number = int(str(value).strip())
        except ValueError:
            number = 0
        if isinstance(value, bool) or number < 1:
            self.source.reject(where, value, "a whole number of rules ≥ 1")
        else:
            self.wish.at_least = number

    def option(self, where: str, word: str, value: Json) -> bool:
        """Read an action or a severity; False if the word is neither."""
        if canonical(word) not in {"action", "actions", "severity"}:
            return False
        self.source.option(where, self.wish.options, canonical(word), value)
        return True

    def member(self, key: str) -> None:
        """Add a rule."""
        if key not in self.wish.members:
            self.wish.members.append(key)


def read_set(
    source: Source, names: Names, where: str, entry: Mapping[str, Json], member: Member
) -> SetWish | None:
    """Read a set written as JSON; None if nothing of it can be used.

    Args:
        source: Takes the set and what is wrong in it.
        names: What rules are called.
        where: Where it stands.
        entry: The mapping with the key ``set``.
        member: Reads one entry of its ``rules``.
    """
    by_form = {canonical(str(key)): (str(key), value) for key, value in entry.items()}
    reader = _begin(source, names, where, by_form.pop("set")[1])
    if reader is None:
        return None
    listed = by_form.pop("rules", ("rules", ()))[1]
    if not isinstance(listed, list | tuple):
        source.reject(f"{where} rules", listed, "a list of rules")
        listed = ()
    for position, one in enumerate(source.first(f"{where} rules", listed)):
        if wish := member(f"{where} rules[{position}]", one):
            reader.member(wish.key)
    for form, (key, value) in by_form.items():
        if form == "when":
            reader.condition(f"{where} when", value)
        elif form == "atleast":
            reader.at_least(f"{where} at_least", value)
        elif not reader.option(f"{where} {key}", key, value):
            source.reject(f"{where} {key}", key, "a key of a set of rules", KEYS)
    return _kept(reader)


def read_set_tag(source: Source, names: Names, key: str, name: str, value: str) -> None:
    """Read ``trainwarden:set:NAME``; its rules run beside whatever else is chosen."""
    reader = _begin(source, names, key, name)
    if reader is None:
        return
    for word in re.sub(r"\s*=\s*", "=", value).split():
        left, equals, right = word.partition("=")
        form = canonical(left)
        if equals and form == "when":
            reader.condition(f"{key} when", right)
        elif equals and form == "atleast":
            reader.at_least(f"{key} at_least", right)
        elif equals:
            if not reader.option(f"{key} {left}", left, right):
                source.reject(f"{key} {left}", left, "a setting of a set", _SETTINGS)
        elif form in {ANY, ALL}:
            reader.condition(key, form)
        elif form in SWITCH_OFF:
            reader.wish.on = False
        elif found := names.find(word):
            source.wish(*found)
            reader.member(found[0])
        else:
            names.reject(source, key, word)
    _kept(reader)


def _begin(source: Source, names: Names, where: str, written: Json) -> _Reader | None:
    if not isinstance(written, str) or not written.strip():
        source.reject(f"{where} set", written, "the name of the set")
        return None
    key = rule_key(written.strip(), "set")
    if names.find(written) or canonical(written) == "nodata":
        source.reject(f"{where} set", written, _NAME)
        key = f"{key}-set"
    return _Reader(source, where, SetWish(key))


def _kept(reader: _Reader) -> SetWish | None:
    wish, source = reader.wish, reader.source
    if wish.on and not wish.members:
        source.reject(reader.where, wish.key, "a set with at least one rule that is known")
        return None
    if wish.at_least > len(wish.members) and wish.on:
        expected = f"at_least from 1 to {len(wish.members)}, the number of its rules"
        source.reject(f"{reader.where} at_least", wish.at_least, expected)
        wish.at_least = 0
    if len(source.sets) >= MAX_SETS and wish.key not in source.sets:
        source.reject(reader.where, wish.key, f"at most {MAX_SETS} sets (the first ones run)")
        return None
    written, number = wish.key, 2
    while source.sets.setdefault(wish.key, wish) != wish:
        wish.key, number = f"{written}-{number}", number + 1
    if wish.key != written:
        source.reject(f"{reader.where} set", written, "a name that no other set has")
    return wish


def running(speakers: Sequence[Source], keys: Sequence[str], blame: Source) -> tuple[SetSpec, ...]:
    """Return the sets that run, of the strongest source that defines each.

    Args:
        speakers: The sources that are heard, strongest first.
        keys: Of the rules that run.
        blame: Takes what is wrong.
    """
    wishes: dict[str, SetWish] = {}
    for source in speakers:
        for key, wish in source.sets.items():
            wishes.setdefault(key, wish)
    found = []
    for wish in wishes.values():
        members = tuple(key for key in wish.members if key in keys)
        least = wish.at_least or len(members)
        if wish.on and wish.key in keys:
            blame.reject(f"set {wish.key}", wish.key, _NAME)
        elif wish.on and (not members or least > len(members)):
            what = f"{len(members)} that run"
            blame.reject(f"set {wish.key}", what, f"at least {max(1, least)} of its rules")
        elif wish.on:
            severity = wish.options.get("severity")
            found.append(
                SetSpec(
                    wish.key,
                    members,
                    least,
                    Severity(severity) if severity else None,
                    tuple(wish.options.get("actions", ())),
                )
            )
    return tuple(found)
