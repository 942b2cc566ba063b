"""What is known of a step besides tensors and losses: members, modes, settings."""

from __future__ import annotations

from torch.optim import Optimizer

from trainwarden.hook.draft import Draft
from trainwarden.hook.session import Session
from trainwarden.hook.torch.buffers import Buffers
from trainwarden.hook.torch.losses import LossReader
from trainwarden.hook.torch.membership import SETTLED, Members
from trainwarden.hook.torch.modes import Modes
from trainwarden.hook.torch.modules import Modules
from trainwarden.hook.torch.optimizers import Optimizers
from trainwarden.hook.torch.parameters import Parameters
from trainwarden.hook.torch.settings import add_settings
from trainwarden.model import Collection


class Facts:
    """Adds facts of the collections loop, optimizer and buffers to saved steps.

    Args:
        session: Says what is captured.
        modules: The watched modules.
        optimizers: Those known.
        parameters: Of the modules.
        losses: Counts validations in training mode.
    """

    def __init__(
        self,
        session: Session,
        modules: Modules,
        optimizers: Optimizers,
        parameters: Parameters,
        losses: LossReader,
    ) -> None:
        self._session, self._modules, self._optimizers = session, modules, optimizers
        self._parameters, self._losses = parameters, losses
        self._modes, self._buffers = Modes(modules), Buffers(session, modules)

    def forward(self, prefix: str) -> None:
        """A forward pass of a root in a saved training step is over."""
        if self._wants(Collection.LOOP):
            self._modes.look(prefix)

    def add(self, draft: Draft, optimizer: Optimizer | None = None) -> None:
        """Add what is known when an optimizer is about to step.

        Args:
            draft: Gets the facts.
            optimizer: None if none steps, though a pass is over.
        """
        known = self._optimizers.known
        if self._wants(Collection.OPTIMIZER):
            for one in known if optimizer is None else [optimizer]:
                add_settings(draft, one, self._optimizers.position(one))
            draft.scalar(Collection.OPTIMIZER, "train_mode", float(self._modules.training))
        self._buffers.add(draft)
        if not self._wants(Collection.LOOP):
            return
        if "batchnorms" not in draft.scalars.get(Collection.LOOP.value, {}):
            self._modes.add(draft)
        settled = draft.step >= self._session.options.schedule.start + SETTLED
        members = Members(self._parameters.tensors, known)
        members.add(draft, settled=settled)
        checks, self._losses.finder.checks = self._losses.finder.checks, 0
        name = "validation_in_training_mode"
        before = draft.scalars.get(Collection.LOOP.value, {}).get(name, 0.0)
        draft.scalar(Collection.LOOP, name, before + checks)
        if optimizer is not None:
            members.add_gradientless(draft, optimizer)

    def _wants(self, collection: Collection) -> bool:
        return collection in self._session.options.collections
