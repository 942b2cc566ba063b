"""In which mode batch norms and dropouts are during the training forward pass."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from trainwarden.hook.draft import Draft
from trainwarden.hook.torch.modules import Modules
from trainwarden.model import Collection


@dataclass(frozen=True)
class _Found:
    """What acts otherwise in training than in evaluation, below one root."""

    norms: list[nn.Module]
    dropouts: list[nn.Module]


class Modes:
    """Looks at the mode of each batch norm and dropout in the forward pass of its root.

    Args:
        modules: The watched modules.
    """

    def __init__(self, modules: Modules) -> None:
        self._modules = modules
        self._walks = -1
        self._found: dict[str, _Found] = {}
        self._facts: dict[str, dict[str, float]] = {}  # root → what was seen

    def look(self, prefix: str) -> None:
        """Look at one root, the first time since the last ``add``."""
        if prefix in self._facts:
            return
        modules = self._modules.below(prefix)
        if self._walks != self._modules.walks:
            self._walks, self._found = self._modules.walks, {}
        if prefix not in self._found:
            self._found[prefix] = _Found(
                [module for _, module in modules if isinstance(module, _BatchNorm)],
                [module for _, module in modules if probability(module) >= 0],
            )
        self._facts[prefix] = _facts(self._found[prefix])

    def add(self, draft: Draft) -> None:
        """Add what was seen; roots that were not called are looked at now."""
        for prefix in self._modules.roots:
            self.look(prefix)
        seen, self._facts = list(self._facts.values()), {}
        for name in dict.fromkeys(name for facts in seen for name in facts):
            values = [facts[name] for facts in seen if name in facts]
            value = max(values) if name.endswith("_max") else sum(values)
            draft.scalar(Collection.LOOP, name, float(value))


def _facts(found: _Found) -> dict[str, float]:
    norms = [norm for norm in found.norms if getattr(norm, "running_mean", None) is not None]
    resting = [norm for norm in norms if not norm.training]
    chances = {module: p for module in found.dropouts if (p := probability(module)) > 0}
    facts: dict[str, float] = {
        "batchnorms": len(norms),
        "batchnorms_in_eval": len(resting),
        "batchnorms_in_eval_trainable": sum(map(_trainable, resting)),
        "dropouts": len(chances),
        "dropouts_in_eval": sum(not module.training for module in chances),
    }
    if chances:
        facts["dropout_max"] = max(chances.values())
    momenta = [float(norm.momentum) for norm in norms if isinstance(norm.momentum, float | int)]
    if momenta:
        facts["batchnorm_momentum_max"] = max(momenta)
    return facts


def probability(module: nn.Module) -> float:
    """Return with which probability a module drops what passes; -1 if it never does."""
    if isinstance(module, _DropoutNd):
        return float(module.p)
    if isinstance(module, nn.MultiheadAttention):
        return float(module.dropout)
    if isinstance(module, nn.RNNBase):
        return float(module.dropout) if module.num_layers > 1 else -1.0
    return -1.0


def _trainable(norm: nn.Module) -> bool:
    return any(parameter.requires_grad for parameter in norm.parameters(recurse=False))
