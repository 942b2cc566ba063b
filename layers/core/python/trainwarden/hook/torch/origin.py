"""Where did it begin? The order of what is not finite at a saved step, and the first operation.

The operation is found in the graph of the loss, before ``backward()`` frees it: autograd has kept
what each operation was given or returned. Nothing is computed again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from trainwarden.hook.draft import Draft
from trainwarden.model import Collection, TensorInfo
from trainwarden.stats.catalog import INDEX

MAX_ORDER = 8  # tensors whose rank is told
_MAX_NODES = 20_000
_MAX_ELEMENTS = 2**27  # looked at in one graph
_COUNTS = slice(INDEX["n_nan"], INDEX["n_ninf"] + 1)
_OPERANDS = {  # names of what autograd saved → which input of the operation it was
    "_saved_self": 0,
    "_saved_input": 0,
    "_saved_other": 1,
    "_saved_weight": 1,
    "_saved_mat1": 1,
    "_saved_mat2": 2,
    "_saved_batch1": 1,
    "_saved_batch2": 2,
}
_RESULTS = ("_saved_result", "_saved_result0", "_saved_result1", "_saved_output")
_PASSING = frozenset(  # what these are given is not finite if what they return is not
    {"relu", "leaky_relu", "elu", "gelu", "silu", "tanh", "sigmoid", "hardtanh", "softmax"}
)
_POLES: Mapping[str, tuple[str, Callable[[torch.Tensor], torch.Tensor]]] = {
    "log": ("_saved_self", lambda x: x <= 0),
    "log2": ("_saved_self", lambda x: x <= 0),
    "log10": ("_saved_self", lambda x: x <= 0),
    "log1p": ("_saved_self", lambda x: x <= -1),
    "div": ("_saved_other", lambda x: x == 0),
    "acos": ("_saved_self", lambda x: x.abs() > 1),
    "asin": ("_saved_self", lambda x: x.abs() > 1),
    "acosh": ("_saved_self", lambda x: x < 1),
    "atanh": ("_saved_self", lambda x: x.abs() >= 1),
}
_NAMES = {"addmm": "linear", "mm": "linear", "accumulate_grad": "parameter"}
_LOSSES = re.compile(r"loss|cross_entropy|^log|^kl_|^div$|^sqrt$|^pow$|^mean$|^sum$")
Node = Any


# ---- the first operation ------------------------------------------------------------------


def first_operation(loss: torch.Tensor, places: Mapping[int, tuple[int, str]]) -> str:
    """Return the operation that made the first NaN or infinity; empty if it cannot be known.

    Args:
        loss: With its graph.
        places: id of parameter → position in forward order, path of its module.

    Returns:
        ``operation/fc2.log``: a logarithm in or after module ``fc2``, before any module that
        follows; ``loss_operation/fc2.log`` if it belongs to the loss; ``data/fc1.linear`` if it
        was given NaN or infinity from outside the model.
    """
    if loss.grad_fn is None:
        return ""
    graph = _Graph(loss.grad_fn)
    node, given = graph.first()
    name = _operation(node)
    own = graph.parameters(node, places)
    last = max(own, default=(-1, ""))
    every = graph.parameters(loss.grad_fn, places)
    direct = any(_leaf(child) is not None for child, _ in node.next_functions)
    if given:
        return f"data/{f'{last[1]}.{name}'.strip('.')}"
    of_loss = own == every and not direct and _LOSSES.search(name) is not None
    return f"{'loss_' if of_loss else ''}operation/{f'{last[1]}.{name}'.strip('.')}"


class _Graph:
    """The graph below a node, inputs first."""

    def __init__(self, root: Node) -> None:
        self._root, self._left = root, _MAX_ELEMENTS
        self._order = list(_inputs_first(root))

    def first(self) -> tuple[Node, bool]:
        """Return the node that made the first value that is not finite, or True if given one."""
        for node in self._order:
            saved = dict(_saved(node))
            for name, position in _OPERANDS.items():
                if name in saved and self._bad(saved[name]):
                    return self._producer(node, position)
            if any(name in saved and self._bad(saved[name]) for name in _RESULTS):
                return self._producer(node, 0) if _operation(node) in _PASSING else (node, False)
        return self._above(self._root), False

    def _producer(self, node: Node, position: int) -> tuple[Node, bool]:
        children = [child for child, _ in node.next_functions]
        if position >= len(children):
            return node, False
        made = children[position]
        if made is None or _leaf(made) is not None:
            return node, made is None  # a parameter has a row of its own
        return self._above(made), False

    def _above(self, node: Node) -> Node:
        """Look for a pole in ``node`` or above it, as far as autograd kept nothing."""
        stack, seen = [node], set[Node]()
        while stack and len(seen) < _MAX_NODES:
            one = stack.pop()
            if one is None or one in seen:
                continue
            seen.add(one)
            saved = dict(_saved(one))
            if _at_pole(one, saved):
                return one
            if not any(name in saved for name in _RESULTS):
                finite = {_OPERANDS[name] for name in saved if name in _OPERANDS}
                children = enumerate(one.next_functions)
                stack.extend(child for i, (child, _) in children if i not in finite)
        return node

    def _bad(self, tensor: torch.Tensor) -> bool:
        self._left -= tensor.numel()
        return self._left >= 0 and not bool(tensor.isfinite().all())

    @staticmethod
    def parameters(node: Node, places: Mapping[int, tuple[int, str]]) -> set[tuple[int, str]]:
        """Return the places of the parameters that a node depends on."""
        found = set()
        for one in _inputs_first(node):
            leaf = _leaf(one)
            if leaf is not None and id(leaf) in places:
                found.add(places[id(leaf)])
        return found


def _inputs_first(root: Node) -> Iterator[Node]:
    """Yield the nodes below ``root``, each after all that it depends on."""
    seen, stack = {root}, [(root, iter(root.next_functions))]
    while stack:
        node, children = stack[-1]
        for child, _ in children:
            if child is not None and child not in seen and len(seen) < _MAX_NODES:
                seen.add(child)
                stack.append((child, iter(child.next_functions)))
                break
        else:
            stack.pop()
            yield node


def _saved(node: Node) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield what autograd kept of an operation, unless taking it out computes something."""
    for name in (*_OPERANDS, *_RESULTS):
        raw = getattr(node, f"_raw{name}", None)
        if raw is None or getattr(raw, "unpack_hook", raw) is not None:
            continue
        try:
            tensor = getattr(node, name)
        except RuntimeError:  # freed by an earlier backward(), or changed in place since
            continue
        if (
            isinstance(tensor, torch.Tensor)
            and tensor.is_floating_point()
            and tensor.layout is torch.strided
        ):
            yield name, tensor.detach()


