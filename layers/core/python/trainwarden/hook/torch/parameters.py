"""Weights, biases and gradients: what they are called, where their rows are, and their copies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import nn
from torch.nn.parameter import is_lazy

from trainwarden.hook.arrays import outputs_first, outputs_last
from trainwarden.hook.draft import Draft
from trainwarden.hook.session import Session
from trainwarden.hook.torch.modules import Modules, kind_of
from trainwarden.hook.torch.shards import Shares
from trainwarden.hook.torch.views import View, dtype_name, view
from trainwarden.model import Collection, FloatArray, TensorInfo
from trainwarden.stats.catalog import COLUMNS, Flag
from trainwarden.stats.dtypes import Array
from trainwarden.stats.merging import add_flags
from trainwarden.stats.reductions import Tensor

_POWER = np.array([{"x": 1.0, "x²": 2.0}.get(spec.unit, 0.0) for spec in COLUMNS])


@dataclass(frozen=True)
class Scaling:
    """What GradScaler did: gradients are still to be divided by ``scale``; flags of their rows."""

    scale: float = 1.0
    flags: int = 0

    def undo(self, table: FloatArray) -> None:
        """Change statistics of gradients (R, 32) to those without the loss scale."""
        if self.scale != 1.0:
            with np.errstate(all="ignore"):
                # The bits of the fingerprint must not pass through arithmetic.
                columns = np.flatnonzero(_POWER)
                table[:, columns] /= self.scale ** _POWER[columns]
        if self.flags:
            add_flags(table, self.flags)


UNSCALED = Scaling()


@dataclass
class _Parameter:
    """One parameter and its rows in the layout; -1 for what is not captured."""

    tensor: nn.Parameter
    info: TensorInfo
    weight_row: int = -1
    gradient_row: int = -1
    per_unit: bool = False
    part: bool = False  # other processes have the rest
    told: bool = True  # by this process
    turned: bool = False  # its outputs come last, as Keras has them
    previous: Array | None = None  # of type ``dtype``
    dtype: str = ""

    def view(self, tensor: torch.Tensor) -> View | None:
        """Look at its elements or its gradient's: outputs first."""
        found = view(tensor)
        if found is None or not self.turned:
            return found
        return View(outputs_first(found.array), found.dtype)


