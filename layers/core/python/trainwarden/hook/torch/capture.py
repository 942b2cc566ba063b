"""What is measured of a step when its gradients are complete: weights, gradients, facts."""

from __future__ import annotations

from torch.optim import Optimizer

from trainwarden.hook.draft import Draft
from trainwarden.hook.torch.activations import Activations
from trainwarden.hook.torch.facts import Facts
from trainwarden.hook.torch.finder import LossFinder
from trainwarden.hook.torch.modules import Modules
from trainwarden.hook.torch.optimizers import Optimizers, owned_by
from trainwarden.hook.torch.parameters import UNSCALED, Parameters, Scaling

EAGER_WALKS = 4  # looks at the whole model without a reason, each at a saved step
WALK_EVERY = 10  # saved steps, after that


class Capture:
    """Looks at the model once for each optimizer that is about to step.

    Args:
        modules: The watched modules.
        optimizers: Those known.
        parameters: Of the modules.
        activations: Know the forward order; their hooks are taken out.
        finder: Ceases to look at loss functions.
        facts: Of members, modes and settings.
    """

    def __init__(
        self,
        modules: Modules,
        optimizers: Optimizers,
        parameters: Parameters,
        activations: Activations,
        finder: LossFinder,
        facts: Facts,
    ) -> None:
        self._modules, self._optimizers, self._parameters = modules, optimizers, parameters
        self._activations, self._finder, self._facts = activations, finder, facts
        self._saves = 0
        self._owned = -1  # parameters of the optimizers at the last look

    def add(
        self,
        draft: Draft,
        optimizer: Optimizer | None = None,
        scaling: Scaling = UNSCALED,
        *,
        weights: bool = True,
    ) -> None:
        """Add all that is known before an optimizer steps.

        Args:
            draft: Of the step.
            optimizer: None if none steps, though a pass is over.
            scaling: What GradScaler did to the gradients.
            weights: False if the weights of this step were measured already.
        """
        self._activations.detach()
        self._finder.watch_functions(on=False)
        self._look_around()
        share = None if optimizer is None else self._share(optimizer)
        self._parameters.capture(draft, share, scaling, weights=weights)
        self._facts.add(draft, optimizer)
        draft.settle()

    def _look_around(self) -> None:
        """Find parameters that are new: at first, when optimizers got some, and now and then."""
        owned = self._optimizers.learn()
        walks, self._saves = self._modules.walks, self._saves + 1
        if owned != self._owned or walks < EAGER_WALKS or self._saves % WALK_EVERY == 0:
            self._owned = owned
            self._parameters.scan(self._activations.order.depths)

    def _share(self, optimizer: Optimizer) -> frozenset[int] | None:
        """Identities of the parameters to look at when this optimizer steps; None for all."""
        first, *rest = self._optimizers.known
        if not rest:
            return None
        if optimizer is not first:
            return owned_by(optimizer)
        others = frozenset[int]().union(*(owned_by(other) for other in rest))
        return self._parameters.ids - others | owned_by(optimizer)
