"""Rules written as JSON: by a script in ``watch(rules=…)`` or in the deployment's defaults.

A list chooses rules, a mapping tunes them and leaves the others running. Forms of one entry::

    "Overfit"
    {"Overfit": {"ratio_threshold": "20%", "action": "stop"}}
    {"rule": "Overfit", "key": "overfit-strict", "patience": 5}
    {"RuleConfiguration": {"RuleName": "Overfit", "Threshold": 0.2, "EvaluationFrequency": 100}}
    {"RuleConfigurationName": "Overfit", "RuleParameters": {"rule_to_invoke": "Overfit"}}
    {"set": "generalization", "when": "any", "rules": ["Overfit", "Overtraining"], "action": "stop"}
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from trainwarden import rules
from trainwarden.config.debugger import read_rule_configuration
from trainwarden.config.model import canonical
from trainwarden.config.names import LESS, Names, profile_of, rule_key
from trainwarden.config.sets import read_set
from trainwarden.config.wishes import SWITCH_OFF, Source, Wish, listed
from trainwarden.model import Json
from trainwarden.rules import PROFILES, Parameter, parameters, registry

MAX_RULES_BYTES = 32 * 1024  # of a script's rules: they are kept in the job's record
_CUT = "$bytes"
_EXPECTED = "a list of rules, or a mapping of rules to settings"
# What ``Threshold`` means where it is not the parameter threshold, or the first called so.
_MAIN = {"DeadRelu": "threshold_layer", "LossNotDecreasing": "diff_percent"}
_ONE_ENTRY = ("RuleConfiguration", "RuleConfigurationName", "rule", "set")
_NAMED_BY = {"rule": "", "rulename": "", "name": "", "key": "", "parameters": ""}


def bounded(document: Json) -> Json:
    """Return a rules document, or in place of one that is too large to keep, its size."""
    size = len(json.dumps(document))
    return document if size <= MAX_RULES_BYTES else {_CUT: size}


def read_rules(source: Source, names: Names, document: Json) -> None:
    """Read a rules document into ``source``; whatever is wrong in it becomes a problem."""
    if isinstance(document, Mapping) and _CUT in document:
        found = f"{document[_CUT]} bytes"
        source.reject("rules", found, f"at most {MAX_RULES_BYTES} bytes of JSON (none is read)")
        return
    try:
        document = _parsed(document)
    except (ValueError, RecursionError):
        source.reject("rules", document, "valid JSON")
        return
    if isinstance(document, Mapping):
        for word, settings in source.first("rules", list(document.items())):
            if canonical(str(word)) == "profile":
                _profile(source, settings)
            else:
                _named(source, names, f"rules {word}", str(word), settings)
    elif isinstance(document, list | tuple):
        for position, entry in enumerate(source.first("rules", document)):
            _entry(source, names, f"rules[{position}]", entry)
    elif document is not None:
        source.reject("rules", document, _EXPECTED)


def _parsed(document: Json) -> Json:
    """Return text as the JSON or the list of words it is; unwrap ``RuleConfiguration(s)``."""
    if isinstance(document, str):
        is_json = document.lstrip().startswith(("{", "["))
        document = json.loads(document) if is_json else listed(document) or None
    if isinstance(document, Mapping) and "RuleConfigurations" in document:
        return document["RuleConfigurations"]
    if isinstance(document, Mapping) and not {*document}.isdisjoint(_ONE_ENTRY):
        return [document]
    return document


def _entry(source: Source, names: Names, where: str, entry: Json) -> None:
    """Read one element of a list; it is chosen if it can be read."""
    if isinstance(entry, str):
        _word(source, names, where, entry)
    elif isinstance(entry, Mapping) and "set" in entry:
        _set(source, names, where, entry)
    elif isinstance(entry, Mapping):
        if wish := _mapping(source, names, where, entry):
            source.choose(wish.key)
    else:
        source.reject(where, entry, "the name of a rule, or a mapping")


def _set(source: Source, names: Names, where: str, entry: Mapping[str, Json]) -> None:
    """Read a set in a list of rules: its rules are chosen."""

    def member(where: str, one: Json) -> Wish | None:
        if isinstance(one, str):
            found = names.find(one)
            if found is None:
                names.reject(source, where, one)
            return source.wish(*found) if found else None
        if isinstance(one, Mapping) and "set" not in one:
            return _mapping(source, names, where, one)
        source.reject(where, one, "a rule (a set holds no sets)")
        return None

    wish = read_set(source, names, where, entry, member)
    for key in wish.members if wish else ():
        source.choose(key)


def _word(source: Source, names: Names, where: str, word: str) -> None:
    if profile := profile_of(word):
        choose_all(source, profile)
    elif canonical(word) == "none":
        source.chosen = source.chosen if source.chosen is not None else []
    elif found := names.find(word):
        source.choose(found[0])
        source.wish(*found)
    elif found := names.find(word.removeprefix(LESS)):
        source.wish(*found).on = False
    else:
        names.reject(source, where, word)


def _mapping(source: Source, names: Names, where: str, entry: Mapping[str, Json]) -> Wish | None:
    if "RuleConfigurationName" in entry or "RuleParameters" in entry:
        return read_rule_configuration(source, names, where, entry)
    if "RuleConfiguration" in entry:
        return _short_form(source, names, f"{where} RuleConfiguration", entry["RuleConfiguration"])
    if any(canonical(str(key)) in {"rule", "rulename", "name"} for key in entry):
        return _flat(source, names, where, entry)
    if len(entry) == 1:
        ((word, settings),) = entry.items()
        return _named(source, names, where, str(word), settings)
    source.reject(where, sorted(map(str, entry)), "an entry with the key rule")
    return None


def choose_all(source: Source, profile: str) -> None:
    """Choose every rule that a profile runs by itself, in that profile."""
    for name in rules.names(profile):
        source.choose(name)
        source.wish(name, name).options.setdefault("profile", profile)  # its own setting wins


def _profile(source: Source, word: Json) -> None:
    if isinstance(word, str) and (profile := profile_of(word)):
        choose_all(source, profile)
    else:
        source.reject("rules profile", word, f"a profile ({' or '.join(PROFILES)})", PROFILES)


def _named(source: Source, names: Names, where: str, word: str, settings: Json) -> Wish | None:
    found = names.find(word)
    own = settings.get("rule") if isinstance(settings, Mapping) else None
    if found is None and isinstance(own, str) and (base := names.find(own)):
        found = names.own(source, where, word, base[1]), base[1]
    if found is None:
        names.reject(source, where, word)
        return None
    wish = source.wish(*found)
    if settings is False or (isinstance(settings, str) and settings.lower() in SWITCH_OFF):
        wish.on = False
    elif isinstance(settings, Mapping):
        source.set_all(where, wish, _settings(settings))
    elif settings is not None and settings is not True:
        source.reject(where, settings, "a mapping of settings, true or false")
    return wish


def _flat(source: Source, names: Names, where: str, entry: Mapping[str, Json]) -> Wish | None:
    by_form = {canonical(str(key)): value for key, value in entry.items()}
    word = str(by_form.get("rule") or by_form.get("rulename") or by_form.get("name"))
    found = names.find(word)
    if found is None:
        names.reject(source, where, word)
        return None
    settings = _settings(entry)
    written = rule_key(str(by_form.get("key", found[0])), found[1])
    key = _unlike_others(source, written, settings)
    if key != written and "key" in by_form:
        source.reject(f"{where} key", written, "a key that no other entry has")
    if key != found[0]:
        key = names.own(source, f"{where} key", key, found[1])
    wish = source.wish(key, found[1])
    source.set_all(where, wish, settings)
    return wish


def _unlike_others(source: Source, written: str, settings: Json) -> str:
    """Return a key that no entry with other settings has, numbered if need be."""
    key, number = written, 2
    while source.entries.setdefault(canonical(key), settings) != settings:
        key, number = f"{written}-{number}", number + 1
    return key


def _settings(entry: Mapping[str, Json]) -> dict[str, Json]:
    """Return an entry's settings, those under ``parameters`` lifted up beside the others."""
    lifted: dict[str, Json] = {}
    for key, value in entry.items():
        form = canonical(str(key))
        if form == "parameters" and isinstance(value, Mapping):
            lifted.update({str(name): item for name, item in value.items()})
        elif form not in _NAMED_BY:
            lifted[str(key)] = value
    return lifted


def _short_form(source: Source, names: Names, where: str, body: Json) -> Wish | None:
    """Read ``{"RuleName", "Threshold", "EvaluationFrequency"}``."""
    if not isinstance(body, Mapping) or not isinstance(body.get("RuleName"), str):
        source.reject(where, body, "a mapping with RuleName")
        return None
    settings = dict(body)
    threshold = settings.pop("Threshold", None)
    wish = _flat(source, names, where, settings)
    if wish and threshold is not None:
        main = main_threshold(wish.name)
        if main is None:
            source.reject(f"{where} Threshold", threshold, f"nothing: {wish.name} has no threshold")
        else:
            source.set(f"{where} Threshold", wish, main.name, threshold)
    return wish


def main_threshold(name: str) -> Parameter | None:
    """Return the parameter that ``Threshold`` means, None if the rule has nothing like it."""
    own = parameters(registry()[name])
    named = [p for p in own if "threshold" in p.name]
    exact = [p for p in own if p.name == _MAIN.get(name, "threshold")]
    return next(iter((*exact, *named)), None)
