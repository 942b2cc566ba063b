"""When something is looked at; what is looked at lies in the modules beside this one.

A saved training step:

    root forward pre-hook   inputs; hooks on activation modules, for this one forward pass
    root forward hook       outputs
    loss                    kept as a tensor, read later
    optimizer pre-hook      gradients and weights, before the update: all of one step
    optimizer post-hook     the draft is complete; ``record`` may still add to it
    next forward, or later  the draft is submitted

Between saved steps there is one pre-hook on each root, and two hooks on optimizers.
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

from trainwarden.errors import BadInputError
from trainwarden.hook.session import Session
from trainwarden.hook.torch.activations import Activations
from trainwarden.hook.torch.batches import add_batch
from trainwarden.hook.torch.callbacks import Callback, Scripting
from trainwarden.hook.torch.clipping import ClipWatch
from trainwarden.hook.torch.drafts import Drafts
from trainwarden.hook.torch.events import Events
from trainwarden.hook.torch.facts import Facts
from trainwarden.hook.torch.features import MAX_BATCHES, Batches
from trainwarden.hook.torch.loop import Loop
from trainwarden.hook.torch.losses import LOSS, LossReader, loss_in
from trainwarden.hook.torch.modules import Modules, Roots
from trainwarden.hook.torch.optimizers import Optimizers, owned_by
from trainwarden.hook.torch.ownership import Ownership
from trainwarden.hook.torch.parameters import UNSCALED, Parameters
from trainwarden.hook.torch.ranks import may_write
from trainwarden.hook.torch.scaler import ScalerWatch
from trainwarden.hook.torch.tally import Tally, batch_size
from trainwarden.hook.torch.views import tensors_in
from trainwarden.hook.torch.weak import weakly
from trainwarden.model import Collection, Mode

EAGER_WALKS = 4  # looks at the whole model without a reason, each at a saved step
WALK_EVERY = 10  # saved steps, after that


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
        self.step, self.mode = session.options.schedule.start, Mode.TRAIN
        self._session = session
        self.drafts = Drafts(session, partial(may_write, session))
        self._eval_with_grad = self._trains_in_eval = self._saw_forward = False
        self._captured: set[int] = set()
        self._forwarded: set[str] = set()
        self._handles: list[Any] = []
        self._passing: dict[str, Any] = {}
        self._modules = Modules(roots)
        self._optimizers = Optimizers(session, self._modules, optimizers)
        self._hooked = weakref.WeakSet[Optimizer](optimizers)
        self._scripting = Scripting()
        self.loop = Loop(session, self._modules, self._optimizers, self._open, self._pass_made)
        self._saves = 0
        self._owned = -1  # parameters of the optimizers at the last look
        self.parameters = Parameters(session, self._modules)
        self.activations = Activations(session, self._modules)
        self.batches = Batches(session, self._modules)
        self.events = Events(session, self.drafts, self.parameters)
        self.clips = ClipWatch(session, self.parameters.has, self._clipped)
        self.losses = LossReader(
            session,
            self._current_tally,
            self._label,
            loss_fn,
            Ownership(roots.values()),
            self._saw_loss,
        )
        self.drafts.losses = self.losses
        self.facts = Facts(session, self._modules, self._optimizers, self.parameters, self.losses)
        self.scaler = ScalerWatch(
            session,
            scaled=self.losses.finder.scaled,
            steps_of=self._optimizers.steps_of,
            skipped=self._skipped,
        )

    # ---- in and out -----------------------------------------------------------------------

    def attach(self) -> None:
        """Put the hooks in place and open the first step."""
        for prefix, root in self._modules.roots.items():
            before = Callback(self._session, partial(self._before_forward, prefix))
            self._handles.append(before.hang(root.register_forward_pre_hook, with_kwargs=True))
        self._handles.extend(self.losses.attach())
        before_step = Callback(self._session, self._before_step)
        after_step = Callback(self._session, self._after_step)
        for optimizer in self._hooked:  # after the user's own hooks, which may clip gradients
            self._handles.append(optimizer.register_step_pre_hook(before_step))
            self._handles.append(optimizer.register_step_post_hook(after_step))
        before_other = Callback(
            self._session, partial(weakly(self._of_others), weakly(self._before_step))
        )
        after_other = Callback(
            self._session, partial(weakly(self._of_others), weakly(self._after_step))
        )
        self._handles.append(register_optimizer_step_pre_hook(before_other))
        self._handles.append(register_optimizer_step_post_hook(after_other))
        self.scaler.install()
        self.clips.install()
        self._scripting.install()
        self.loop.attach()
        self._open()

    def detach(self) -> None:
        """Take everything out again; may be called twice."""
        for handle in (*self._handles, *self._passing.values()):
            handle.remove()
        self._handles, self._passing = [], {}
        self.activations.detach()
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
        self.drafts.finish(self.step)

    # ---- forward --------------------------------------------------------------------------

    def _before_forward(self, prefix: str, module: nn.Module, args: Any, kwargs: Any) -> None:
        self._saw_forward, self.loop.counted = True, False
        self.losses.owner.called()
        self._enter(training=module.training)
        checking = module.training and not torch.is_grad_enabled()
        self.losses.finder.checking = checking
        if self._current_tally() is None:
            self.losses.finder.watch_functions(on=checking)
            return
        # Models may compute their loss themselves: it is looked at, but not counted.
        self.losses.finder.watch_functions(on=not self.activations.compiled(prefix))
        if (
            self.mode is Mode.TRAIN
            and self.drafts.draft is not None
            and prefix not in self._forwarded
        ):
            inputs = tensors_in((args, kwargs))
            add_batch(
                self._session,
                self.drafts.draft,
                Collection.INPUTS,
                f"{prefix}.input".strip("."),
                inputs,
            )
            self.batches.inputs(self.drafts.draft, prefix, inputs)
            following = self.events.window.wants(self.step)
            self.activations.attach(self.drafts.draft, prefix, everything=following)
        elif self.mode is Mode.EVAL and self.drafts.evaluation is not None:
            draft, seen = self.drafts.evaluation
            if seen.batches < MAX_BATCHES:
                self.batches.inputs(draft, prefix, tensors_in((args, kwargs)), data=False)
        if prefix not in self._passing:
            after = Callback(self._session, partial(self._after_forward, prefix))
            self._passing[prefix] = after.hang(module.register_forward_hook)

    def _enter(self, *, training: bool) -> None:
        """A batch begins, of training or of evaluation."""
        self.drafts.submit_pending()
        if training or (self._trains_in_eval and torch.is_grad_enabled()):
            self.drafts.finish_evaluation()
            self.mode = Mode.TRAIN
            return
        self.mode = Mode.EVAL
        self._eval_with_grad = torch.is_grad_enabled()
        self.drafts.evaluate(self.step)

    def _after_forward(self, prefix: str, _module: nn.Module, _args: Any, output: Any) -> None:
        handle = self._passing.pop(prefix, None)
        if handle is not None:
            handle.remove()
        self.losses.owner.returned(output)
        self.loop.look()
        tally = self._current_tally()
        if tally is None:
            return
        tally.batches += 1
        own = self._loss_in(output)
        if own is not None:
            tally.add(LOSS, own, batch_size(tensors_in(output)[1:]))
        counting = own is None and self.losses.searching_functions
        self.losses.finder.watch_functions(on=True, counting=counting)
        if (
            self.mode is Mode.TRAIN
            and self.drafts.draft is not None
            and prefix not in self._forwarded
        ):
            self._forwarded.add(prefix)
            self.activations.detach()
            self.facts.forward(prefix)
            outputs = [tensor for tensor in tensors_in(output) if tensor is not own]
            add_batch(
                self._session,
                self.drafts.draft,
                Collection.OUTPUTS,
                f"{prefix}.output".strip("."),
                outputs,
            )
            self.batches.outputs(self.drafts.draft, prefix, outputs)

    # ---- losses and labels ----------------------------------------------------------------

    def _loss_in(self, output: Any) -> torch.Tensor | None:
        try:
            return loss_in(output)
        except Exception as error:  # noqa: BLE001 - a property of the user's may raise anything
            self._session.trouble(
                BadInputError("the model's output to have a loss or none", f"{error!r} from it")
            )
            return None

    def _current_tally(self) -> Tally | None:
        """Where losses go now; None if nothing is saved."""
        training = self._modules.training
        if training is not (self.mode is Mode.TRAIN) and not self._trains_in_eval:
            self._enter(training=training)  # the model was not called through its root
        if self.mode is Mode.TRAIN:
            # Without gradients it is no training: a check of its own, or an RL rollout.
            return (
                self.drafts.tally
                if self.drafts.draft is not None and torch.is_grad_enabled()
                else None
            )
        return self.drafts.evaluation[1] if self.drafts.evaluation else None

    def _saw_loss(self, loss: torch.Tensor, *, averaged: bool) -> None:
        """A loss that is trained on, saved or not; of the loss module if it is averaged."""
        if averaged and not (self._modules.training or self._trains_in_eval):
            return
        if not averaged and not self.losses.finder.searching:
            self.events.check(loss, self.step)
            return
        self.events.saw(loss, self.step, averaged=averaged)

    def _clipped(self, norm: Any, limit: float) -> None:
        self.events.clipped(norm, limit, self.step, scaling=self.losses.finder.scaling)

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
            add_batch(self._session, self.drafts.draft, Collection.LABELS, "label", [target])

    # ---- steps ----------------------------------------------------------------------------

    def _open(self) -> None:
        """Begin the draft of the step to come, if it is saved."""
        self._captured, self._forwarded = set(), set()
        saved = self.drafts.open(self.step, anyway=self.events.window.wants(self.step))
        self.losses.finder.watch_backward(on=True, closely=saved)
        self.loop.opened(self.step)

    def _of_others(self, act: Callable[..., None], optimizer: Optimizer, *_: Any) -> None:
        if optimizer not in self._hooked:
            act(optimizer)

    def _before_step(self, optimizer: Optimizer, *call: Any) -> None:
        if not self._optimizers.begin(optimizer):
            return
        counted = self.loop.stepping(optimizer)
        if counted:
            self.drafts.reopen()
            self.step -= 1
        self.drafts.submit_pending()
        self._adopt()
        draft = self.drafts.draft
        if draft is None or id(optimizer) in self._captured:
            return
        self._captured.add(id(optimizer))
        self.activations.detach()
        self.losses.finder.watch_functions(on=False)
        if not self._saw_forward:
            self._session.say(
                "inputs, outputs and activations are not captured: the model is not called "
                "through the module that is watched; if it is compiled, watch what torch.compile "
                "returned"
            )
        scaled = self.scaler.state(optimizer)
        self._look_around()
        share = self._share(optimizer)
        self.parameters.capture(draft, share, scaled.scaling, weights=not counted)
        self.facts.add(draft, optimizer, call)
        if scaled.found_inf is not None and scaled.loss_scale is not None:
            draft.scalar(Collection.OPTIMIZER, "found_inf", float(scaled.found_inf))
            draft.scalar(Collection.OPTIMIZER, "loss_scale", scaled.loss_scale)

    def _adopt(self) -> None:
        """See if the loop trains in eval mode: what seemed an evaluation was a step's batch."""
        if self.mode is Mode.EVAL and self.drafts.evaluation and self._eval_with_grad:
            self._trains_in_eval, self.mode = True, Mode.TRAIN
            self.drafts.adopt()

    def _pass_made(self) -> None:
        """A backward pass without a step counts as one: no optimizer ever stepped."""
        self._adopt()
        draft = self.drafts.draft
        if draft is not None:
            self.activations.detach()
            self.losses.finder.watch_functions(on=False)
            self._look_around()
            self.parameters.capture(draft, None, UNSCALED)
            self.facts.add(draft)
            self.loop.tell_pass(draft)
        self.events.close(self.step, next(iter(self._optimizers.known), None))
        self.drafts.complete()
        self.step += 1
        self._open()

    def _look_around(self) -> None:
        """Find parameters that are new: at first, when optimizers got some, and now and then."""
        owned = self._optimizers.learn()
        walks, self._saves = self._modules.walks, self._saves + 1
        if owned != self._owned or walks < EAGER_WALKS or self._saves % WALK_EVERY == 0:
            self._owned = owned
            self.parameters.scan(self.activations.depths)

    def _share(self, optimizer: Optimizer) -> frozenset[int] | None:
        """Identities of the parameters to look at when this optimizer steps; None for all."""
        first, *rest = self._optimizers.known
        if not rest:
            return None
        if optimizer is not first:
            return owned_by(optimizer)
        others = frozenset[int]().union(*(owned_by(other) for other in rest))
        return self.parameters.ids - others | owned_by(optimizer)

    def _after_step(self, optimizer: Optimizer, *_: Any) -> None:
        self.loop.stepped(optimizer, self.drafts.draft, self.step)
        self.facts.stepped(self.drafts.draft, optimizer)
        if self._optimizers.end(optimizer):
            self.events.close(self.step, optimizer)
            self.drafts.complete()
            self.step += 1
            self._open()

    def _skipped(self, optimizer: Optimizer) -> None:
        """GradScaler did not step the optimizer; the loop went on all the same."""
        self._before_step(optimizer)
        self._after_step(optimizer)
