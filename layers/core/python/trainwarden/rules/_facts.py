"""Scalar facts of an observation, and suspicions that must last before they are told."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from operator import itemgetter

from trainwarden.model import Json, Observation
from trainwarden.stats.catalog import INDEX, Flag

_FLAGS = INDEX["flags"]


def fact(obs: Observation, collection: str, name: str) -> float:
    """Return a scalar; NaN if it is not known, so that no comparison with it holds."""
    found = obs.scalars.get(collection)
    return math.nan if found is None else found.get(name, math.nan)


class _Known(dict[str, float]):
    """Facts by name; NaN for what is not known, so that no comparison with it holds."""

    def __missing__(self, name: str) -> float:
        return math.nan


def rests(obs: Observation, collection: str) -> bool:
    """Say whether a collection is not saved at this step, since it has steps of its own."""
    told = obs.scalars.get("capture")
    return told is not None and f"resting.{collection}" in told


def loop(obs: Observation) -> Mapping[str, float]:
    """Return what the hook saw of the training loop; a fact that is not known is NaN."""
    known: Mapping[str, float] | None = obs.memo.get("loop")
    if known is None:
        known = obs.memo["loop"] = _Known(obs.scalars.get("loop", {}))
    return known


@lru_cache(maxsize=256)
def _owners(
    names: tuple[str, ...], *, last: bool
) -> tuple[
    tuple[str, tuple[str, ...], Callable[[tuple[float, ...]], tuple[float, ...]] | None], ...
]:
    """Owners, their facts, and what takes these from all values; None where that is all of them."""
    found: dict[str, tuple[list[str], list[int]]] = {}
    for position, name in enumerate(names):
        owner, _, what = name.rpartition(".") if last else name.partition(".")
        facts, positions = found.setdefault(owner, ([], []))
        facts.append(what)
        positions.append(position)
    return tuple(
        (owner, tuple(facts), None if len(found) == 1 else _taker(positions))
        for owner, (facts, positions) in found.items()
    )


def _taker(positions: list[int]) -> Callable[[tuple[float, ...]], tuple[float, ...]]:
    if len(positions) == 1:
        only = positions[0]
        return lambda values: (values[only],)
    return itemgetter(*positions)


def grouped(facts: Mapping[str, float], *, last: bool) -> dict[str, dict[str, float]]:
    """Owner → fact → value, of names such as ``input/0.mean``, parted at the last or first dot."""
    values = tuple(facts.values())
    return {
        owner: dict(zip(whats, values if row is None else row(values), strict=True))
        for owner, whats, row in _owners(tuple(facts), last=last)
    }


@lru_cache(maxsize=256)
def single(names: tuple[str, ...]) -> bool:
    """Say whether no name has two dots: its first is its last."""
    return all(name.count(".") <= 1 for name in names)


def functions(obs: Observation) -> Mapping[str, Mapping[str, float]]:
    """Return what is known of each loss function: ``cross_entropy`` → fact → value."""
    known: Mapping[str, Mapping[str, float]] | None = obs.memo.get("functions")
    if known is None:
        known = obs.memo["functions"] = grouped(obs.scalars.get("objective", {}), last=True)
    return known


def learning_rates(obs: Observation) -> list[float]:
    """Learning rates of all groups of all optimizers that stepped."""
    known: list[float] | None = obs.memo.get("learning rates")
    if known is None:
        facts = obs.scalars.get("optimizer", {})
        known = obs.memo["learning rates"] = [facts[name] for name in _rates(tuple(facts))]
    return known


@lru_cache(maxsize=64)
def _rates(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in names if name.rpartition(".")[2].startswith("lr_"))


def several_optimizers(obs: Observation) -> bool:
    """Say whether more than one optimizer is at work: players of a game, or parts of a model."""
    known: bool | None = obs.memo.get("several optimizers")
    if known is None:
        names = tuple(obs.scalars.get("optimizer", ()))
        known = obs.memo["several optimizers"] = _more_rates(names)
    return known


@lru_cache(maxsize=64)
def _more_rates(names: tuple[str, ...]) -> bool:
    return any(name.endswith("lr_0") and name != "lr_0" for name in names)


def skipped(obs: Observation) -> bool:
    """Say whether GradScaler left this step out: by a fact, or a flag of the gradients' rows."""
    known: bool | None = obs.memo.get("skipped")
    if known is None:
        known = obs.memo["skipped"] = _skipped(obs)
    return known


def _skipped(obs: Observation) -> bool:
    if obs.scalars.get("optimizer", {}).get("found_inf", 0.0) > 0:
        return True
    rows = obs.captured("gradients")
    return bool(rows.size) and bool(int(obs.stats.item(int(rows[0]), _FLAGS)) & Flag.SKIPPED)


def suspicions(kept: Json, step: int, kinds: Iterable[str]) -> dict[str, Json]:
    """Extend what is suspected, kind → [first step, saved steps in a row]; forget the others."""
    found: dict[str, Json] = {}
    for kind in kinds:
        since, count = kept.get(kind, (step, 0))
        found[kind] = [min(since, step), count + 1]
    return found


def rounded(value: float) -> float | None:
    """Four significant digits for evidence; None for what is no number."""
    return float(f"{value:.4g}") if math.isfinite(value) else None
