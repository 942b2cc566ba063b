"""What the user asked ``watch`` for, checked."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from trainwarden.errors import ConfigError
from trainwarden.hook.chosen import plain_rules
from trainwarden.hook.collection_config import (
    CollectionConfig,
    check_name,
    pattern,
)
from trainwarden.hook.raw_config import RawConfig
from trainwarden.hook.save_config import SaveConfig, SaveConfigMode
from trainwarden.hook.schedule import Schedule
from trainwarden.model import EVAL, TRAIN, Collection, Json, Mode, TensorInfo

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
T = TypeVar("T")
_IDLE = (
    "of a ReductionConfig only save_raw_tensor has an effect: all reductions but prod, norms and "
    "shapes are always recorded, and no histograms"
)
MODULE_OUTPUT = "module_output/"  # begins the name of what a module returns
_RETURNED = (MODULE_OUTPUT, "activation/")
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
        configs: What is kept of single collections.
        raw: Tensors that are kept as they are.
        only: Nothing but these collections, whoever asks: another process has the rest.
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
    configs: tuple[CollectionConfig, ...] = ()
    raw: tuple[RawConfig, ...] = ()
    only: frozenset[str] | None = None
    max_overhead: float | None = MAX_OVERHEAD
    rules: Json = field(default_factory=dict)
    stop: bool = False
    strict: bool = False
    close_timeout_s: float = 20.0
    max_pending_bytes: int = 64 * 1024 * 1024

    def wants(self, collection: str, name: str) -> bool:
        """Say whether tensor ``name`` of ``collection`` is captured."""
        if self.only is not None and collection not in self.only:
            return False
        if self.configs and any(one.selects and one.has([name]) for one in self.configs):
            return not any(pattern.search(name) for pattern in self.exclude)
        if collection not in self.collections:
            return False
        if self.include and not any(pattern.search(name) for pattern in self.include):
            return False
        return not any(pattern.search(name) for pattern in self.exclude)

    def also(self, info: TensorInfo) -> tuple[str, ...]:
        """Return the collections of the user's own that a tensor is in."""
        returned = info.module if info.name.startswith(_RETURNED) else ""
        found = [
            one.name
            for one in self.configs
            if one.selects and (one.has([info.name]) or (returned and one.captures(returned)))
        ]
        return tuple(dict.fromkeys(name for name in found if name != info.collection))

    def output_of(self, path: str) -> str:
        """Return the collection for which is captured what a module returns; empty for none."""
        name = f"{MODULE_OUTPUT}{path}"
        if (
            not path
            or self.only is not None
            or any(pattern.search(name) for pattern in self.exclude)
        ):
            return ""
        return next((one.name for one in self.configs if one.captures(path)), "")

    def configured(self, config: CollectionConfig) -> Options:
        """Return options with one collection more, in place of one of its name."""
        others = tuple(one for one in self.configs if one.name != config.name)
        return replace(self, configs=(*others, config), raw=(*self.raw, *_raw_of([config])))

    @property
    def own(self) -> dict[str, dict[Mode, Schedule]]:
        """Steps of the collections that have some of their own."""
        return {
            one.name: {mode: its.schedule() for mode, its in one.save_config.modes.items()}
            for one in self.configs
            if one.save_config is not None
        }

    def to_json(self) -> dict[str, Json]:
        """Describe the capture in the manifest."""
        return {
            "collections": sorted(self.collections),
            **self.schedule.to_json(),
            "max_overhead": self.max_overhead,
            "include": [pattern.pattern for pattern in self.include],
            "exclude": [pattern.pattern for pattern in self.exclude],
            "configured": sorted({one.name for one in self.configs}),
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
                checked[_FIELDS.get(name, name)] = read(asked[name])
            except ConfigError as error:
                report(f"watch({name}=…): {error}")
    schedule, passes = _schedules(asked, report)
    found = _configured(Options(schedule=schedule, passes=passes, **checked))
    if any(one.idle for one in found.configs):
        report(_IDLE)
    return found


def _configured(found: Options) -> Options:
    """Return options with what collections say of themselves: never saved, kept as they are."""
    never = {
        name
        for name, modes in found.own.items()
        if TRAIN in modes and modes[TRAIN].end == 0 and not modes[TRAIN].steps
    }
    asked = _raw_of(one for one in found.configs if one.name not in never)
    return replace(found, collections=found.collections - never, raw=(*found.raw, *asked))


def _raw_of(configs: Iterable[CollectionConfig]) -> list[RawConfig]:
    return [RawConfig(one.name) for one in configs if one.raw]


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
        check_name(name, known, "collections")
    return frozenset(names)


def _patterns(value: Json) -> tuple[re.Pattern[str], ...]:
    return tuple(pattern(text) for text in ([value] if isinstance(value, str) else value))


def _configs(value: Json) -> tuple[CollectionConfig, ...]:
    return _all_of(value, CollectionConfig)


def _raw(value: Json) -> tuple[RawConfig, ...]:
    return _all_of(value, RawConfig)


def _all_of(value: Json, kind: type[T]) -> tuple[T, ...]:
    found = tuple(value) if isinstance(value, list | tuple) else (value,)
    for one in found:
        if not isinstance(one, kind):
            raise ConfigError(f"trainwarden.{kind.__name__}, one or a list", repr(one))
    return found


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


_FIELDS = {"collection_configs": "configs"}  # where they are named otherwise
_READERS: Mapping[str, Callable[[Json], Json]] = {
    "collections": _collections,
    "include": _patterns,
    "exclude": _patterns,
    "updates": bool,
    "activation_modules": pattern,
    "collection_configs": _configs,
    "raw": _raw,
    "evaluation": bool,
    "rules": _json,
    "max_overhead": _share,
    "stop": _stop,
    "strict": bool,
    "close_timeout_s": _positive,
    "max_pending_bytes": lambda value: int(_positive(value)),
}
