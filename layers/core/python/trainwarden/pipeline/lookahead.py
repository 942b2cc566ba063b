"""Which observations will be folded next, as far as that can be seen from what was read.

Custom rules are asked about many steps at once. What was seen ahead is used only if exactly that is
folded: a step whose place, workers or clock came out otherwise is asked about again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from trainwarden.custom.asking import MOST_STEPS, Asking
from trainwarden.engine import Engine
from trainwarden.merge import merge
from trainwarden.model import Json, Observation
from trainwarden.pipeline.streams import Stream


class Position(NamedTuple):
    """What of the progress the next observation depends on."""

    steps: int
    time: float
    holes: frozenset[int]
    waived: frozenset[int]


class Next(NamedTuple):
    """The observation that is folded next: which heads it is made of, and where they lie."""

    group: tuple[int, ...]
    place: tuple[tuple[int, int, int], ...]
    unsure: bool


OnTime = Callable[[Observation, Position], Observation]


def chosen(
    heads: Mapping[int, Observation], at: Mapping[int, tuple[int, int]], position: Position
) -> Next:
    """Choose the earliest step there is, and the workers that have it."""
    leader = min(heads, key=lambda worker: (heads[worker].step, worker))
    first = heads[leader]
    group = tuple(w for w, h in heads.items() if (h.step, h.mode) == (first.step, first.mode))
    unsure = (position.holes | position.waived) - set(group)
    return Next(group, tuple((w, *at[w]) for w in group), bool(unsure))


def made(heads: Mapping[int, Observation], what: Next) -> Observation:
    """Merge what the chosen workers have."""
    return merge([heads[worker] for worker in what.group], partial=what.unsure)


@dataclass
class Lookahead:
    """Observations with the answers of custom rules in their memos, in the order of folding.

    Attributes:
        asking: Asks for the answers.
        on_time: Mends an observation's clock.
    """

    asking: Asking
    on_time: OnTime
    _ready: deque[tuple[tuple[Next, Position], Observation]] = field(default_factory=deque)

    def next(
        self,
        streams: Mapping[int, Stream],
        heads: Mapping[int, Observation],
        position: Position,
        engine: Engine,
        state: Json,
    ) -> tuple[tuple[int, ...], Observation]:
        """Return the workers to fold next and what they have, with answers where there are any."""
        at = {worker: (streams[worker].seq, streams[worker].index) for worker in heads}
        what = chosen(heads, at, position)
        if not engine.elsewhere:
            return what.group, self.on_time(made(heads, what), position)
        if not self._ready or self._ready[0][0] != (what, position):
            seen = list(self._seen(streams, heads, position))
            answered = self.asking.ahead(engine, state, [obs for _, obs in seen])
            self._ready = deque(seen[:answered])
        return what.group, self._ready.popleft()[1]

    def _seen(
        self, streams: Mapping[int, Stream], heads: Mapping[int, Observation], position: Position
    ) -> Iterator[tuple[tuple[Next, Position], Observation]]:
        heads = dict(heads)
        index = {worker: streams[worker].index for worker in heads}
        for _ in range(MOST_STEPS):
            at = {worker: (streams[worker].seq, index[worker]) for worker in heads}
            what = chosen(heads, at, position)
            obs = self.on_time(made(heads, what), position)
            yield (what, position), obs
            holes = position.holes - set(what.group)
            position = Position(position.steps + 1, obs.time, holes, position.waived)
            for worker in what.group:
                index[worker] += 1
                found = streams[worker].found
                if found is None or index[worker] >= len(found.observations):
                    return
                heads[worker] = found.observations[index[worker]]
