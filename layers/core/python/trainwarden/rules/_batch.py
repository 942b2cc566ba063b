"""What the hook says of a batch: its inputs, what the loss function was given, labels by class."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from typing import NamedTuple

from trainwarden.model import TRAIN, FloatArray, IntArray, Layout, Observation
from trainwarden.rules._facts import functions, grouped, single
from trainwarden.rules._selection import once
from trainwarden.stats.catalog import INDEX, Flag
from trainwarden.stats.derived import STATISTICS

Facts = Mapping[str, float]
LABEL, PREDICTED, CORRECT, CONFUSION, TOKENS = (
    "label/",
    "predicted/",
    "correct/",
    "confusion/",
    "input/",
)
_OTHER_TABLES = (PREDICTED, CORRECT, CONFUSION, TOKENS, "ranked/")
_NAN, _INF, _N = math.nan, math.inf, INDEX["n"]
SATURATED = 100.0  # size that stands for inputs which saturate the first layer
_FLAGS = INDEX["flags"]
_SHIFT, _SUM, _SUM2, _LOW, _HIGH = (
    INDEX[c] for c in ("shift", "sum_d", "sum_d2", "n_sat_lo", "n_sat_hi")
)
_FLATTENED = 1.5  # labels a sample, from which on a sample has several


def fact(facts: Facts, name: str) -> float:
    """Return a fact, NaN if it is unknown or not finite: every comparison with it is false."""
    value = facts.get(name, _NAN)
    return value if -_INF < value < _INF else _NAN


def _grouped(obs: Observation, collection: str, *, last: bool) -> Mapping[str, Facts]:
    key: Hashable = ("grouped", collection)
    found: Mapping[str, Facts] | None = obs.memo.get(key)
    if found is None:
        found = grouped(obs.scalars.get(collection, {}), last=last)
        obs.memo[key] = found
    return found


def batches(obs: Observation) -> Mapping[str, Facts]:
    """Facts of the batch's inputs and outputs by tensor name: ``input/0`` → ``mean`` → value."""
    return _grouped(obs, "batch", last=True)


def inputs(obs: Observation) -> Mapping[str, Facts]:
    """Facts of the batch's float inputs by tensor name."""
    found: Mapping[str, Facts] | None = obs.memo.get("float inputs")
    if found is None:
        found = obs.memo["float inputs"] = {
            name: facts
            for name, facts in batches(obs).items()
            if name.startswith(TOKENS) and "tokens" not in facts
        }
    return found


def objectives(obs: Observation) -> Mapping[str, Facts]:
    """Facts by loss function: ``cross_entropy`` → ``classes`` → value."""
    found: Mapping[str, Facts] | None = obs.memo.get("objectives")
    if found is None:
        plain = single(tuple(obs.scalars.get("objective", ())))
        found = functions(obs) if plain else _grouped(obs, "objective", last=False)
        obs.memo["objectives"] = found
    return found


def classifier(obs: Observation) -> Facts:
    """Facts of the loss function that knows an accuracy or classes; empty if none does."""
    found: Facts | None = obs.memo.get("classifier")
    if found is None:
        several = objectives(obs).values()
        found = next((f for f in several if "accuracy" in f or "classes" in f), {})
        obs.memo["classifier"] = found
    return found


def labels(obs: Observation) -> Mapping[str, Mapping[int, int]]:
    """Label tensor → class → count, without the other tables that ride along; by name."""
    found: Mapping[str, Mapping[int, int]] | None = obs.memo.get("labels")
    if found is None:
        found = obs.memo["labels"] = {
            name: obs.labels[name]
            for name in sorted(obs.labels)
            if not name.startswith(_OTHER_TABLES)
        }
    return found


def beside(obs: Observation, name: str, table: str) -> Mapping[int, int] | None:
    """Return the ``table`` (``CORRECT``, …) that belongs to label tensor ``name``; None if none."""
    return obs.labels.get(table + name.removeprefix(LABEL))


def tokens(obs: Observation) -> Mapping[int, int]:
    """Counts of the integer input with the most elements; empty if there is none."""
    known: Mapping[int, int] | None = obs.memo.get("tokens")
    if known is None:
        found = [counts for name, counts in obs.labels.items() if name.startswith(TOKENS)]
        known = max(found, key=lambda counts: sum(counts.values()), default={})
        obs.memo["tokens"] = known
    return known


