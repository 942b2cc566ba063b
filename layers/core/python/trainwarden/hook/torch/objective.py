"""Takes samples of what a loss function was given; ``stats.objective`` makes facts of them.

Rows are spread evenly over the batch, and over the positions of images and sequences. Only what is
looked at is copied.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from trainwarden.hook.torch.views import dtype_name
from trainwarden.model import FloatArray
from trainwarden.stats.objective import Objective

MAX_ROWS = 256  # whose values are looked at
MAX_ELEMENTS = 2**15  # in those rows
MAX_PREDICTIONS = 2048  # rows whose largest element is looked up, as far as elements allow
FEW = 16  # but at least that many, even of a large vocabulary
MAX_HEADS = 4  # loss functions with different numbers of classes in one step
MAX_CALLS = 8  # of one loss function looked at in one training step
_THINNING = 64  # evaluation batches after which only every second one is looked at, and so on

_CLASSES = frozenset({"cross_entropy", "nll_loss", "multi_margin_loss"})
_BINARY = frozenset({"binary_cross_entropy", "binary_cross_entropy_with_logits"})
_DISTRIBUTIONS = frozenset({"kl_div", "ctc_loss"})  # over the last dimension
_UNTARGETED = frozenset(  # what stands second is no target of the first
    {"cosine_embedding_loss", "ctc_loss", "margin_ranking_loss", "triplet_margin_loss"}
)


def parameters(name: str) -> tuple[str, ...]:
    """Return the parameter names of a function of ``torch.nn.functional``."""
    try:
        return tuple(inspect.signature(getattr(functional, name)).parameters)
    except (TypeError, ValueError):
        return ("input", "target")


class Objectives:
    """The loss functions called in one saved step or evaluation pass.

    Args:
        evaluating: Of an evaluation pass only the essentials are kept.
    """

    def __init__(self, *, evaluating: bool = False) -> None:
        self._evaluating = evaluating
        self._found: dict[tuple[str, int], Objective] = {}
        self._calls: dict[str, int] = {}

    def look(self, name: str, arguments: Mapping[str, Any]) -> None:
        """Look at one call.

        Args:
            name: Of the function.
            arguments: Parameter name → argument.
        """
        values = list(arguments.values())
        if not values or not _readable(values[0]) or not values[0].is_floating_point():
            return
        call = self._calls[name] = self._calls.get(name, -1) + 1
        skip = call % (1 << (call // _THINNING)) if self._evaluating else call >= MAX_CALLS
        if skip:
            return
        try:
            self._look(name, arguments, values[0].detach(), _target(name, values))
        except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
            return  # a tensor that hides its elements: of a function transform, a subclass

    def _look(
        self,
        name: str,
        arguments: Mapping[str, Any],
        inputs: torch.Tensor,
        target: torch.Tensor | None,
    ) -> None:
        if name in _CLASSES and target is not None:
            rows, labels, probable = _class_rows(inputs, target)
            objective = self._objective(name, rows.shape[1])
            if objective is not None:
                objective.set(classes=float(rows.shape[1]))
                _look_at_classes(objective, rows, labels, probable, _ignored(arguments))
        else:
            if name in _DISTRIBUTIONS:
                inputs, target = _flat(inputs), None if target is None else _flat(target)
            rows = _rows(inputs)
            same = target is not None and target.shape == inputs.shape
            aims = None if target is None else _rows(target)
            classes = _binary_classes(aims) if name in _BINARY and same and aims is not None else 0
            objective = self._objective(name, classes)
            if objective is not None:
                if classes and aims is not None:
                    objective.set(classes=float(classes))
                    _look_at_signs(objective, rows, aims, classes, 0.0 if "logits" in name else 0.5)
                if aims is not None:
                    _look_at_numbers(objective, aims, unit=name in _BINARY)
        if objective is not None:
            objective.add_inputs(_numbers(_thinned(rows, MAX_ROWS, MAX_ELEMENTS)))
            objective.set(**_constants(name, arguments, inputs, target))

    def _objective(self, name: str, classes: int) -> Objective | None:
        found = self._found.get((name, classes))
        if found is None and len(self._found) < MAX_HEADS:
            found = self._found[name, classes] = Objective(brief=self._evaluating)
        return found

    def facts(self) -> dict[str, float]:
        """Return the facts as ``function.fact``; a second head of a function is ``function:1``."""
        found: dict[str, float] = {}
        heads: dict[str, int] = {}
        for (name, _), objective in self._found.items():
            head = heads[name] = heads.get(name, -1) + 1
            title = f"{name}:{head}" if head else name
            found |= {f"{title}.{fact}": value for fact, value in objective.facts().items()}
        return found

    def tables(self) -> dict[str, Mapping[int, int]]:
        """Return the side tables: ``predicted/0`` and so on, a number for each classifier."""
        judged = [one.tables for one in self._found.values() if one.tables]
        return {
            f"{kind}/{position}": counts
            for position, tables in enumerate(judged)
            for kind, counts in tables.items()
        }


def _readable(value: Any) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and value.layout is torch.strided
        and not value.is_meta
        and value.numel() > 0
    )


def _target(name: str, values: Sequence[Any]) -> torch.Tensor | None:
    if name in _UNTARGETED or len(values) < 2 or not _readable(values[1]):  # noqa: PLR2004 - input, target
        return None
    target: torch.Tensor = values[1].detach()
    return None if target.is_complex() else target


def _ignored(arguments: Mapping[str, Any]) -> int | None:
    found = arguments.get("ignore_index", -100)
    return found if isinstance(found, int) else None


def _constants(
    name: str, arguments: Mapping[str, Any], inputs: torch.Tensor, target: torch.Tensor | None
) -> dict[str, float]:
    weights = (arguments.get("weight"), arguments.get("pos_weight"))
    smoothing = arguments.get("label_smoothing", 0.0)
    found = {
        "input_size": float(inputs.numel()),
        "broadcast": float(
            target is not None and name not in _CLASSES and inputs.shape != target.shape
        ),
        "weighted": float(any(isinstance(weight, torch.Tensor) for weight in weights)),
        "smoothing": float(smoothing) if isinstance(smoothing, int | float) else 0.0,
        "reduction_sum": float(arguments.get("reduction") == "sum"),
        "unreduced": float(arguments.get("reduction") == "none"),
    }
    if target is not None:
        found["target_size"] = float(target.numel())
    return found


def _numbers(tensor: torch.Tensor) -> FloatArray:
    """Copy a tensor to the host as float64."""
    found: FloatArray = tensor.to("cpu", torch.float64).numpy()
    return found


def _thinned(rows: torch.Tensor, most: int, elements: int, least: int = 1) -> torch.Tensor:
    """Return rows of (R, C), evenly spread: at most ``most``, about ``elements`` in all."""
    kept = min(most, max(least, elements // max(rows.shape[1], 1)))
    return rows[:: -(-rows.shape[0] // kept)] if rows.shape[0] > kept else rows


def _class_rows(
    inputs: torch.Tensor, target: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, bool]:
    """Return scores (R, C), their targets (R,) or (R, C), and True if those are probabilities."""
    if inputs.dim() == 1:
        inputs, target = inputs.unsqueeze(0), target.unsqueeze(0)
    probable = target.dim() == inputs.dim() and target.is_floating_point()
    places = (inputs.shape[0], *inputs.shape[2:])
    total = int(np.prod(places))
    kept = min(MAX_PREDICTIONS, max(FEW, MAX_ELEMENTS // max(inputs.shape[1], 1)))
    step = -(-total // kept)
    if inputs.dim() == 2:  # noqa: PLR2004 - samples, classes
        return inputs[::step], target[::step], probable
    first, *rest = np.unravel_index(np.arange(0, total, step), places)
    at = [torch.from_numpy(index).to(inputs.device) for index in (first, *rest)]
    by_place = inputs.movedim(1, -1)[tuple(at)]  # copies no more than is asked for
    aims = target.movedim(1, -1) if probable else target
    return by_place, aims[tuple(at)], probable


def _look_at_classes(
    objective: Objective,
    rows: torch.Tensor,
    targets: torch.Tensor,
    probable: bool,  # noqa: FBT001 - private
    ignored: int | None,
) -> None:
    classes = rows.shape[1]
    predicted = rows.argmax(dim=1).to("cpu").numpy()
    if probable:
        labels = targets.argmax(dim=1).to("cpu").numpy()
        wanted = _numbers(_thinned(targets, MAX_ROWS, MAX_ELEMENTS))
        objective.add_targets(wanted, impossible=_outside(wanted), ignored=0)
    else:
        labels = targets.to("cpu", torch.int64).numpy().reshape(-1)
        kept = labels != ignored
        possible = (labels >= 0) & (labels < classes)
        left = labels[kept]
        objective.add_targets(
            left.astype(np.float64),
            impossible=int(np.count_nonzero(kept & ~possible)),
            ignored=int(labels.size - left.size),
        )
        judged = kept & possible
        if not judged.all():
            labels, predicted = labels[judged], predicted[judged]
    if labels.size:
        objective.add_predictions(labels, predicted, classes)


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """Return (…, C) as (N, C)."""
    return tensor.reshape(-1, tensor.shape[-1]) if tensor.dim() > 2 else tensor  # noqa: PLR2004


def _rows(tensor: torch.Tensor) -> torch.Tensor:
    """Return a sample as rows (R, C); (R, 1) unless the tensor is (N, C)."""
    if tensor.dim() == 2 and tensor.shape[1] > 1:  # noqa: PLR2004 - samples, values
        return _thinned(tensor, MAX_PREDICTIONS, MAX_ELEMENTS)
    if tensor.dim() > 1 and tensor.numel() > MAX_ELEMENTS:
        kept = max(1, tensor.shape[0] * MAX_ELEMENTS // tensor.numel())
        tensor = tensor[:: -(-tensor.shape[0] // kept)]
    flat = tensor.reshape(-1)
    return flat[:: -(-flat.numel() // MAX_PREDICTIONS)].unsqueeze(1)


def _binary_classes(aims: torch.Tensor) -> int:
    """Return how many classes rows of zeros and ones stand for: one-hot rows C, all else two."""
    classes = aims.shape[1]
    if classes < 2 or len(aims) < 2 or dtype_name(aims.dtype) == "bool":  # noqa: PLR2004 - see above
        return 2
    hot = aims == 1
    one_hot = ((hot | (aims == 0)).all() & (hot.sum(dim=1) == 1).all()).item()
    return classes if one_hot else 2


def _look_at_signs(
    objective: Objective, rows: torch.Tensor, aims: torch.Tensor, classes: int, limit: float
) -> None:
    if classes > 2:  # noqa: PLR2004 - one-hot rows
        labels, predicted = aims.argmax(dim=1), rows.argmax(dim=1)
    else:
        labels, predicted = (aims > 0.5).reshape(-1), (rows > limit).reshape(-1)  # noqa: PLR2004 - half
    objective.add_predictions(
        labels.to("cpu", torch.int64).numpy(), predicted.to("cpu", torch.int64).numpy(), classes
    )


def _look_at_numbers(objective: Objective, aims: torch.Tensor, *, unit: bool) -> None:
    wanted = _numbers(aims)
    bad = _outside(wanted) if unit else int(np.count_nonzero(np.isnan(wanted)))
    objective.add_targets(wanted, impossible=bad, ignored=0)


def _outside(values: FloatArray) -> int:
    """Count what is no probability, NaN among it."""
    with np.errstate(invalid="ignore"):
        return int(values.size - np.count_nonzero((values >= 0) & (values <= 1)))
