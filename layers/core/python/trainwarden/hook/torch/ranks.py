"""Which process of a data parallel training writes: the first one of ``torch.distributed``.

Scripts that spawn their processes themselves pass ranks by hand: the environment knows none.
"""

from __future__ import annotations

from dataclasses import replace

from torch import distributed

from trainwarden.hook.config import Place
from trainwarden.hook.session import Session
from trainwarden.wire.keys import MAX_WORKER


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
