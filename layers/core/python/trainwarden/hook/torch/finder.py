"""Finds losses at work: watches ``backward()`` and the loss functions of ``torch.nn.functional``.

Torch's loss modules go through those functions too.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch.nn import functional

from trainwarden.hook.session import Session
from trainwarden.hook.torch.callbacks import Patch
from trainwarden.hook.torch.objective import parameters
from trainwarden.hook.torch.ownership import Ownership
from trainwarden.hook.torch.tally import Tally, batch_size
from trainwarden.hook.torch.views import tensors_in
from trainwarden.model import Collection

FUNCTIONS = (
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cosine_embedding_loss",
    "cross_entropy",
    "ctc_loss",
    "gaussian_nll_loss",
    "hinge_embedding_loss",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "margin_ranking_loss",
    "mse_loss",
    "multi_margin_loss",
    "multilabel_margin_loss",
    "multilabel_soft_margin_loss",
    "nll_loss",
    "poisson_nll_loss",
    "smooth_l1_loss",
    "soft_margin_loss",
    "triplet_margin_loss",
)
WEIGHTS = ("weight", "pos_weight")  # arguments that weight classes
_MAX_SCALED = 8  # losses scaled, but not yet called ``backward()`` on


class _Inside(threading.local):
    """True in a thread that is in a loss function: those call each other."""

    now = False


class LossFinder:
    """Watches torch itself for losses.

    Args:
        session: Guards what is ours around the calls of others.
        tally: Returns where losses go at the moment, None for nowhere.
        label: Told each loss function's target.
        owner: Tells our losses from those of other models.
        saw: Told every loss of a training step, also of those that are not saved.
    """

    def __init__(
        self,
        session: Session,
        tally: Callable[[], Tally | None],
        label: Callable[[Tally, Any], object],
        owner: Ownership,
        saw: Callable[[torch.Tensor], object],
    ) -> None:
        self._session, self._tally, self._label = session, tally, label
        self._owner, self._inside, self._saw = owner, _Inside(), saw
        self.scaling = False  # a GradScaler is at work: infinite gradients are normal
        self.searching = True  # what ``backward()`` is called on may be the loss of the run
        self._closely, self._foreign = True, False  # look whose a loss is; others were seen
        self._scaled: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._last: tuple[weakref.ref[torch.Tensor], int] | None = None  # a loss and its version
        self._backward = Patch(torch.autograd, "backward", self._around_backward)
        self._counting = self.watching = False
        self._looks = bool(session.options.collections & {Collection.OBJECTIVE, Collection.LABELS})
        self.checking, self.checks = False, 0  # in a validation in training mode; how many
        self._functions = [
            Patch(functional, name, partial(self._around_function, name, parameters(name)))
            for name in FUNCTIONS
            if hasattr(functional, name)
        ]

    def start(self) -> None:
        """Put all patches in place; those that others have replaced meanwhile, again.

        They stay between saved steps: ``cross_entropy(model(x), y)`` takes hold of the function
        before the forward pass begins.
        """
        for patch in (self._backward, *self._functions):
            patch.install()

    def stop(self) -> None:
        """Take every patch out."""
        for patch in (self._backward, *self._functions):
            patch.remove()

    def follow(self, *, closely: bool) -> None:
        """A step begins.

        Args:
            closely: The step is saved: find out whose each loss is. Until one was not ours, those
                of other steps are taken for ours.
        """
        self._closely = closely
        if closely:
            self.start()
        if self._scaled:
            self._scaled.clear()

    def owns(self, loss: torch.Tensor, inputs: Any = ()) -> bool:
        """Say if a loss that is trained on is ours; quickly if the step is not saved."""
        if not (self._closely or self._foreign):
            return True
        ours = self._owner.owns(loss, inputs)
        self._foreign |= not ours
        return ours

    def watch_functions(self, *, on: bool, counting: bool = False) -> None:
        """Look at calls of loss functions or cease to.

        Args:
            on: Look at what they are given.
            counting: What they return is the loss of the run, unless something better is found.
        """
        self.watching, self._counting = on, on and counting

    def check(self, target: Any) -> None:
        """A loss was computed; without gradients, of a model in training mode, it is counted."""
        if self.checking and target is not None and not torch.is_grad_enabled():
            self.checking, self.checks = False, self.checks + 1

    def scaled(self, loss: Any, result: Any) -> None:
        """Remember which loss GradScaler scaled, so that the true one is kept."""
        self.scaling = True
        if isinstance(loss, torch.Tensor):
            self._scaled.append((result, loss))
            del self._scaled[:-_MAX_SCALED]

    def _around_backward(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._session.guarded(self._started_backward, args[0] if args else kwargs.get("tensors"))
        return original(*args, **kwargs)

    def saw(self, loss: torch.Tensor) -> None:
        """Look no more at a loss that the loss module returned, unless it is changed."""
        self._last = weakref.ref(loss), loss._version  # noqa: SLF001 - torch has no other way to ask

    def _started_backward(self, roots: Any) -> None:
        if self._last is not None and not self.searching:
            (last, version), self._last = self._last, None
            seen = last()
            if seen is not None and seen is roots and seen._version == version:  # noqa: SLF001 - as above
                return
        ours = [
            next((loss for scaled, loss in self._scaled if scaled is root), root)
            for root in ([roots] if isinstance(roots, torch.Tensor) else tensors_in(roots, 1))
            if self.owns(root)
        ]
        if self._scaled and ours:
            self._scaled.clear()
        for loss in ours:
            if loss.numel() == 1:
                self._saw(loss)
        tally = self._tally() if ours and self.searching else None
        if tally is not None:
            for loss in ours:
                tally.root(loss)

    def _around_function(
        self,
        name: str,
        parameters: Sequence[str],
        original: Callable[..., Any],
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        if not self.watching or self._inside.now:
            return original(*args, **kwargs)
        self._inside.now = True
        try:
            result = original(*args, **kwargs)
        finally:
            self._inside.now = False
        given = dict(zip(parameters, args, strict=False)) | kwargs
        arguments = {key: given[key] for key in parameters if key in given}
        self._session.guarded(self._computed, name, arguments, result)
        return result

    def _computed(self, name: str, arguments: Mapping[str, Any], result: Any) -> None:
        values = list(arguments.values())
        inputs = values[:1]
        if not self._owner.owns(result, inputs):
            return
        self.check(arguments.get("target"))
        tally = self._tally()
        if tally is None:
            return
        if self._looks:
            tally.objectives.look(name, arguments)
        if not self._counting:
            return
        if any(isinstance(arguments.get(key), torch.Tensor) for key in WEIGHTS):
            tally.weighted = True
        tally.add(name, result, batch_size(inputs))
        tally.result(name, result)
        self._label(tally, arguments.get("target"))
