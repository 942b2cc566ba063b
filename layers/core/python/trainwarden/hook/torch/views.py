"""Torch tensors as numpy views, without a copy wherever torch allows it."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn.parameter import is_lazy

from trainwarden.stats.dtypes import KINDS, Array

_DENSE_LIMIT = 16 * 1024 * 1024  # elements up to which a sparse tensor is made dense
# numpy has no name for these: their bits are passed, and the name of the type beside them.
_DIRECT = frozenset({"float32", "float64", "int64", "int32", "bool"})  # the most common ones
_PLAIN = frozenset({torch.Tensor, nn.Parameter})
_BITS = {"bfloat16": (torch.int16, np.uint16), "float8": (torch.uint8, np.uint8)}


class View(NamedTuple):
    """A tensor's elements; ``array`` shares memory and strides with the tensor if it can.

    ``dtype`` is the name in ``TensorInfo``; arrays of types unknown to numpy hold their bits.
    """

    array: Array
    dtype: str


@cache
def dtype_name(dtype: torch.dtype) -> str:
    """Return ``float32`` for ``torch.float32``."""
    return str(dtype).removeprefix("torch.")


def view(tensor: torch.Tensor) -> View | None:
    """Return a tensor's elements; None if there are none to look at (meta, quantized, lazy, …)."""
    if type(tensor) in _PLAIN and tensor.is_cpu and dtype_name(tensor.dtype) in _DIRECT:
        try:
            return View(tensor.detach().numpy(), dtype_name(tensor.dtype))
        except (RuntimeError, TypeError):
            pass  # sparse, negated, of a function transform: with care
    if tensor.is_meta or dtype_name(tensor.dtype) not in KINDS or is_lazy(tensor):
        return None
    try:
        return _view(tensor.detach())
    except (RuntimeError, TypeError, NotImplementedError):
        return None  # a subclass that hides its elements


def _view(found: torch.Tensor) -> View:
    if hasattr(found, "to_local"):  # DTensor: this rank's shard
        found = found.to_local()
    if found.layout is not torch.strided:
        found = _strided(found)
    if found.device.type != "cpu":
        found = found.to("cpu")
    found = found.resolve_conj().resolve_neg()
    name = dtype_name(found.dtype)
    bits = _BITS.get(name[:8] if name == "bfloat16" else name[:6])
    if bits is None:
        return View(found.numpy(), name)
    return View(found.view(bits[0]).numpy().view(bits[1]), name)


def _strided(tensor: torch.Tensor) -> torch.Tensor:
    """Return the elements of a sparse or nested tensor; of huge ones, only those stored."""
    if tensor.layout is torch.sparse_coo and tensor.numel() > _DENSE_LIMIT:
        return tensor.coalesce().values()
    if tensor.is_nested:
        return tensor.values()
    return tensor.to_dense()


def tensors_in(value: Any, depth: int = 3) -> list[torch.Tensor]:
    """Return the tensors in nested tuples, lists and dicts, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, tuple | list):
        return []
    return [one for item in value for one in tensors_in(item, depth - 1)] if depth else []
