"""When something is looked at; what is looked at lies in the modules beside this one.

A saved training step:

    root forward pre-hook   inputs; hooks on activation modules, for this one forward pass
    root forward hook       outputs
    loss                    kept as a tensor, read later
    optimizer pre-hook      gradients and weights, before the update: all of one step; behind the
                            closure of an optimizer that makes its pass itself
    optimizer post-hook     the draft is complete; ``record`` may still add to it
    next forward, or later  the draft is submitted

Between saved steps there is one pre-hook on each root, two hooks on optimizers, and what sees
losses. Those are called at every step: each asks first if there is anything to do.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from trainwarden.hook.session import Session
from trainwarden.hook.torch.activations import Activations
from trainwarden.hook.torch.callbacks import Callback, Scripting
from trainwarden.hook.torch.capture import Capture
from trainwarden.hook.torch.clipping import ClipWatch
from trainwarden.hook.torch.closures import followed_by
from trainwarden.hook.torch.drafts import Drafts
from trainwarden.hook.torch.events import Events
from trainwarden.hook.torch.facts import Facts
from trainwarden.hook.torch.features import Batches
from trainwarden.hook.torch.forward import Forward
from trainwarden.hook.torch.loop import Loop
from trainwarden.hook.torch.losses import LossReader
from trainwarden.hook.torch.modules import Modules, Roots
from trainwarden.hook.torch.optimizers import OfOthers, Optimizers
from trainwarden.hook.torch.ownership import Ownership
from trainwarden.hook.torch.parameters import Parameters
from trainwarden.hook.torch.phase import Phase
from trainwarden.hook.torch.ranks import may_write
from trainwarden.hook.torch.scaler import ScalerWatch
from trainwarden.hook.torch.tally import Tally
from trainwarden.model import Collection, Mode

UNSEEN_STEPS = 3  # saved in a row without a call of the model, after one that had some
_UNSEEN = (
    "inputs, outputs and activations are not captured: the model is not called through the module "
    "that is watched; if it is compiled, watch what torch.compile returned (inside of what "
    "module.compile() compiles in place nothing can be seen)"
)


class Steps:
    """Follows the training loop of the watched modules.

    Args:
        session: Where drafts go.
        roots: Watched modules by prefix.
        optimizers: The first one counts the steps; others are found when they step.
        loss_fn: Loss module or function; None to find the loss.
    """

    def __init__(
        self,
        session: Session,
        roots: Roots,
        optimizers: Sequence[Optimizer],
        loss_fn: Any = None,
    ) -> None:
        self._session = session
        self._handles: list[Any] = []
        self._captured: set[int] = set()
        self._saw_forward, self._unseen = False, UNSEEN_STEPS - 1  # at first, once is enough
        self._modules = Modules(roots)
        self._optimizers = Optimizers(session, self._modules, optimizers)
        self._hooked = weakref.WeakSet[Optimizer](optimizers)
        self._scripting = Scripting()
        self.drafts = Drafts(session, partial(may_write, session))
        self.phase = Phase(session, self._modules, self.drafts)
        self.loop = Loop(session, self._modules, self._optimizers, self._open, self._pass_made)
        parameters = Parameters(session, self._modules)
        activations = Activations(session, self._modules)
        self.batches = Batches(session, self._modules)
        self.events = Events(session, self.drafts, parameters)
        self.clips = ClipWatch(session, parameters.has, self._clipped)
        owner = Ownership(roots.values())
        self.losses = LossReader(
            session, self.phase.tally, self._label, loss_fn, owner, self._saw_loss
        )
        self.drafts.losses = self.losses
        facts = Facts(session, self._modules, self._optimizers, parameters, self.losses)
        self.facts, finder = facts, self.losses.finder
        self.capture = Capture(
            self._modules, self._optimizers, parameters, activations, finder, facts
        )
        self.forward = Forward(
            session, self.phase, activations, self.batches, self.losses, self.events.window
        )
        self.scaler = ScalerWatch(
            session,
            scaled=finder.scaled,
            steps_of=self._optimizers.steps_of,
            skipped=self._skipped,
        )

    @property
    def step(self) -> int:
        """Number of the step being made, or to come."""
        return self.phase.step

    @property
    def mode(self) -> Mode:
        """Training or evaluation."""
        return self.phase.mode

    def name_of(self, given: object) -> tuple[str, bool] | None:
        """Return the path of a module, or the name of a parameter; True for modules."""
        return self._modules.name_of(given)

    # ---- in and out -----------------------------------------------------------------------

    def attach(self) -> None:
        """Put the hooks in place and open the first step."""
        for prefix, root in self._modules.roots.items():
            before = Callback(self._session, partial(self._before_forward, prefix))
            self._handles.append(before.hang(root.register_forward_pre_hook, with_kwargs=True))
        self._handles.extend(self.losses.attach())
        before_step = Callback(self._session, self._before_step, answers=True)
        after_step = Callback(self._session, self._after_step)
        for optimizer in self._hooked:  # after the user's own hooks, which may clip gradients
            self._handles.append(optimizer.register_step_pre_hook(before_step))
            self._handles.append(optimizer.register_step_post_hook(after_step))
        others = partial(OfOthers, self._session, self._hooked)
        self._handles.append(register_optimizer_step_pre_hook(others(self._before_step)))
        self._handles.append(register_optimizer_step_post_hook(others(self._after_step)))
        self.scaler.install()
        self.clips.install()
        self._scripting.install()
        self.losses.finder.start()
        self.loop.attach()  # last, since its patch goes first
        self._open()

    def detach(self) -> None:
        """Take everything out again; may be called twice."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self.forward.detach()
        self.losses.finder.stop()
        self.scaler.remove()
        self.clips.remove()
        self.loop.detach()
        self._scripting.remove()

    def leftovers(self) -> Callable[[], None]:
        """Return what is to be done when the modules are gone, and this object with them."""
        drafts, handles, probes = self.drafts, self._handles, self.loop.handles
        ends = (
            self.losses.finder.stop,
            self.scaler.remove,
            self.clips.remove,
            self.loop.backward.patch.remove,
            self._scripting.remove,
        )

        def leave() -> None:
            for handle in (*handles, *probes):
                handle.remove()
            for end in ends:
                end()
            drafts.submit_pending()
            drafts.finish_evaluation()

        return leave

    def settle(self) -> None:
        """Submit what is complete: before a flush, at the end."""
        self.drafts.submit_pending()
        self.drafts.finish_evaluation()

    def finish(self) -> None:
        """Submit what is left at the end of the loop."""
        self.drafts.finish(self.phase.step)

    # ---- a batch --------------------------------------------------------------------------

    def _before_forward(self, prefix: str, module: nn.Module, args: Any, kwargs: Any) -> None:
        self._saw_forward, self.loop.counted = True, False
        finder = self.losses.finder
        self.losses.owner.called()
        if self.phase.rests(training=module.training) and not finder.watching:
            finder.checking = False
            return
        self.forward.before(prefix, module, args, kwargs, self._after_forward)

    def _after_forward(self, prefix: str, _module: nn.Module, _args: Any, output: Any) -> None:
        self.losses.owner.returned(output)
        self.loop.look()
        if self.forward.after(prefix, output):
            self.facts.forward(prefix)

    def _saw_loss(self, loss: torch.Tensor, *, averaged: bool) -> None:
        """A loss that is trained on, saved or not; of the loss module if it is averaged."""
        if averaged and not self.phase.trains:
            return
        if not averaged and not self.losses.finder.searching:
            self.events.check(loss, self.phase.step)
            return
        self.events.saw(loss, self.phase.step, averaged=averaged)

    def _label(self, tally: Tally, target: Any) -> None:
        if not self._session.options.wants(Collection.LABELS, "label/0"):
            return
        first = "label/0" not in tally.labels
        tally.count("label/0", target)
        if (
            first
            and tally is self.drafts.tally
            and self.drafts.draft
            and isinstance(target, torch.Tensor)
        ):
            tally.labels.setdefault("label/0", {})
            one = tally.batches <= 1
            self.batches.labels(self.drafts.draft, target, of_inputs=one)

    def _clipped(self, norm: Any, limit: float) -> None:
        self.events.clipped(norm, limit, self.phase.step, scaling=self.losses.finder.scaling)

    # ---- steps ----------------------------------------------------------------------------

    def _open(self) -> None:
        """Begin the draft of the step to come, if it is saved."""
        step = self.phase.step
        saved, wanted = self._session.due(step), self.events.window.wants(step)
        opened = self.drafts.open(step, saved=saved or wanted, whole=wanted)
        if self._captured:
            self._captured.clear()
        self.forward.opened()
        self.losses.finder.follow(closely=opened)
        self.loop.opened(saved=saved)

    def _before_step(self, optimizer: Optimizer, *call: Any) -> Any:
        """Look at gradients and weights; an optimizer that makes its pass itself gets a closure."""
        if not self._optimizers.begin(optimizer):
            return None
        counted = self.loop.stepping(optimizer)
        if counted:
            self.drafts.reopen()
            self.phase.step -= 1
        if not self.drafts.idle:
            self.drafts.submit_pending()
            self.phase.adopt()
        if self.drafts.draft is None:
            return None
        look = partial(self._capture, optimizer, counted=counted)
        late = followed_by(call, partial(self._session.guarded, look))
        if late is None:
            look()
        return late

    def _capture(self, optimizer: Optimizer, *, counted: bool) -> None:
        """Measure what an optimizer steps on; its gradients are complete."""
        draft = self.drafts.draft
        if draft is None or id(optimizer) in self._captured:
            return
        self._captured.add(id(optimizer))
        if optimizer is self._optimizers.first:
            self._unseen = 0 if self._saw_forward else self._unseen + 1
            if self._unseen >= UNSEEN_STEPS:
                self._session.say(_UNSEEN)
        scaled = self.scaler.state(optimizer)
        self.capture.add(draft, optimizer, scaled.scaling, weights=not counted)
        if scaled.found_inf is not None and scaled.loss_scale is not None:
            draft.scalar(Collection.OPTIMIZER, "found_inf", float(scaled.found_inf))
            draft.scalar(Collection.OPTIMIZER, "loss_scale", scaled.loss_scale)

    def _after_step(self, optimizer: Optimizer, *_: Any) -> None:
        self.loop.stepped(optimizer, self.drafts.draft, self.phase.step)
        if self._optimizers.end(optimizer):
            self._made(optimizer)

    def _pass_made(self) -> None:
        """A backward pass without a step counts as one: no optimizer ever stepped."""
        self.phase.adopt()
        if self.drafts.draft is not None:
            self.capture.add(self.drafts.draft)
            self.loop.tell_pass(self.drafts.draft)
        self._made(self._optimizers.first)

    def _made(self, optimizer: Optimizer | None) -> None:
        """A step is made; the next one begins."""
        self.events.close(self.phase.step, optimizer)
        self.drafts.complete()
        self._saw_forward = False
        self.phase.step += 1
        self._open()
        stopping = self._session.stopping
        if stopping.reason is not None:
            stopping.act(self._session.close)

    def _skipped(self, optimizer: Optimizer) -> None:
        """GradScaler did not step the optimizer; the loop went on all the same."""
        self._before_step(optimizer)
        self._after_step(optimizer)