class Parameters:
    """The parameters of the watched modules, as rows of the session's layout.

    Args:
        session: Whose layout gets the rows.
        modules: The watched modules.
        copy_bytes: Weights up to this size in all are copied to measure updates.
    """

    def __init__(self, session: Session, modules: Modules, *, copy_bytes: int = 2**31) -> None:
        self._session, self._modules, self._copy_bytes = session, modules, copy_bytes
        self._parameters: dict[int, _Parameter] = {}
        self._first = not session.place.worker
        self._shares = Shares(first=self._first)
        self._updates = session.options.updates

    def scan(self, depths: Mapping[int, int]) -> None:
        """Find the parameters, also those that were added or replaced since.

        Args:
            depths: id of module → position in forward order, as far as known.
        """
        known, self._parameters = self._parameters, {}
        found_modules = self._modules.walk()
        self._shares = Shares((module for _, module in found_modules), first=self._first)
        for path, module in found_modules:
            for name, tensor in module._parameters.items():  # noqa: SLF001 - ours would recurse
                if tensor is None or id(tensor) in self._parameters or _unborn(tensor):
                    continue
                found = known.get(id(tensor))
                if found is None or found.tensor is not tensor:
                    found = self._found(f"{path}.{name}".strip("."), path, module, tensor, depths)
                self._parameters[id(tensor)] = found
        self._check_size()

    @property
    def ids(self) -> frozenset[int]:
        """Identities of all parameters found."""
        return frozenset(self._parameters)

    def has(self, tensor: torch.Tensor) -> bool:
        """Say if a tensor is one of the parameters."""
        if not self._parameters:  # before the first look, which needs the forward order
            roots = self._modules.roots.values()
            return any(tensor is one for root in roots for one in root.parameters())
        found = self._parameters.get(id(tensor))
        return found is not None and found.tensor is tensor

    def places(self) -> dict[int, tuple[int, str]]:
        """Return id of parameter → position in forward order, path of its module."""
        known = sorted(self._parameters.values(), key=lambda one: one.info.depth)
        return {id(one.tensor): (i, one.info.module) for i, one in enumerate(known)}

    def _found(
        self,
        name: str,
        path: str,
        module: nn.Module,
        tensor: nn.Parameter,
        depths: Mapping[int, int],
    ) -> _Parameter:
        last = name.rpartition(".")[2]
        is_bias = last.startswith("bias") or last.endswith("bias")
        collection = (Collection.BIASES if is_bias else Collection.WEIGHTS).value
        share = self._shares.of(tensor)
        shape = share.shape
        turned = bool(getattr(module, "outputs_last", False)) and outputs_last(name, tensor.ndim)
        if turned:
            shape = (*shape[:-3:-1], *shape[:-2])
        info = TensorInfo(
            name=name,
            collection=collection,
            shape=shape,
            dtype=dtype_name(tensor.dtype),
            module=path,
            kind=kind_of(module),
            depth=depths.get(id(module), -1),
            trainable=tensor.requires_grad,
        )
        whole_units = not is_bias and len(share.shape) > 1 and share.units
        found = _Parameter(
            tensor,
            info,
            per_unit=whole_units,
            part=share.part,
            told=share.told,
            turned=turned,
        )
        if share.told and self._session.options.wants(collection, name):
            found.weight_row = self._session.row(info)
        return found

    def _add_gradient(self, parameter: _Parameter) -> None:
        name = f"gradient/{parameter.info.name}"
        if parameter.told and self._session.options.wants(Collection.GRADIENTS.value, name):
            info = replace(
                parameter.info, name=name, collection=Collection.GRADIENTS.value, trainable=True
            )
            parameter.gradient_row = self._session.row(info)

    def _check_size(self) -> None:
        size = sum(_bytes_here(p.tensor) for p in self._parameters.values())
        if self._updates and size > self._copy_bytes:
            self._updates = False
            self._session.say(
                f"updates are not measured: that needs a copy of {size / 2**30:.1f} GiB of weights"
            )

    @property
    def tensors(self) -> list[nn.Parameter]:
        """All parameters found, shared ones once."""
        return [parameter.tensor for parameter in self._parameters.values()]

    def capture(
        self,
        draft: Draft,
        owned: frozenset[int] | None,
        scaling: Scaling,
        *,
        weights: bool = True,
    ) -> None:
        """Have weights and gradients measured just before the optimizer's step.

        Args:
            draft: Gets the rows.
            owned: ids of the tensors to look at; None for all.
            scaling: What GradScaler did to the gradients.
            weights: False if the weights of this step were measured already.
        """
        chosen = [p for p in self._parameters.values() if owned is None or id(p.tensor) in owned]
        for parameter in chosen:
            if parameter.gradient_row < 0 and parameter.tensor.requires_grad:  # new, or thawed
                self._add_gradient(parameter)
        if weights:
            self._weights(draft, [p for p in chosen if p.weight_row >= 0])
        self._gradients(draft, [p for p in chosen if p.gradient_row >= 0], scaling)

    def _weights(self, draft: Draft, chosen: list[_Parameter]) -> None:
        measured, tensors, rows = [], [], []
        for parameter in chosen:
            found = parameter.view(parameter.tensor)
            if found is None or (parameter.part and not found.array.size):
                continue
            array, previous = found.array, parameter.previous
            if previous is not None and not _alike(parameter, found):
                previous = parameter.previous = None  # bits of different types are no change
            parameter.dtype = found.dtype
            if draft.rests(parameter.weight_row):
                self._copy(parameter, array)
                continue
            tensors.append(Tensor(array, found.dtype, previous, None, parameter.per_unit))
            parameter.per_unit = False  # once is enough: rows of a matrix are told apart at first
            rows.append(parameter.weight_row)
            measured.append(parameter)
        draft.measure(rows, tensors, partial(self._measured, measured, tensors))

    def _measured(
        self, measured: list[_Parameter], tensors: list[Tensor], table: FloatArray
    ) -> None:
        """Copy the weights for the next saved step."""
        _flag_parts(measured, table)
        if not self._updates:
            return
        for parameter, tensor in zip(measured, tensors, strict=True):
            self._copy(parameter, tensor.x)

    def _copy(self, parameter: _Parameter, array: Array) -> None:
        """Keep weights for the next saved step, whether they are among what is saved now or not."""
        if not self._updates:
            return
        if parameter.previous is None:
            parameter.previous = array.copy(order="K")
        else:
            np.copyto(parameter.previous, array)

    def _gradients(self, draft: Draft, chosen: list[_Parameter], scaling: Scaling) -> None:
        measured, tensors, rows = [], [], []
        for parameter in chosen:
            gradient = None if draft.rests(parameter.gradient_row) else parameter.tensor.grad
            found = None if gradient is None else parameter.view(gradient)
            if found is not None and (found.array.size or not parameter.part):
                tensors.append(Tensor(found.array, found.dtype))
                rows.append(parameter.gradient_row)
                measured.append(parameter)

        def finish(table: FloatArray) -> None:
            scaling.undo(table)
            _flag_parts(measured, table)

        draft.measure(rows, tensors, finish)


def _flag_parts(measured: list[_Parameter], table: FloatArray) -> None:
    """Flag the rows of parts, which are nothing without the others."""
    flags = [Flag.PART if parameter.part else 0 for parameter in measured]
    if any(flags):
        add_flags(table, np.array(flags))


def _bytes_here(tensor: torch.Tensor) -> int:
    to_local = getattr(tensor, "to_local", None)  # of a DTensor
    here: torch.Tensor = tensor if to_local is None else to_local()
    return here.numel() * here.element_size()


def _alike(parameter: _Parameter, found: View) -> bool:
    previous = parameter.previous
    return (
        previous is not None
        and parameter.dtype == found.dtype
        and previous.shape == found.array.shape
    )


def _unborn(tensor: torch.Tensor) -> bool:
    """Say whether a parameter has no values yet: lazy, or on the meta device."""
    lazy: bool = is_lazy(tensor)
    return lazy or tensor.is_meta
