"""What of a parameter this process holds, where several share a model.

``fully_shard`` and tensor parallelism make DTensors, which know; ``FullyShardedDataParallel`` cuts
pieces out of a flat parameter, of which its module knows. Nothing here communicates.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import nn

from trainwarden.hook.torch.modules import Roots


class Share(NamedTuple):
    """What this process holds of a parameter.

    Attributes:
        shape: Of the whole parameter.
        part: It is a part; other processes have the others.
        told: It is for this process to tell: of equal copies, one process does.
        units: What is here are whole output units.
    """

    shape: tuple[int, ...]
    part: bool = False
    told: bool = True
    units: bool = True


class Shares:
    """Knows the parts that the modules of ``FullyShardedDataParallel`` hold.

    Args:
        modules: Those there are.
        first: This is the first process, which tells what all have.
    """

    def __init__(self, modules: Iterable[nn.Module] = (), *, first: bool = True) -> None:
        self._first = first
        self._flat: dict[int, Share] = {}
        for module in modules:
            handle = getattr(module, "_handle", None)
            flat = getattr(handle, "flat_param", None)
            if flat is not None and getattr(handle, "uses_sharded_strategy", False):
                self._add(module, flat)

    def _add(self, module: Any, flat: Any) -> None:
        copies = getattr(module, "_inter_node_pg", None)  # of hybrid sharding
        told = copies is None or copies.rank() == 0
        processes = module.process_group.size()
        self._flat[id(flat)] = Share((flat.numel() * processes,), processes > 1, told, units=False)
        shapes: Any = getattr(flat, "_shapes", ())
        originals: Any = getattr(flat, "_params", None) or ()  # with use_orig_params
        for parameter, shape in zip(originals, shapes, strict=False):
            self._flat[id(parameter)] = Share(tuple(shape), processes > 1, told, units=False)

    def of(self, parameter: torch.Tensor) -> Share:
        """Return what this process holds of a parameter."""
        placements: Any = getattr(parameter, "placements", None)
        if placements is None:
            found = self._flat.get(id(parameter))
            return found or Share(tuple(parameter.shape), told=self._first)
        mesh: Any = getattr(parameter, "device_mesh")  # noqa: B009 - only DTensors have it
        here = mesh.get_coordinate()
        cut = [hasattr(placement, "dim") for placement in placements]
        pending = any(placement.is_partial() for placement in placements)
        copy = here is None or any(at for at, is_cut in zip(here, cut, strict=True) if not is_cut)
        return Share(
            tuple(parameter.shape),
            part=any(size > 1 for size, is_cut in zip(mesh.shape, cut, strict=True) if is_cut),
            told=not (copy or pending),
            units=all(getattr(placement, "dim", 0) == 0 for placement in placements),
        )


def is_sharded(roots: Roots) -> bool:
    """Say whether this process holds a part of any parameter."""
    modules = [module for root in roots.values() for module in root.modules()]
    shares = Shares(modules)
    return any(shares.of(one).part for root in roots.values() for one in root.parameters())