def per_token(obs: Observation, name: str) -> bool:
    """Say whether labels are tokens of sequences: about as many and as varied as the inputs."""
    given, wanted = tokens(obs), obs.labels.get(name, {})
    return (
        len(wanted) > 2  # noqa: PLR2004 - two classes are no alphabet
        and 2 * len(wanted) >= len(given) > 0
        and 2 * sum(wanted.values()) >= sum(given.values())
    )


def samples(obs: Observation) -> float:
    """Return the samples of the batch, NaN if unknown."""
    known: float | None = obs.memo.get("samples")
    if known is None:
        known = obs.memo["samples"] = _samples(obs)
    return known


def _samples(obs: Observation) -> float:
    known = [n for f in inputs(obs).values() if (n := fact(f, "samples")) > 0]
    if known:
        return max(known)
    row = obs.layout.row_of.get("input/0", obs.stats.shape[0])
    if row >= obs.stats.shape[0] or int(_or_zero(obs.stats[row, _FLAGS])) & Flag.SAMPLED:
        return _NAN
    return float(obs.stats[row, _N]) / max(1, math.prod(obs.layout.tensors[row].shape))


def _or_zero(number: float) -> float:
    return 0.0 if math.isnan(number) else number


def per_sample(obs: Observation, name: str) -> bool:
    """Say whether there is one label a sample: no tokens, no pixels."""
    row = obs.layout.row_of.get(name)
    if row is not None and math.prod(obs.layout.tensors[row].shape) > 1:
        return False
    return not sum(obs.labels.get(name, {}).values()) > _FLATTENED * samples(obs)


def value(obs: Observation, row: int, statistic: str) -> float:
    """Return a statistic of one row, NaN if it was not captured or is not finite."""
    if row >= obs.stats.shape[0] or math.isnan(obs.stats[row, _N]):
        return _NAN
    compute = _OF_ONE.get(statistic)
    if compute is None:
        found = float(STATISTICS[statistic].compute(obs.stats[row : row + 1])[0])
    else:
        try:
            found = compute(obs.stats[row].tolist())
        except (ZeroDivisionError, ValueError):  # no finite element
            return _NAN
    return found if math.isfinite(found) else _NAN


def _finite(row: list[float]) -> float:
    return row[0] - row[1] - row[2] - row[3]


def _squares(row: list[float]) -> float:
    shift, square = row[_SHIFT], row[_SUM2]
    if shift == 0:
        return square
    return max(square + shift * (2.0 * row[_SUM] + shift * _finite(row)), 0.0)


def _deviation(row: list[float]) -> float:
    count = _finite(row)
    offset, square = row[_SUM] / count, row[_SUM2] / count
    return math.sqrt(max(square - offset * offset, 0.0))


# ``stats.derived`` for a single row; arrays of one element would cost ten times as much
_OF_ONE: Mapping[str, Callable[[list[float]], float]] = {
    "n": lambda row: row[0],
    "mean": lambda row: row[_SHIFT] + row[_SUM] / _finite(row),
    "std": _deviation,
    "l2": lambda row: math.sqrt(_squares(row)),
    "rms": lambda row: math.sqrt(_squares(row) / _finite(row)),
    "saturated_fraction": lambda row: (row[_LOW] + row[_HIGH]) / row[0],
}


def answers(obs: Observation, classes: float) -> bool:
    """Say whether the model's output holds a score for each class, as in a classifier.

    Contrastive losses, whose labels may all be 0, compare outputs with each other instead.
    """
    row = obs.layout.row_of.get("output/0")
    if row is None:
        return False
    shape = obs.layout.tensors[row].shape
    return classes in shape or (classes == 2 and math.prod(shape) == 1)  # noqa: PLR2004 - a sign


def trains(obs: Observation) -> bool:
    """Say whether this is a training step."""
    return obs.mode is TRAIN


class Entry(NamedTuple):
    """Rows of the gradients of a module's weight matrix and bias; ``fan_in`` elements a unit."""

    module: str
    fan_in: int
    weight: int
    bias: int


