"""Which steps are saved for whom: the run's schedule, those of single collections, raw tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from trainwarden.hook.collection_config import ALL
from trainwarden.hook.options import Options
from trainwarden.hook.raw import COLLECTIONS
from trainwarden.hook.rows import Rows
from trainwarden.hook.schedule import Schedule
from trainwarden.model import TRAIN, Mode, TensorInfo


class Resting(NamedTuple):
    """What is not saved at a step that is saved.

    Attributes:
        due: Whether they are saved, of the collections that have steps of their own.
        others: Whether tensors of all others are saved.
        info: What is known of a row.
    """

    due: Mapping[str, bool]
    others: bool
    info: Callable[[int], TensorInfo]

    def collection(self, name: str) -> bool:
        """Say whether a collection has steps of its own, and this is none."""
        return not self.due.get(name, True)

    def row(self, row: int) -> bool:
        """Say whether a tensor rests: none of its collections is saved."""
        info = self.info(row)
        if self.due.get(str(info.collection), self.others):
            return False
        return not any(self.due.get(name, self.others) for name in info.also)


class Plan:
    """Says which steps are saved, and what of them.

    Args:
        options: What was asked for.
        rows: The layout.
    """

    def __init__(self, options: Options, rows: Rows) -> None:
        self._rows, self._raw = rows, options.raw
        base: dict[Mode, Schedule] = {TRAIN: options.schedule, Mode.EVAL: options.passes}
        self._base = base
        self._own = {
            mode: {name: modes[mode] for name, modes in options.own.items() if mode in modes}
            for mode in base
        }
        self._training = [*self._own[TRAIN].values()]
        # Nothing more is asked at each step than there is to ask.
        more = bool(self._training or self._raw)
        self.saves: Callable[[int], bool] = self._saves if more else options.schedule.saves

    def _saves(self, step: int) -> bool:
        if self._base[TRAIN].saves(step) or any(one.saves(step) for one in self._training):
            return True
        return any(one.demands(step) for one in self._raw)

    def demands(self, step: int) -> bool:
        """Say whether a step is saved whatever it costs."""
        return self._base[TRAIN].demands(step)

    def covers(self, step: int) -> bool:
        """Say whether a step may be saved if there is a reason to."""
        return self._base[TRAIN].covers(step) or self.saves(step)

    def resting(self, mode: Mode, number: int) -> Resting | None:
        """Return what rests at a saved step, or evaluation pass; None if nothing does."""
        own = self._own.get(mode)
        if not own or any(one.demands(number) for one in self._raw):
            return None
        due = {name: one.saves(number) for name, one in own.items()}
        others = due.pop(ALL, self._base[mode].saves(number))
        return None if others and all(due.values()) else Resting(due, others, self._rows.info)

    def raw(self, step: int) -> Callable[[TensorInfo], bool] | None:
        """Return what is asked as it is with a saved step; None for nothing."""
        asked = [one for one in self._raw if one.wants(step)]
        if not asked:
            return None
        return lambda info: any(one.chooses(info, COLLECTIONS) for one in asked)
