"""Losses and labels: from the loss module, or found where the loss is computed.

With ``loss_fn=None`` there are three sources, looked at while a step is saved or evaluation runs:
what ``backward()`` is called on, ``output.loss`` of the model, and the loss functions of
``torch.nn.functional`` (through which torch's loss modules go too).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.hooks import RemovableHandle

from trainwarden.hook.session import Session
from trainwarden.hook.torch.callbacks import Callback, unpatched
from trainwarden.hook.torch.finder import FUNCTIONS, WEIGHTS, LossFinder
from trainwarden.hook.torch.ownership import Ownership
from trainwarden.hook.torch.tally import Tally, batch_size
from trainwarden.hook.torch.weak import weakly
from trainwarden.model import Mode

LOSS = "loss"


class LossReader:
    """Where the losses of a run come from, and what they are called.

    Args:
        session: Guards what is ours.
        tally: Returns where losses go at the moment, None for nowhere.
        label: Told each target.
        loss_fn: As given to ``watch``.
        owner: Tells our losses from those of other models.
        saw: Told every loss of a training step, also of those that are not saved, before
            ``backward()``; it may open the step's draft.

    Attributes:
        adds_up: The loss of a step is what ``backward()`` is called on, added up over its passes:
            the framework divides it itself.
    """

    def __init__(
        self,
        session: Session,
        tally: Callable[[], Tally | None],
        label: Callable[[Tally, Any], None],
        loss_fn: Any,
        owner: Ownership,
        saw: Callable[..., object],
    ) -> None:
        self._session, self._loss_fn, self.owner = session, loss_fn, owner
        # The loss module and torch's functions live on when the watched modules do not.
        self._tally, self._label = weakly(tally), weakly(label)
        self._saw = weakly(saw)
        self.finder = LossFinder(
            session, self._tally, self._label, owner, partial(self._saw, averaged=False)
        )
        self.searching_functions = not isinstance(loss_fn, nn.Module)
        self._trusted = function_name(loss_fn)
        self._trained = False
        self.adds_up = False

    def attach(self) -> list[RemovableHandle]:
        """Hook the loss module, if there is one."""
        if not isinstance(self._loss_fn, nn.Module):
            return []
        return [self._loss_fn.register_forward_hook(Callback(self._session, self._called))]

    def _called(self, module: nn.Module, args: Sequence[Any], output: Any) -> None:
        trained_on = isinstance(output, torch.Tensor) and output.grad_fn is not None
        if not (self.finder.owns if trained_on else self.owner.owns)(output, args[:1]):
            return
        if self.finder.searching:  # no more: the loss module was seen at work
            self.finder.searching = self.searching_functions = False
            self.finder.watch_functions(on=self.finder.watching)
        if trained_on:
            self._saw(output, averaged=True)
            self.finder.saw(output)
        tally = self.add(args, output)
        if tally is not None:
            weights = (getattr(module, key, None) for key in WEIGHTS)
            tally.weighted = any(isinstance(weight, torch.Tensor) for weight in weights)

    def add(self, args: Sequence[Any], output: Any) -> Tally | None:
        """Add the result of a call of the loss function; returns where, None for nowhere."""
        if self.finder.checking:
            self.finder.check(args[1] if len(args) > 1 else None)
        tally = self._tally()
        if tally is not None:
            tally.keep_only(LOSS)
            tally.add(LOSS, output, batch_size(args[:1]))
            if len(args) > 1:
                self._label(tally, args[1])
        return tally

    def resolve(self, tally: Tally, mode: Mode) -> dict[str, float]:
        """Read a tally: name → loss.

        A loss function found at work is called ``loss`` if ``backward()`` was called on just its
        value; else it keeps its own name in both modes, so that only like is compared with like.
        """
        if self.adds_up and mode is Mode.TRAIN and (total := tally.objective()) is not None:
            return {LOSS: total}
        found = {name: mean for name in tally.losses if (mean := tally.mean(name)) is not None}
        if LOSS in found:
            return {LOSS: found[LOSS]}
        objective = tally.objective()
        if mode is Mode.TRAIN and objective is not None:
            self._trained = True
            alone = len(tally.sources) == 1
            self._trusted = tally.sources[0] if alone else None
        trusted = self._trusted
        if trusted is None and not self._trained and len(found) == 1:
            trusted = next(iter(found))
        if trusted in found:
            return {LOSS: found[trusted]}
        return found if objective is None else {LOSS: objective, **found}


def loss_in(output: Any) -> torch.Tensor | None:
    """Return the loss that a model computed itself: ``output.loss`` or ``output["loss"]``."""
    found = output.get(LOSS) if isinstance(output, dict) else getattr(output, LOSS, None)
    return found if isinstance(found, torch.Tensor) and found.numel() == 1 else None


def function_name(loss_fn: Any) -> str | None:
    """Return the name of a function of ``torch.nn.functional``; None for anything else."""
    if isinstance(loss_fn, nn.Module):
        return None
    name = getattr(loss_fn, "__name__", "")
    known = name in FUNCTIONS and unpatched(getattr(functional, name, None))
    return name if known and known is unpatched(loss_fn) else None
