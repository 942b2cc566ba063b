"""Which optimizers train the watched model, and which of them counts the steps.

They are held weakly. One that is new and steps over the parameters of another takes its place:
scripts make a new optimizer when they unfreeze layers or begin another phase.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch.optim import Optimizer

from trainwarden.hook.session import Session
from trainwarden.hook.torch.callbacks import Callback, no_training
from trainwarden.hook.torch.modules import Modules
from trainwarden.hook.torch.weak import weakly

PATIENCE = 100  # steps of an optimizer of other parameters, while the one that counts rests
MAX_INNER = 8  # steps inside the step of another


@dataclass
class _Place:
    """An optimizer and its parameters; ``given`` to ``watch``, or in the place of one that was."""

    optimizer: weakref.ref[Optimizer]
    owned: frozenset[int]
    given: bool = False
    steps: int = 0

    def shares_with(self, other: frozenset[int]) -> bool:
        """Say whether these are the same parameters: half of them, or half of the others."""
        return 2 * len(self.owned & other) >= max(min(len(self.owned), len(other)), 1)


class Optimizers:
    """The optimizers that step over parameters of the watched model; the first counts the steps.

    Args:
        session: Is told of a replaced optimizer.
        modules: The watched modules.
        given: As passed to ``watch``; these never take the count from each other.
    """

    def __init__(self, session: Session, modules: Modules, given: Sequence[Optimizer]) -> None:
        self._session, self._modules = session, modules
        self._places = [_Place(weakref.ref(one), owned_by(one), given=True) for one in given]
        self._rest = weakref.WeakKeyDictionary[Optimizer, int]()  # steps since the first one's last
        self._replaced = weakref.WeakSet[Optimizer]()
        self._foreign = weakref.WeakKeyDictionary[Optimizer, tuple[int, int]]()
        self._inside: list[weakref.ref[Optimizer]] = []  # whose step has begun
        self._inner = 0  # steps inside those, in a row

    @property
    def known(self) -> list[Optimizer]:
        """Those that exist still, the one that counts first."""
        return [one for place in self._places if (one := place.optimizer()) is not None]

    def steps_of(self, optimizer: Optimizer) -> int | None:
        """Return how often it was stepped; None if it is not known."""
        place = self._place(optimizer)
        return None if place is None else place.steps

    def begin(self, optimizer: Optimizer) -> bool:
        """A step begins; True if the optimizer is one of the watched model."""
        place = self._place(optimizer) or self._found(optimizer)
        if place is None:
            return False
        if self._inside:
            self._leave(optimizer)  # its last step may have ended in an error
        self._inside.append(place.optimizer)
        self._inner = 0
        place.steps += 1
        self._pass_on(optimizer, place)
        return True

    def end(self, optimizer: Optimizer) -> bool:
        """A step is over; True if it is a step of the run."""
        self._leave(optimizer)
        return self.first is optimizer

    @property
    def first(self) -> Optimizer | None:
        """The one that counts the steps, if there is any."""
        place = self._first()
        return None if place is None else place.optimizer()

    def _first(self) -> _Place | None:
        for place in self._places:
            if place.optimizer() is not None:
                return place
        return None

    def _leave(self, optimizer: Optimizer) -> None:
        for i, ref in enumerate(self._inside):
            if ref() is optimizer:
                del self._inside[i:]
                return

    def position(self, optimizer: Optimizer) -> int:
        """Its number among those known; 0 counts the steps."""
        return self.known.index(optimizer)

    def learn(self) -> int:
        """Look again at which parameters each has; returns how many in all."""
        for place in self._places:
            one = place.optimizer()
            if one is not None:
                place.owned = owned_by(one)
        return sum(len(place.owned) for place in self._places if place.optimizer() is not None)

    def _place(self, optimizer: Optimizer) -> _Place | None:
        for place in self._places:
            if place.optimizer() is optimizer:
                return place
        return None

    def _found(self, optimizer: Optimizer) -> _Place | None:
        """Give an unknown optimizer its place; None if it is none of the watched model's."""
        key = (sum(len(group["params"]) for group in optimizer.param_groups), self._modules.walks)
        if self._foreign.get(optimizer) == key or self._nested(optimizer):
            return None
        ours = {id(p) for root in self._modules.roots.values() for p in root.parameters()}
        owned = owned_by(optimizer)
        if ours.isdisjoint(owned):
            self._foreign[optimizer] = key
            return None
        place = _Place(weakref.ref(optimizer), owned)
        at = None if optimizer in self._replaced else self._same(place)
        if at is None:
            self._places = [one for one in self._places if one.optimizer() is not None]
            self._places.append(place)
        else:
            self._replace(at, place)
        return place

    def _nested(self, optimizer: Optimizer) -> bool:
        """Say whether it is stepped by another one that wraps it.

        A step that ended in an error seems to go on; too many inside it tell that it does not.
        """
        wrapping = (ref() for ref in self._inside)
        if not any(one is not None and one is not optimizer for one in wrapping):
            return False
        self._inner += 1
        if self._inner > MAX_INNER:
            self._inside.clear()
        return bool(self._inside)

    def _same(self, place: _Place) -> int | None:
        """Return whose place it takes: that of the same parameters, or the last one's that died."""
        shared = [
            (len(one.owned & place.owned), -i)
            for i, one in enumerate(self._places)
            if one.shares_with(place.owned)
        ]
        if shared:
            return -max(shared)[1]
        return 0 if self._places and not self.known else None

    def _replace(self, at: int, place: _Place) -> None:
        before = self._places[at].optimizer()
        if before is not None:
            self._replaced.add(before)
        place.given = self._places[at].given
        self._places[at] = place
        self._session.say("the optimizer was replaced by another one; its steps count from now on")

    def _pass_on(self, optimizer: Optimizer, own: _Place) -> None:
        """Let ``optimizer`` count if the one that does has stopped to step."""
        first = self._first()
        if first is None or first is own:
            if self._rest:
                self._rest.clear()
            return
        self._rest[optimizer] = self._rest.get(optimizer, 0) + 1
        if first.given and own.given:
            return
        if self._rest[optimizer] >= (2 if own.shares_with(first.owned) else PATIENCE):
            a, b = self._places.index(first), self._places.index(own)
            self._places[a], self._places[b] = own, first
            self._rest.clear()
            self._session.say("another optimizer counts the steps: the first one rests")


def owned_by(optimizer: Optimizer) -> frozenset[int]:
    """Return the ids of an optimizer's parameters."""
    return frozenset(id(p) for group in optimizer.param_groups for p in group["params"])


class OfOthers(Callback):
    """A hook of all optimizers, for those that have none of their own; held by torch for ever."""

    def __init__(
        self,
        session: Session,
        hooked: weakref.WeakSet[Optimizer],
        act: Callable[..., object],
    ) -> None:
        super().__init__(session, weakly(act))
        self._hooked = hooked

    def __call__(self, optimizer: Optimizer, *arguments: Any) -> Any:
        """Act, unless the optimizer has hooks of its own."""
        if no_training() or optimizer in self._hooked:
            return None
        return self._session.guarded(self._function, optimizer, *arguments)