def _at_pole(node: Node, saved: Mapping[str, torch.Tensor]) -> bool:
    """Say if an operation was given what it has no finite value for."""
    name = _operation(node)
    if name == "pow":
        exponent = getattr(node, "_saved_exponent", None)
        x = saved.get("_saved_self")
        if x is None or not isinstance(exponent, int | float):
            return False
        broken = (exponent != int(exponent)) & bool((x < 0).any())
        return broken or (exponent < 0 and bool((x == 0).any()))
    operand, at_pole = _POLES.get(name, ("", None))
    return at_pole is not None and operand in saved and bool(at_pole(saved[operand]).any())


def _leaf(node: Node) -> torch.Tensor | None:
    found = getattr(node, "variable", None)
    return found if isinstance(found, torch.Tensor) else None


def _operation(node: Node) -> str:
    """Return ``log_softmax`` for ``LogSoftmaxBackward0``."""
    name = re.sub(r"Backward\d*$", "", node.name().rpartition("::")[2])
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    return _NAMES.get(snake, snake)


# ---- the order at a saved step ------------------------------------------------------------


def order_facts(
    draft: Draft, tensors: tuple[TensorInfo, ...], operation: str, *, loss: float | None
) -> dict[str, float]:
    """Rank what is not finite at a saved step: ``order@NAME`` → rank from 0.

    Weights come first, since they are as they were before the step; then inputs, activations and
    outputs as they were computed, the loss, and gradients from the last layer backwards.

    Args:
        draft: The step, with all its tables.
        tensors: The layout.
        operation: The first operation as ``first_operation`` returns it; empty if unknown.
        loss: The loss of the step; None if it is not known.
    """
    stages: dict[int, list[tuple[float, str]]] = {stage: [] for stage in range(6)}
    position = 0
    for rows, table in draft.tables:
        bad = np.flatnonzero(table[:, _COUNTS].sum(axis=1) > 0)
        for row in rows[bad].tolist():
            position += 1
            if 0 <= row < len(tensors):
                stage, key = _stage(tensors[row], row, position)
                stages[stage].append((key, tensors[row].name))
    if operation:
        stages[2].append((0.0, operation))
    if loss is not None and not np.isfinite(loss):
        stages[4].append((0.0, "loss"))
    ordered = [name for stage in sorted(stages) for _, name in sorted(stages[stage])]
    return {f"order@{name}": float(rank) for rank, name in enumerate(ordered[:MAX_ORDER])}


def _stage(tensor: TensorInfo, row: int, position: int) -> tuple[int, float]:
    """Return the stage of a tensor and its rank in it."""
    collection = str(tensor.collection)
    if collection in {Collection.WEIGHTS.value, Collection.BIASES.value, "buffers"}:
        return 0, float(tensor.depth)
    if collection in {Collection.INPUTS.value, Collection.LABELS.value}:
        return 1, float(position)
    if collection == Collection.GRADIENTS.value:
        return 5, float(-tensor.depth if tensor.depth >= 0 else 1e6 - row)
    return 3, float(position)


def any_nonfinite(draft: Draft) -> bool:
    """Say if a tensor of many rows (weights, gradients) holds NaN or infinity."""
    return any(bool((table[:, _COUNTS] > 0).any()) for rows, table in draft.tables if len(rows) > 1)
