"""What the user asked ``watch`` for, checked."""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from trainwarden.errors import ConfigError
from trainwarden.hook.chosen import plain_rules
from trainwarden.hook.save_config import SaveConfig, SaveConfigMode
from trainwarden.hook.schedule import Schedule
from trainwarden.model import EVAL, TRAIN, Collection, Json, Mode

COLLECTIONS = (
    Collection.WEIGHTS,
    Collection.BIASES,
    Collection.GRADIENTS,
    Collection.ACTIVATIONS,
    Collection.INPUTS,
    Collection.OUTPUTS,
    Collection.LABELS,
    Collection.LOSSES,
    Collection.OPTIMIZER,
    Collection.LOOP,
    Collection.OBJECTIVE,
    Collection.BATCH,
    Collection.WINDOW,
    Collection.BUFFERS,
    Collection.HISTORY,
    Collection.CAPTURE,
)
MAX_OVERHEAD = 0.02
EVERY = Schedule(interval=1)
_SCHEDULE = {
    "save_interval": "interval",
    "dense_steps": "dense",
    "start_step": "start",
    "end_step": "end",
    "save_steps": "steps",
    "max_steps": "total",
    "exact_interval": "exact",
}


@dataclass(frozen=True)
class Options:
    """What ``watch`` was asked for, checked. The arguments are described in docs/hook.md.

    Attributes:
        collections: What is captured.
        schedule: Which steps are saved.
        include: Capture only tensors whose name one of these matches; empty for all.
        exclude: Never capture tensors whose name one of these matches.
        updates: Compare weights with the previous saved step: needs a copy of the weights.
        activation_modules: Paths of modules whose output is an activation; None for all
            modules that are activation functions.
        evaluation: Save one observation for each evaluation pass.
        passes: Which of them.
        max_overhead: Share of the time that saved steps may take; None for no limit.
        rules: Rule configuration for the manifest.
        stop: The loop may be ended when somebody asks for it.
        strict: Raise instead of warning, and wait for the upload when closing.
        close_timeout_s: How long ``close`` may wait for the last uploads.
        max_pending_bytes: What may wait for upload before the oldest is dropped.
    """

    collections: frozenset[str] = frozenset(str(name) for name in COLLECTIONS)
    schedule: Schedule = field(default_factory=Schedule)
    include: tuple[re.Pattern[str], ...] = ()
    exclude: tuple[re.Pattern[str], ...] = ()
    updates: bool = True
    activation_modules: re.Pattern[str] | None = None
    evaluation: bool = True
    passes: Schedule = EVERY
    max_overhead: float | None = MAX_OVERHEAD
    rules: Json = field(default_factory=dict)
    stop: bool = False
    strict: bool = False
    close_timeout_s: float = 20.0
    max_pending_bytes: int = 64 * 1024 * 1024

    def wants(self, collection: str, name: str) -> bool:
        """Say whether tensor ``name`` of ``collection`` is captured."""
        if collection not in self.collections:
            return False
        if self.include and not any(pattern.search(name) for pattern in self.include):
            return False
        return not any(pattern.search(name) for pattern in self.exclude)

    def to_json(self) -> dict[str, Json]:
        """Describe the capture in the manifest."""
        return {
            "collections": sorted(self.collections),
            **self.schedule.to_json(),
            "max_overhead": self.max_overhead,
            "include": [pattern.pattern for pattern in self.include],
            "exclude": [pattern.pattern for pattern in self.exclude],
            "updates": self.updates,
            "evaluation": self.evaluation,
            "stop": "allow" if self.stop else "",
        }


def options(given: Mapping[str, Json], *, report: Callable[[str], None]) -> Options:
    """Check the keyword arguments of ``watch``.

    Args:
        given: Argument name → value, as given; None means the default.
        report: Called with each problem; the default is used in place of what is wrong. It may
            raise instead.
    """
    asked = {name: value for name, value in given.items() if value is not None}
    checked: dict[str, Json] = {}
    for name, read in _READERS.items():
        if name in asked:
            try:
                checked[name] = read(asked[name])
            except ConfigError as error:
                report(f"watch({name}=…): {error}")
    schedule, passes = _schedules(asked, report)
    return Options(schedule=schedule, passes=passes, **checked)


def _schedules(
    asked: Mapping[str, Json], report: Callable[[str], None]
) -> tuple[Schedule, Schedule]:
    """Return which training steps and which evaluation passes are saved."""
    own = {_SCHEDULE[name]: asked[name] for name in _SCHEDULE if name in asked}
    try:
        modes = _modes(asked.get("save_config"))
        base = modes[TRAIN].schedule() if TRAIN in modes else Schedule()
        if "steps" in own:
            own["steps"] = _steps(own["steps"])
        return replace(base, **own), modes[EVAL].schedule() if EVAL in modes else EVERY
    except ConfigError as error:
        report(f"watch(): {error}")
        return Schedule(), EVERY


def _modes(save_config: Json) -> Mapping[Mode, SaveConfigMode]:
    if save_config is None:
        return {}
    if not isinstance(save_config, SaveConfig):
        raise ConfigError("save_config to be a trainwarden.SaveConfig", repr(save_config))
    return save_config.modes


def _collections(value: Json) -> frozenset[str]:
    known = [str(name) for name in COLLECTIONS]
    names = [str(name) for name in ([value] if isinstance(value, str) else value)]
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            raise ConfigError(
                f"collections out of {', '.join(known)}",
                repr(name),
                f"did you mean {near[0]!r}?" if near else "",
            )
    return frozenset(names)


def _patterns(value: Json) -> tuple[re.Pattern[str], ...]:
    return tuple(_pattern(text) for text in ([value] if isinstance(value, str) else value))


def _pattern(text: Json) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except (re.error, TypeError) as error:
        raise ConfigError("a regular expression", repr(text), str(error)) from error


def _json(value: Json) -> Json:
    try:
        return json.loads(json.dumps(plain_rules(value), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ConfigError("rules made of names, numbers, lists and dicts", str(error)) from error


def _positive(value: Json) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:  # noqa: PLR2004 - any bound
        raise ConfigError("a number of at least 0", repr(value))
    return float(value)


def _share(value: Json) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise ConfigError("a share of the time above 0, or inf for no limit", repr(value))
    return None if math.isinf(value) else float(value)


def _stop(value: Json) -> bool:
    if value not in {"allow", "", "never"}:
        raise ConfigError("stop to be 'allow', or left out", repr(value))
    return bool(value == "allow")


def _steps(value: Json) -> frozenset[int]:
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise ConfigError("save_steps to be whole numbers", repr(value))
    return frozenset(value)


_READERS: Mapping[str, Callable[[Json], Json]] = {
    "collections": _collections,
    "include": _patterns,
    "exclude": _patterns,
    "updates": bool,
    "activation_modules": _pattern,
    "evaluation": bool,
    "rules": _json,
    "max_overhead": _share,
    "stop": _stop,
    "strict": bool,
    "close_timeout_s": _positive,
    "max_pending_bytes": lambda value: int(_positive(value)),
}
