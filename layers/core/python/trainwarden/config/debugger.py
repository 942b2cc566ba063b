"""``DebugRuleConfigurations`` and ``DebugHookConfig``, exactly as SageMaker users wrote them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from trainwarden.config.model import canonical
from trainwarden.config.names import Names, is_sagemakers, rule_key
from trainwarden.config.wishes import ADDRESS, MAX_ACTIONS, MAX_SHOWN, PHONE, Source, Wish
from trainwarden.model import Json
from trainwarden.rules import SAGEMAKER

# What a rule configuration carries for SageMaker's own machinery.
_MACHINERY = frozenset({"rule_to_invoke", "source_s3_uri", "action_json"})
_ENDPOINTS = {"email": "an e-mail address", "sms": "a telephone number like +4930123456"}
_HOOK_KEYS = ("S3OutputPath", "LocalPath", "HookParameters", "CollectionConfigurations")
_SAVE = ("save_interval", "save_steps", "start_step", "end_step")
_MODES = ("train", "eval", "predict", "global")
_BOTH = (
    *_SAVE,
    *(f"{mode}.{word}" for mode in _MODES for word in _SAVE),
    "include_regex",
    "reductions",
    "save_raw_tensor",
    "save_shape",
)
_HOOK_PARAMETERS = (
    *_BOTH,
    "dry_run",
    "export_tensorboard",
    "include_workers",
    "save_all",
    "save_all_workers",
    "tensorboard_dir",
)
_COLLECTION_PARAMETERS = (*_BOTH, "save_histogram")


def read_rule_configurations(source: Source, names: Names, configurations: Sequence[Json]) -> None:
    """Read every rule configuration; known rules are chosen, unknown ones noted and skipped."""
    for position, body in enumerate(source.first("", configurations)):
        where = f"[{position}]"
        if not isinstance(body, Mapping):
            source.reject(where, body, "a mapping")
        elif wish := read_rule_configuration(source, names, where, body):
            source.choose(wish.key)


def read_rule_configuration(
    source: Source, names: Names, where: str, body: Mapping[str, Json]
) -> Wish | None:
    """Read one ``DebugRuleConfiguration``, in SageMaker's profile; None if its rule is unknown."""
    title = str(body.get("RuleConfigurationName", "") or "")
    given = body.get("RuleParameters") or {}
    if not isinstance(given, Mapping):
        source.reject(f"{where} RuleParameters", given, "a mapping of strings")
        given = {}
    invoked = str(given.get("rule_to_invoke", "") or title)
    where = title or where
    found = names.find(invoked)
    if found is None:
        names.reject(source, where, invoked)
        return None
    name = found[1]
    key = names.own(source, where, _unused(source, rule_key(title or name, name)), name)
    wish = source.wish(key, name)
    if is_sagemakers(name):  # its parameters were written for SageMaker's meaning of the rule
        wish.options["profile"] = SAGEMAKER
    source.set_all(where, wish, {str(k): v for k, v in given.items() if k not in _MACHINERY})
    if "action_json" in given:
        _read_actions(source, f"{where} action_json", wish, given["action_json"])
    return wish


def _unused(source: Source, key: str) -> str:
    candidate, number = key, 2
    while candidate in source.wishes:
        candidate, number = f"{key}-{number}", number + 1
    return candidate


def _read_actions(source: Source, where: str, wish: Wish, raw: Json) -> None:
    """Read one action or a list of them, as text or as JSON."""
    try:
        actions = json.loads(raw) if isinstance(raw, str) else raw
    except (ValueError, RecursionError):
        source.reject(where, raw, "JSON of one action or a list of actions")
        return
    understood = []
    for action in (actions if isinstance(actions, list) else [actions])[:MAX_ACTIONS]:
        name = canonical(str(action.get("name", ""))) if isinstance(action, Mapping) else ""
        endpoint = (
            str(action.get("endpoint", ""))[:MAX_SHOWN] if isinstance(action, Mapping) else ""
        )
        if name == "stoptraining":
            # training_job_prefix is ignored: a job is stopped by its exact name only.
            understood.append("stop")
        elif name == "email" and ADDRESS.fullmatch(endpoint):
            understood.append(f"email:{endpoint}")
        elif name == "sms" and PHONE.fullmatch(endpoint):
            understood.append(f"sms:{endpoint}")
        elif name in {"email", "sms"}:
            source.reject(f"{where} endpoint", endpoint, _ENDPOINTS[name])
        else:
            choices = ("stoptraining", "email", "sms")
            source.reject(where, name or action, "the action stoptraining, email or sms", choices)
    if understood:
        wish.options["actions"] = tuple(dict.fromkeys(understood))


def check_hook_config(source: Source, body: Mapping[str, Json]) -> None:
    """Note every key of ``DebugHookConfig`` that nobody reads; the hook takes the others."""
    _check_keys(source, "", body, _HOOK_KEYS)
    parameters = body.get("HookParameters") or {}
    if isinstance(parameters, Mapping):
        _check_keys(source, "HookParameters", parameters, _HOOK_PARAMETERS)
    else:
        source.reject("HookParameters", parameters, "a mapping of strings")
    collections = body.get("CollectionConfigurations") or []
    if not isinstance(collections, list):
        source.reject("CollectionConfigurations", collections, "a list of mappings")
        collections = []
    for position, collection in enumerate(source.first("CollectionConfigurations", collections)):
        where = f"CollectionConfigurations[{position}]"
        if not isinstance(collection, Mapping) or not collection.get("CollectionName"):
            source.reject(where, collection, "a mapping with CollectionName")
            continue
        own = collection.get("CollectionParameters") or {}
        name = f"{where} {collection['CollectionName']}"
        if isinstance(own, Mapping):
            _check_keys(source, name, own, _COLLECTION_PARAMETERS)
        else:
            source.reject(f"{name} CollectionParameters", own, "a mapping of strings")


def _check_keys(
    source: Source, where: str, body: Mapping[str, Json], known: tuple[str, ...]
) -> None:
    for key in source.first(where, list(body)):
        if key not in known:
            source.reject(f"{where} {key}".strip(), str(key), "a key that SageMaker knows", known)