class Entrance(NamedTuple):
    """Where data enters the model.

    Attributes:
        normalises: One of the first two modules is a normalisation, or scales without mixing.
        entries: Layers with weight matrices, in forward order; rows are -1 without a bias.
        frozen: The first layer does not learn.
    """

    normalises: bool
    entries: tuple[Entry, ...]
    frozen: bool


def entrance(layout: Layout) -> Entrance:
    """Return where data enters the model, worked out once per layout."""
    return once(layout, "entrance", _entrance)


def _entrance(layout: Layout) -> Entrance:
    modules: dict[str, list[int]] = {}
    for row, tensor in enumerate(layout.tensors):
        if tensor.depth >= 0 and tensor.module and tensor.collection != "gradients":
            modules.setdefault(tensor.module, []).append(row)
    inner = {m for m in modules if not any(o.startswith(f"{m}.") for o in modules)}
    ordered = sorted(inner, key=lambda m: min(layout.tensors[r].depth for r in modules[m]))
    layers = [m for m in ordered if _matrix(layout, modules[m]) >= 0]
    first = [m for m in ordered if layout.tensors[modules[m][0]].collection != "activations"][:2]
    normalises = any("Norm" in layout.tensors[modules[m][0]].kind for m in first) or (
        bool(first) and _matrix(layout, modules[first[0]]) < 0
    )
    frozen = bool(layers) and not layout.tensors[_matrix(layout, modules[layers[0]])].trainable
    entries = [e for m in layers if (e := _entry(layout, m, modules[m])) is not None]
    return Entrance(normalises, tuple(entries), frozen)


def _matrix(layout: Layout, rows: list[int]) -> int:
    return next((r for r in rows if len(layout.tensors[r].shape) > 1), -1)


def _entry(layout: Layout, module: str, rows: list[int]) -> Entry | None:
    row_of = layout.row_of
    matrix = _matrix(layout, rows)
    shape = layout.tensors[matrix].shape
    if layout.tensors[matrix].kind.startswith("Embedding"):
        return None
    for row in rows:
        one = layout.tensors[row]
        if one.collection == "biases" and one.shape == shape[:1]:
            weight = row_of.get(f"gradient/{layout.names[matrix]}", -1)
            bias = row_of.get(f"gradient/{one.name}", -1)
            if weight >= 0 and bias >= 0:
                return Entry(module, math.prod(shape[1:]), weight, bias)
    return Entry(module, math.prod(shape[1:]), -1, -1)


def scale_seen(obs: Observation, entry: Entry) -> float:
    """Return the root mean square of what enters a layer, as its gradients show it.

    With δ the gradient at the layer's output, ∂W = Σ δ xᵀ and ∂b = Σ δ: so |∂W| ÷ (|∂b| √fan_in) is
    the size of x. NaN where nothing flows.
    """
    if entry.weight < 0 or entry.bias < 0:
        return _NAN
    weight, bias = value(obs, entry.weight, "l2"), value(obs, entry.bias, "l2")
    if not (bias > 0 and weight > 0):
        return _NAN
    return weight / bias / math.sqrt(entry.fan_in)


def reaching(obs: Observation, name: str) -> float | None:
    """Size of what the layer sees that this input enters; None if it cannot be known."""
    entries = entrance(obs.layout).entries
    row = obs.layout.row_of.get(name)
    shape = obs.layout.tensors[row].shape if row is not None else ()
    widths = {math.prod(shape), *shape[:1], *shape[-1:]}
    fitting = [e for e in entries if e.fan_in in widths] if row is not None else []
    first = [*fitting, *entries][:1]
    if first and first[0].weight >= 0:
        size = scale_seen(obs, first[0])
        return None if math.isnan(size) else size
    rows = rows_of(obs, "activations")[:1].tolist()
    if not rows:
        return None
    saturated = value(obs, rows[0], "saturated_fraction")
    rms = 2.0 * value(obs, rows[0], "rms")  # halved by an initialisation of 1/√fan_in
    size = SATURATED if saturated > 0.5 else rms  # noqa: PLR2004 - most of them
    return None if math.isnan(size) else size


def rows_of(obs: Observation, collection: str) -> IntArray:
    """Rows of a collection that this observation captured."""
    return obs.captured(collection)


def column_of(obs: Observation, rows: IntArray, statistic: str) -> FloatArray:
    """Return a statistic of some rows."""
    return STATISTICS[statistic].compute(obs.stats[rows])
