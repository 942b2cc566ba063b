"""Facts about the loop: are gradients cleared between steps, are they used at all.

Before the first step of any optimizer every backward pass is followed, after it only those of
saved steps. Passes whose gradients are thrown away, again and again, and no optimizer ever steps,
are the steps of a loop that forgot the optimizer's.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from trainwarden.hook.draft import Draft
from trainwarden.hook.session import Session
from trainwarden.hook.torch.callbacks import Patch
from trainwarden.hook.torch.modules import Modules
from trainwarden.hook.torch.optimizers import Optimizers, owned_by
from trainwarden.hook.torch.probes import Probe, choose
from trainwarden.hook.torch.weak import weakly
from trainwarden.model import Collection

PATIENCE = 10  # passes thrown away in a row before they count as steps
MAX_OPTIMIZERS = 4  # that are followed; some loops have one for each parameter


@dataclass
class _Watch:
    """The probes of one optimizer's parameters; ``whole`` if they hang since its last step."""

    probes: list[Probe]
    whole: bool = False
    steps: int = 0

    @property
    def reached(self) -> list[Probe]:
        return [probe for probe in self.probes if probe.passes and not probe.blank]


class Loop:
    """Follows backward passes and steps of all optimizers of the watched modules.

    Args:
        session: Guards what is ours.
        modules: The watched modules.
        optimizers: Those known.
        open_pass: Called when passes begin to count as steps.
        pass_made: Called when such a pass is over.
    """

    def __init__(
        self,
        session: Session,
        modules: Modules,
        optimizers: Optimizers,
        open_pass: Callable[[], object],
        pass_made: Callable[[], object],
    ) -> None:
        self._session, self._modules, self._optimizers = session, modules, optimizers
        self._open_pass, self._pass_made = open_pass, pass_made
        self._wanted = Collection.LOOP in session.options.collections
        self._ever = False  # any optimizer stepped
        self._watches = weakref.WeakKeyDictionary[Optimizer, _Watch]()
        self._nobodys: _Watch | None = None  # of no known optimizer
        self._counting: Probe | None = None
        self._seen, self._fresh = 0, False
        self.counted = False  # the last pass counted as a step
        self.handles: list[RemovableHandle] = []
        self.backward = _Backward(session, self._backward_over)

    # ---- in and out -----------------------------------------------------------------------

    def attach(self) -> None:
        """Follow every pass until an optimizer steps."""
        for optimizer in self._optimizers.known[:MAX_OPTIMIZERS]:
            self._watches[optimizer] = _Watch(self._probes(optimizer))
        self.look()
        self.backward.patch.install()

    def detach(self) -> None:
        """Take everything out."""
        self.backward.patch.remove()
        for handle in self.handles:
            handle.remove()
        self.handles.clear()

    def look(self) -> None:
        """Find parameters to follow if there are none yet: lazy ones are born in a forward pass."""
        if self._ever or self.handles:
            return
        if not any(watch.probes for watch in self._all()):
            self._nobodys = _Watch(self._probes(None))
        for watch in self._all():
            self._hang(watch)

    def _probes(self, optimizer: Optimizer | None) -> list[Probe]:
        """Choose parameters of the model that an optimizer has; any if it is None."""
        ours = [p for root in self._modules.roots.values() for p in root.parameters()]
        if optimizer is not None:
            owned = owned_by(optimizer)
            ours = [parameter for parameter in ours if id(parameter) in owned]
        return [Probe(self._session, parameter) for parameter in choose(ours)]

    def _all(self) -> list[_Watch]:
        return [*self._watches.values(), *([self._nobodys] if self._nobodys else [])]

    def _hang(self, watch: _Watch) -> None:
        """Put the probes of an optimizer in place, just after it stepped."""
        watch.whole = True
        for probe in watch.probes:
            if not probe.handles:
                probe.hang()
                self.handles.extend(probe.handles)

    def _take(self, watch: _Watch) -> None:
        watch.whole = False
        for probe in watch.probes:
            for handle in probe.handles:
                self.handles.remove(handle)
            probe.take()

    # ---- steps ----------------------------------------------------------------------------

    def opened(self, *, saved: bool) -> None:
        """A step begins; of one that is ``saved`` the passes are followed."""
        if not self._ever:
            for watch in self._all():
                self._hang(watch)
            return
        saved = saved and self._wanted
        if not saved and not self.handles:
            return
        first = self._optimizers.first
        own = None if first is None else self._watches.get(first)
        if own is not None:
            (self._hang if saved else self._take)(own)

    def stepping(self, optimizer: Optimizer) -> bool:
        """An optimizer is about to step; True if its pass counted as a step already."""
        counted, self.counted = self.counted, False
        watch = self._watches.get(optimizer)
        if watch is None and len(self._watches) < MAX_OPTIMIZERS:
            watch = self._watches[optimizer] = self._begun(optimizer)
        if not self._ever:
            self._ever, self._counting = True, None
            self.backward.patch.remove()
            if self._nobodys is not None:
                self._take(self._nobodys)
                self._nobodys = None
        if watch is not None and watch.whole:
            for probe in watch.probes:
                if counted:
                    probe.passes, probe.discarded = probe.unused, 0
                probe.stepping()
        return counted

    def _begun(self, optimizer: Optimizer) -> _Watch:
        """A new optimizer takes over the probes on its parameters."""
        before, owned = self._nobodys, owned_by(optimizer)
        kept = [p for p in before.probes if id(p.parameter) in owned] if before else []
        if before is None or not kept:
            return _Watch(self._probes(optimizer))
        before.probes = [probe for probe in before.probes if probe not in kept]
        return _Watch(kept, whole=True)

    def stepped(self, optimizer: Optimizer, draft: Draft | None, step: int) -> None:
        """An optimizer stepped.

        Args:
            optimizer: Any; those that are not watched are passed over.
            draft: Gets the facts.
            step: The step that is being made.
        """
        watch = self._watches.get(optimizer)
        if watch is None:
            return
        if not (watch.whole or self.handles or len(self._watches) > 1) and draft is None:
            watch.steps += 1  # nothing is followed
            return
        reached = watch.reached if watch.whole else []
        if draft is not None and self._wanted:
            if reached:
                self._tell(draft, watch, reached)
            draft.scalar(Collection.LOOP, "stepped", 1.0)
        watch.steps += 1
        if watch.whole and not reached:
            self._take(watch)  # others may be reached
            watch.probes = self._probes(optimizer)
        if self.handles:
            for other in self._all():
                for probe in other.probes:
                    probe.stepped(own=other is watch)
        if len(self._watches) > 1 and self._optimizers.first is not optimizer:
            expects = self._session.expects
            soon = self._wanted and (expects(step) or expects(step + 1))
            (self._hang if soon else self._take)(watch)

    @staticmethod
    def _tell(draft: Draft, watch: _Watch, reached: Sequence[Probe]) -> None:
        carried = any(not probe.cleared for probe in reached)
        facts = {
            "backward_passes": max(probe.passes for probe in reached),
            "gradients_discarded": min(probe.discarded for probe in reached),
        }
        if watch.steps or not carried:  # before the first step nothing can be left over
            facts["gradients_carried"] = carried
        known = draft.scalars.get(Collection.LOOP.value, {})
        for name, value in facts.items():  # of several optimizers, the worst
            draft.scalar(Collection.LOOP, name, max(float(value), known.get(name, 0.0)))

    # ---- passes without a step ------------------------------------------------------------

    def _backward_over(self) -> None:
        """A backward pass is over and no optimizer ever stepped."""
        probe = self._counting or self._believed()
        if probe is None or probe.passes == self._seen:
            return
        self._seen = probe.passes
        if probe.unused > probe.period or not probe.row:
            self._counting, probe.row = None, 0  # they add up: gradients may be used after all
        elif probe.unused == probe.period:
            if self._fresh:
                self._pass_made()
                self.counted = True
            else:
                self._fresh = True
                self._open_pass()

    def _believed(self) -> Probe | None:
        """Return a probe whose gradients were thrown away often enough."""
        for watch in self._all():
            for probe in watch.probes:
                if probe.row >= PATIENCE:
                    self._counting, self._fresh = probe, False
                    return probe
        return None

    def tell_pass(self, draft: Draft) -> None:
        """Add the facts of a pass without a step."""
        probe = self._counting
        if probe is not None and self._wanted:
            draft.scalar(Collection.LOOP, "stepped", 0.0)
            draft.scalar(Collection.LOOP, "backward_passes", float(probe.period))
            total = float(probe.discarded + probe.unused)
            draft.scalar(Collection.LOOP, "gradients_discarded", total)


class _Backward:
    """Tells when a call of ``backward()`` is over.

    Args:
        session: Guards the call.
        over: Called then; its object is not kept alive.
    """

    def __init__(self, session: Session, over: Callable[[], object]) -> None:
        self._session, self._over, self._depth = session, weakly(over), 0
        self.patch = Patch(torch.autograd, "backward", self._around)

    def _around(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._depth += 1  # checkpoints that are recomputed call it from inside
        try:
            result = original(*args, **kwargs)
        finally:
            self._depth -= 1
        if not self._depth:
            self._session.guarded(self._over)
        return result
