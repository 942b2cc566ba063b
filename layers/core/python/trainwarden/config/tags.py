"""Tags of the SageMaker job: ``trainwarden:rules``, ``trainwarden:rule:<key>`` and others.

Tag values allow letters, digits, spaces and ``_ . : / = + - @``, 256 characters. Hence words are
separated by spaces, settings are written ``name=value``, lists ``a+b``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainwarden.config.documents import choose_all
from trainwarden.config.model import canonical
from trainwarden.config.names import LESS, Names, profile_of
from trainwarden.config.sets import read_set_tag
from trainwarden.config.wishes import ADDRESS, PHONE, SWITCH_OFF, TOPIC, Source, Wish

PREFIX = "trainwarden:"
RULE = "trainwarden:rule:"
SET = "trainwarden:set:"
KNOWN = tuple(
    PREFIX + word for word in ("rules", "rule:", "set:", "stop", "notify", "nonce", "mute")
)
MAX_VALUE_CHARS = 256
_VALUE = re.compile(r"[\w\s.:/=+\-@]*")
_NONCE = re.compile(r"[A-Za-z0-9_.-]{1,128}")


@dataclass
class JobTags:
    """What tags say beside the rules."""

    stop: bool = False
    notify: tuple[str, ...] = ()
    nonce: str = ""
    mute: tuple[str, ...] = ()


def is_ours(key: str) -> bool:
    """Tell whether a tag is, or is meant to be, one of trainwarden's."""
    return key.strip().lower().startswith("trainwarden")


def read_tags(source: Source, names: Names, tags: Mapping[str, str]) -> JobTags:
    """Read all tags; one that is wrong is noted and has no effect."""
    said = JobTags()
    ours = {key: str(tags[key]).strip() for key in sorted(filter(is_ours, tags))}
    for key, value in list(ours.items()):
        if len(value) > MAX_VALUE_CHARS or not _VALUE.fullmatch(value):
            allowed = f"at most {MAX_VALUE_CHARS} letters, digits, spaces and _.:/=+-@"
            source.reject(key, value, allowed)
            del ours[key]
        elif not key.startswith((RULE, SET)) and key not in KNOWN:
            source.reject(key, key, "a tag that trainwarden knows", KNOWN)
    # A rule of the job's own name has to be known before it can be listed.
    settings: dict[tuple[str, str], str] = {}
    for key, value in ours.items():
        if key.startswith(RULE):
            _rule(source, names, key, value, settings)
    for key, value in ours.items():
        if key.startswith(SET):
            read_set_tag(source, names, key, key.removeprefix(SET), value)
    _rules(source, names, ours.get("trainwarden:rules", ""))
    said.stop = _stop(source, "trainwarden:stop", ours.get("trainwarden:stop", ""))
    said.notify = _addresses(source, "trainwarden:notify", ours.get("trainwarden:notify", ""))
    said.nonce = _nonce(source, "trainwarden:nonce", ours.get("trainwarden:nonce", ""))
    said.mute = tuple(ours.get("trainwarden:mute", "").split())
    return said


def muted(
    source: Source, names: Names, words: tuple[str, ...], sets: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return the keys of the rules to mute, of the ``sets`` too; ``*`` for all."""
    by_form = {canonical(key): key for key in sets}
    keys = []
    for word in words:
        if canonical(word) in {"all", "default"}:
            keys.append("*")
        elif found := names.find(word):
            keys.append(found[0])
        elif canonical(word) in by_form:
            keys.append(by_form[canonical(word)])
        elif canonical(word) == "nodata":
            keys.append("NoData")
        else:
            names.reject(source, "trainwarden:mute", word, [*sets, "all", "NoData"])
    return tuple(dict.fromkeys(keys))


def _rules(source: Source, names: Names, value: str) -> None:
    for word in value.split():
        if profile := profile_of(word):
            choose_all(source, profile)
        elif canonical(word) in SWITCH_OFF:
            source.chosen = source.chosen if source.chosen is not None else []
        elif found := names.find(word):
            source.choose(found[0])
        elif found := names.find(word.removeprefix(LESS)):
            source.wish(*found).on = False
        else:
            names.reject(source, "trainwarden:rules", word)


def _rule(
    source: Source, names: Names, key: str, value: str, settings: dict[tuple[str, str], str]
) -> None:
    """Read the settings of one rule; ``settings`` are those that tags have given so far."""
    word = key.removeprefix(RULE)
    pairs = [pair.partition("=") for pair in re.sub(r"\s*=\s*", "=", value).split()]
    base = next((v for name, _, v in pairs if canonical(name) == "rule" and v), "")
    if base and (registered := names.find(base)):
        name = registered[1]
        found: tuple[str, str] | None = (names.own(source, key, word, name), name)
    else:
        found = names.find(word)
    if found is None:
        names.reject(source, key, base or word)
        return
    wish = source.wish(*found)
    for name, equals, text in pairs:
        before = settings.setdefault((wish.key, canonical(name)), text)
        if before != text:
            source.reject(f"{key} {name}", text, f"one value, not also {before}")
            continue
        _setting(source, key, wish, name, text if equals else None)


def _setting(source: Source, key: str, wish: Wish, name: str, text: str | None) -> None:
    if text is None and name.lower() in SWITCH_OFF:
        wish.on = False
    elif text is None:
        if name.lower() not in {"on", "default"}:
            source.reject(key, name, "settings like patience=3, or off")
    elif canonical(name) != "rule":
        source.set(f"{key} {name}", wish, name, text)


def _stop(source: Source, key: str, value: str) -> bool:
    if value == "allow":
        return True
    if canonical(value) not in {*SWITCH_OFF, "deny", "never", ""}:
        source.reject(key, value, "allow (exactly so), or no such tag", ("allow",))
    return False


def _addresses(source: Source, key: str, value: str) -> tuple[str, ...]:
    found = []
    for word in value.split():
        if any(pattern.fullmatch(word) for pattern in (ADDRESS, PHONE, TOPIC)):
            found.append(word)
        else:
            expected = "an e-mail address, a number like +4930123456 or a topic trainwarden-…"
            source.reject(key, word, expected)
    return tuple(dict.fromkeys(found))


def _nonce(source: Source, key: str, value: str) -> str:
    if not value or _NONCE.fullmatch(value):
        return value
    source.reject(key, value, "1 to 128 letters, digits and _.-")
    return ""
