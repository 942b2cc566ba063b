"""Forward passes of the watched roots: inputs before, outputs after, activations meanwhile.

Of each root the first pass of a saved step is looked at; losses and labels of all.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from trainwarden.errors import BadInputError
from trainwarden.hook.draft import Draft
from trainwarden.hook.session import Session
from trainwarden.hook.torch.activations import Activations
from trainwarden.hook.torch.callbacks import Callback
from trainwarden.hook.torch.features import MAX_BATCHES, Batches
from trainwarden.hook.torch.losses import LOSS, LossReader, loss_in
from trainwarden.hook.torch.phase import Phase
from trainwarden.hook.torch.tally import batch_size
from trainwarden.hook.torch.views import tensors_in
from trainwarden.hook.window import Window


class Forward:
    """Looks at forward passes that something is saved of.

    Args:
        session: Guards the hooks.
        phase: Where the loop is, and its drafts.
        activations: Hooked for one pass.
        batches: Look at inputs and outputs.
        losses: Told when a pass begins and ends.
        window: Says in which steps the outputs of all modules are checked.
    """

    def __init__(
        self,
        session: Session,
        phase: Phase,
        activations: Activations,
        batches: Batches,
        losses: LossReader,
        window: Window,
    ) -> None:
        self._session, self._phase, self._drafts = session, phase, phase.drafts
        self._activations, self._batches = activations, batches
        self._losses, self._window = losses, window
        self._seen: set[str] = set()  # roots that this step's draft has a pass of
        self._passing: dict[str, Any] = {}

    def opened(self) -> None:
        """A new step begins."""
        if self._seen:
            self._seen.clear()

    def detach(self) -> None:
        """Take all hooks out."""
        for handle in self._passing.values():
            handle.remove()
        self._passing.clear()
        self._activations.detach()

    def before(
        self, prefix: str, module: nn.Module, args: Any, kwargs: Any, passed: Callable[..., Any]
    ) -> None:
        """A pass begins; ``passed(prefix, module, args, output)`` is called at its end."""
        self._phase.begin(training=module.training)
        finder, gradients = self._losses.finder, torch.is_grad_enabled()
        finder.checking = checking = module.training and not gradients
        if self._phase.evaluating and gradients:
            self._activations.learn(prefix)
        if self._phase.tally() is None:
            finder.watch_functions(on=checking)
            return
        # Models may compute their loss themselves: it is looked at, but not counted.
        finder.watch_functions(on=not self._activations.compiled(prefix))
        draft = self._draft(prefix)
        if draft is not None:
            self._batches.inputs(draft, prefix, tensors_in((args, kwargs)))
            step = self._phase.step
            closely = self._window.wants(step) or self._session.detail.covers(step)
            self._activations.attach(draft, prefix, everything=closely)
        elif self._phase.evaluating and self._drafts.evaluation is not None:
            draft, tally = self._drafts.evaluation
            if tally.batches < MAX_BATCHES:
                given = tensors_in((args, kwargs))
                self._batches.validation(draft, prefix, given, first=not tally.batches)
        if prefix not in self._passing:
            after = Callback(self._session, partial(passed, prefix))
            self._passing[prefix] = after.hang(module.register_forward_hook)

    def after(self, prefix: str, output: Any) -> bool:
        """A pass ends; True if it is the one of this step that is looked at."""
        handle = self._passing.pop(prefix, None)
        if handle is not None:
            handle.remove()
        tally = self._phase.tally()
        if tally is None:
            return False
        tally.batches += 1
        own = self._loss_in(output)
        if own is not None:
            tally.add(LOSS, own, batch_size(tensors_in(output)[1:]))
        counting = own is None and self._losses.searching_functions
        self._losses.finder.watch_functions(on=True, counting=counting)
        draft = self._draft(prefix)
        if draft is None:
            return False
        self._seen.add(prefix)
        self._activations.detach()
        outputs = [tensor for tensor in tensors_in(output) if tensor is not own]
        self._batches.outputs(draft, prefix, outputs)
        return True

    def _draft(self, prefix: str) -> Draft | None:
        """Return the draft of a training step that has no pass of this root yet."""
        return None if self._phase.evaluating or prefix in self._seen else self._drafts.draft

    def _loss_in(self, output: Any) -> torch.Tensor | None:
        try:
            return loss_in(output)
        except Exception as error:  # noqa: BLE001 - a property of the user's may raise anything
            self._session.trouble(
                BadInputError("the model's output to have a loss or none", f"{error!r} from it")
            )
            return None
