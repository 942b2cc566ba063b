"""The watched modules and their names."""

from __future__ import annotations

import re
from collections.abc import Mapping

from torch import nn

# Names that wrappers (DDP, compile, FSDP, activation checkpointing) put around the user's own.
_WRAPPERS = re.compile(r"(^|\.)(_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)(?=\.|$)")
Roots = Mapping[str, nn.Module]
Named = list[tuple[str, nn.Module]]


def kind_of(module: nn.Module) -> str:
    """Return the name of a module's class; of one that ``fully_shard`` made, that of the user's."""
    made, *inherited = type(module).__mro__
    if inherited[0].__name__ == "FSDPModule":
        return inherited[1].__name__
    return made.__name__


class Modules:
    """The modules below the roots, shared ones once, by dotted names as the user knows them.

    Walking them is slow beside looking at a few tensors, so the last walk is kept.

    Args:
        roots: Watched modules by prefix; the prefix may be empty if there is one root.
    """

    def __init__(self, roots: Roots) -> None:
        self.roots = roots
        self.walks = 0
        self._known: dict[str, Named] = {}

    def walk(self) -> Named:
        """Find the modules anew and return them."""
        self.walks += 1
        self._known = {}
        seen = set[int]()
        for prefix, root in self.roots.items():
            found = self._known[prefix] = []
            for name, module in root.named_modules():
                if id(module) not in seen:
                    seen.add(id(module))
                    path = _WRAPPERS.sub("", name).removeprefix(".").removeprefix("module.")
                    found.append((f"{prefix}.{path}".strip("."), module))
        return [one for found in self._known.values() for one in found]

    def below(self, prefix: str) -> Named:
        """Return the modules of one root, the root itself included."""
        if prefix not in self._known:
            self.walk()
        return self._known[prefix]

    def name_of(self, given: object) -> tuple[str, bool] | None:
        """Return the path of a module or the name of a parameter; True for modules."""
        for path, module in [one for prefix in self.roots for one in self.below(prefix)]:
            if module is given:
                return path, True
            for name, tensor in module._parameters.items():  # noqa: SLF001 - ours would recurse
                if tensor is not None and tensor is given:
                    return f"{path}.{name}".strip("."), False
        return None

    @property
    def training(self) -> bool:
        """True if any root is in training mode."""
        for root in self.roots.values():  # noqa: SIM110 - asked at every step: twice as fast
            if root.training:
                return True
        return False
