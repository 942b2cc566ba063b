"""All sources of a job's configuration → one ``JobConfig``; strongest first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trainwarden.config.debugger import check_hook_config, read_rule_configurations
from trainwarden.config.documents import read_rules
from trainwarden.config.model import JobConfig, Problem
from trainwarden.config.names import Names
from trainwarden.config.tags import muted, read_tags
from trainwarden.config.wishes import Source
from trainwarden.engine import RuleSpec
from trainwarden.errors import ConfigError
from trainwarden.model import Json, Mode, Severity
from trainwarden.rules import build, registry

MAX_RULES = 40  # SageMaker: 20; state of all rules has to fit one item


def resolve(
    *,
    tags: Mapping[str, str],
    debug_rules: Sequence[Mapping[str, Json]] = (),
    debug_hook: Mapping[str, Json] | None = None,
    manifest_rules: Json = None,
    defaults: Mapping[str, Json] | None = None,
) -> JobConfig:
    """Resolve a job's configuration. Never raises for what a user wrote.

    The strongest source that chooses rules decides which run; settings of one rule are merged
    over all sources, the strongest winning one by one. Without any choice all rules run.

    Args:
        tags: Tags of the SageMaker job; empty outside SageMaker.
        debug_rules: ``DebugRuleConfigurations`` of the job.
        debug_hook: ``DebugHookConfig`` of the job.
        manifest_rules: What the script passed as ``watch(rules=…)``, from the manifest.
        defaults: The deployment's; reads ``rules`` and ``subscribers`` (addresses that are told
            of anything; an address in a tag that is none of them is noted).
    """
    defaults = defaults or {}
    names = Names()
    deployed, script = Source("deployment"), Source("script")
    debugger, hook = Source("DebugRuleConfigurations"), Source("DebugHookConfig")
    tagged = Source("tag", plus_separates=True)
    # Weakest first: a stronger source may refer to a key that a weaker one made.
    read_rules(deployed, names, defaults.get("rules"))
    read_rules(script, names, manifest_rules)
    read_rule_configurations(debugger, names, debug_rules)
    check_hook_config(hook, debug_hook or {})
    said = read_tags(tagged, names, tags)
    sources = (tagged, debugger, script, deployed)
    running = _running(sources)
    if len(running) > MAX_RULES:
        tagged.reject("rules", len(running), f"at most {MAX_RULES} rules (the first ones run)")
    rules = tuple(_spec(key, sources, tagged) for key in running[:MAX_RULES])
    silent = muted(tagged, names, said.mute)
    heard = _subscribed(tagged, said.notify, defaults.get("subscribers"))
    problems: list[Problem] = []
    for source in (tagged, debugger, hook, script, deployed):
        problems.extend(source.problems)
    return JobConfig(
        rules=rules,
        stop=said.stop,
        notify=heard,
        nonce=said.nonce,
        muted=silent,
        problems=tuple(problems),
    )


def _running(sources: Sequence[Source]) -> list[str]:
    """Return the keys of the rules that run: those chosen, plus and minus stronger wishes."""
    chooser = next((i for i, source in enumerate(sources) if source.chosen is not None), None)
    if chooser is None:
        keys, speakers = list(registry()), sources
    else:
        keys, speakers = list(sources[chooser].chosen or ()), sources[: chooser + 1]
    for source in reversed(speakers):
        for wish in source.wishes.values():
            if wish.on and wish.key not in keys:
                keys.append(wish.key)
            elif not wish.on and wish.key in keys:
                keys.remove(wish.key)
    return keys


def _spec(key: str, sources: Sequence[Source], blame: Source) -> RuleSpec:
    """Merge what every source says of one rule."""
    wishes = [source.wishes[key] for source in reversed(sources) if key in source.wishes]
    name = wishes[-1].name if wishes else key
    parameters: dict[str, Json] = {}
    options: dict[str, Json] = {}
    for wish in wishes:
        parameters.update(wish.parameters)
        options.update(wish.options)
    try:
        build(name, parameters)
    except ConfigError as error:  # each is right alone, together they are not
        blame.reject(key, error.found, error.expected)
        parameters = {}
    severity = options.get("severity")
    return RuleSpec(
        key=key,
        name=name,
        parameters=parameters,
        start_step=options.get("start_step", 0),
        end_step=options.get("end_step"),
        every=options.get("every", 1),
        modes=tuple(Mode(word) for word in options.get("modes", ())),
        severity=Severity(severity) if severity else None,
        actions=tuple(options.get("actions", ())),
    )


def _subscribed(tagged: Source, notify: Sequence[str], subscribers: Json) -> tuple[str, ...]:
    """Return the addresses somebody listens at: a wrong one must not silence an alert."""
    if not isinstance(subscribers, list | tuple):
        return tuple(notify)
    known = [str(address) for address in subscribers]
    heard = []
    for address in notify:
        if address in known or address.startswith("trainwarden-"):
            heard.append(address)
        else:
            tagged.reject("trainwarden:notify", address, "an address that is subscribed", known)
    return tuple(heard)
