"""Which processes of a distributed training write.

With data parallelism all have the same weights and gradients, and the first one of
``torch.distributed`` writes. Of a model in shards each one writes the statistics of its own.

Scripts that spawn their processes themselves pass ranks by hand: the environment knows none.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, replace
from typing import Any

from torch import distributed

from trainwarden.errors import RetryableError
from trainwarden.hook.config import Place
from trainwarden.hook.options import Options
from trainwarden.hook.saying import say
from trainwarden.hook.session import Session
from trainwarden.hook.team import Run, Team
from trainwarden.hook.torch.modules import Roots
from trainwarden.hook.torch.shards import is_sharded
from trainwarden.model import Collection
from trainwarden.wire.keys import MAX_WORKER
from trainwarden.wire.manifest import MAX_WRITERS

_NUMBERS = itertools.count()  # of the sharded models that this process watched
_PARTS = frozenset({Collection.WEIGHTS, Collection.BIASES, Collection.GRADIENTS})


def ranked(place: Place) -> Place:
    """Return the place with the rank of the process group, if there is one."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return place
    worker = min(max(distributed.get_rank(), 0), MAX_WORKER)
    return replace(place, worker=worker, world_size=max(distributed.get_world_size(), 1))


def may_write(session: Session) -> bool:
    """Look again before the first step is saved: the group may have been made after ``watch``."""
    if ranked(session.place).worker == session.place.worker:
        return True
    session.withdraw()
    return False


def team_of(place: Place, roots: Roots) -> Team | None:
    """Return the team of this process; None if it holds no shard of the model, or not alone."""
    if place.world_size <= 1 or not is_sharded(roots):
        return None
    store = _store()
    if store is None or place.world_size > MAX_WRITERS:
        if not place.worker:
            say(
                "weights and gradients are not captured: the model is in the shards of "
                f"{place.world_size} processes, and at most {MAX_WRITERS} can add up theirs"
            )
        return None
    return StoreTeam(store, place.worker, place.world_size, next(_NUMBERS))


def of_a_part(options: Options) -> Options:
    """Return what a process other than the first one captures: its part of the parameters."""
    kept = options.collections & _PARTS
    return replace(options, collections=kept, only=_PARTS, evaluation=False)


def _store() -> Any:
    """Return where the processes of the group meet; None if they meet elsewhere, as MPI's do."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return None
    find = getattr(distributed.distributed_c10d, "_get_default_store", None)
    return None if find is None else find()


@dataclass
class StoreTeam:
    """A team that meets in the store of the process group: a dictionary, no communication.

    Nothing in it waits for another process.

    Args:
        store: Of ``torch.distributed``.
        worker: Rank of this process.
        size: Of the group.
        number: Of the watched model.
    """

    store: Any
    worker: int
    size: int
    number: int

    def __post_init__(self) -> None:
        """Say that this process watches."""
        self.store.set(self._key(f"writer/{self.worker}"), "1")

    def _key(self, name: str) -> str:
        return f"trainwarden/{self.number}/{name}"

    def _has(self, *names: str) -> bool:
        try:
            return bool(self.store.check([self._key(name) for name in names]))
        except RuntimeError as error:
            raise RetryableError(f"the process group's store does not answer: {error}") from error

    def writers(self) -> tuple[int, ...]:
        """Return the ranks that watch: all that do so before the first step."""
        return tuple(rank for rank in range(self.size) if self._has(f"writer/{rank}"))

    def tell(self, run: Run) -> None:
        """Tell the others what the run is called."""
        try:
            self.store.set(self._key("run"), json.dumps([run.job, run.run, run.workers]))
        except RuntimeError as error:
            raise RetryableError(f"the process group's store does not answer: {error}") from error

    def told(self) -> Run | None:
        """Return what the first process told; None if it did not yet."""
        if not self._has("run"):
            return None
        job, run, workers = json.loads(self.store.get(self._key("run")))
        return Run(job, run, tuple(workers))
