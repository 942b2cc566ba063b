"""All sources of a job's configuration → one ``JobConfig``; strongest first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from trainwarden import rules
from trainwarden.config import sets as rule_sets
from trainwarden.config.debugger import check_hook_config, read_rule_configurations
from trainwarden.config.documents import read_rules
from trainwarden.config.model import JobConfig, Problem
from trainwarden.config.names import Names
from trainwarden.config.tags import muted, read_tags
from trainwarden.config.wishes import TOPIC, Source
from trainwarden.engine import RuleSpec, SetSpec
from trainwarden.errors import ConfigError
from trainwarden.model import Json, Mode, Severity
from trainwarden.rules import DEFAULT, SAGEMAKER, build, find

S = TypeVar("S", RuleSpec, SetSpec)
MAX_RULES = 64  # SageMaker: 20; state of all rules has to fit one item


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
    over all sources, the strongest winning one by one. Without any choice the profile ``default``
    runs.

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
    speakers, running = _running(sources)
    if len(running) > MAX_RULES:
        tagged.reject("rules", len(running), f"at most {MAX_RULES} rules (the first ones run)")
    subscribers = _Subscribers(defaults.get("subscribers"), tagged)
    specs = [_spec(key, sources, tagged) for key in running[:MAX_RULES]]
    heeded = tuple(subscribers.of_rule(spec) for spec in specs if spec is not None)
    running_sets = rule_sets.running(speakers, [spec.key for spec in heeded], tagged)
    sets = tuple(subscribers.of_rule(spec) for spec in running_sets)
    silent = muted(tagged, names, said.mute, [spec.key for spec in sets])
    heard = subscribers.of_job(said.notify)
    problems: list[Problem] = []
    for source in (tagged, debugger, hook, script, deployed):
        problems.extend(source.problems)
    return JobConfig(
        rules=heeded,
        sets=sets,
        stop=said.stop,
        notify=heard,
        nonce=said.nonce,
        muted=silent,
        problems=tuple(problems),
    )


def _running(sources: Sequence[Source]) -> tuple[Sequence[Source], list[str]]:
    """Return who is heard, and the keys of the rules that run.

    Those are the rules chosen, plus and minus stronger wishes.
    """
    chooser = next((i for i, source in enumerate(sources) if source.chosen is not None), None)
    if chooser is None:
        keys, speakers = list(rules.names()), sources
    else:
        keys, speakers = list(sources[chooser].chosen or ()), sources[: chooser + 1]
    for source in reversed(speakers):
        for wish in source.wishes.values():
            if wish.on and wish.key not in keys:
                keys.append(wish.key)
            elif not wish.on and wish.key in keys:
                keys.remove(wish.key)
    return speakers, keys


def _spec(key: str, sources: Sequence[Source], blame: Source) -> RuleSpec | None:
    """Merge what every source says of one rule; None if it lacks what it cannot run without."""
    wishes = [source.wishes[key] for source in reversed(sources) if key in source.wishes]
    name = wishes[-1].name if wishes else key
    blame = next((source for source in sources if key in source.wishes), blame)
    parameters: dict[str, Json] = {}
    options: dict[str, Json] = {}
    for wish in wishes:
        parameters.update(wish.parameters)
        options.update(wish.options)
    start, end = options.get("start_step", 0), options.get("end_step")
    if end is not None and end < start:
        blame.reject(f"{key} end_step", end, f"a step from {start} on, its start_step")
        end = None
    profile = str(options.get("profile", DEFAULT))
    if profile == SAGEMAKER and find(name).meta.sagemaker is None:
        blame.reject(f"{key} profile", profile, f"profile {DEFAULT}: only SageMaker's have two")
        profile = DEFAULT
    if not _builds(key, name, profile, parameters, blame):
        parameters = {}  # each is right alone, together they are not
        if not _builds(key, name, profile, parameters, None):
            return None
    severity = options.get("severity")
    return RuleSpec(
        key=key,
        name=name,
        parameters=parameters,
        start_step=start,
        end_step=end,
        every=options.get("every", 1),
        modes=tuple(Mode(word) for word in options.get("modes", ())),
        severity=Severity(severity) if severity else None,
        actions=tuple(options.get("actions", ())),
        profile=profile,
    )


def _builds(
    key: str, name: str, profile: str, parameters: Mapping[str, Json], blame: Source | None
) -> bool:
    try:
        build(name, parameters, profile=profile)
    except ConfigError as error:
        if blame is not None:
            hint = f" ({error.remedy})" if error.remedy.startswith("did you mean") else ""
            blame.reject(key, error.found, f"{error.expected}{hint}")
        return False
    return True


class _Subscribers:
    """Who listens at all: an address that nobody listens at must not silence an alert."""

    def __init__(self, known: Json, blame: Source) -> None:
        self._known = [str(one) for one in known] if isinstance(known, list | tuple) else None
        self._blame = blame

    def heard(self, where: str, address: str) -> bool:
        """Tell whether somebody listens; an address that nobody listens at is noted."""
        if self._known is None or address in self._known or TOPIC.fullmatch(address):
            return True
        self._blame.reject(where, address, "an address that is subscribed", self._known)
        return False

    def of_job(self, notify: Sequence[str]) -> tuple[str, ...]:
        """Return the job's addresses; none left means that everybody is told."""
        return tuple(a for a in notify if self.heard("trainwarden:notify", a))

    def of_rule(self, spec: S) -> S:
        """Return the rule or set with its addresses; without them it still only notifies."""
        actions = tuple(
            action
            if ":" not in action or self.heard(spec.key, action.partition(":")[2])
            else "notify"
            for action in spec.actions
        )
        return replace(spec, actions=tuple(dict.fromkeys(actions)))
