"""An observation in the making."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from trainwarden.hook.raw import RawStep
from trainwarden.model import Channels, FloatArray, IntArray, Mode
from trainwarden.stats.catalog import WIDTH
from trainwarden.stats.reductions import Tensor, table
from trainwarden.stats.sampling import sampled_table

if TYPE_CHECKING:
    from trainwarden.hook.plan import Resting

_MAX_TABLES = 256  # before they are put together


class _Group(NamedTuple):
    """Tensors that wait to be measured, and what is done with their statistics then."""

    rows: Sequence[int]
    tensors: Sequence[Tensor]
    finish: Callable[[FloatArray], object] | None


@dataclass
class Draft:
    """An observation in the making; the adapter fills it while the step runs.

    Statistics of small tensors are cheaper together, so tensors wait until ``settle``.

    Attributes:
        exact: Measure whole tensors; else large ones from a sample.
        resting: Says what is not saved of it; None if all is.
        raw: Collects those of the tensors that are saved as they are; None if none are.
    """

    step: int
    mode: Mode
    mode_step: int
    time: float
    exact: bool = True
    resting: Resting | None = None
    raw: RawStep | None = None
    scalars: dict[str, dict[str, float]] = field(default_factory=dict)
    channels: dict[str, Channels] = field(default_factory=dict)
    labels: dict[str, dict[int, int]] = field(default_factory=dict)
    tables: list[tuple[IntArray, FloatArray]] = field(default_factory=list)
    _waiting: list[_Group] = field(default_factory=list)
    _later: list[Callable[[], object]] = field(default_factory=list)

    def rests(self, row: int) -> bool:
        """Say whether a row of the layout is not saved."""
        return self.resting is not None and row >= 0 and self.resting.row(row)

    def scalar(self, collection: str, name: str, value: float) -> None:
        """Set a scalar; the last value of a step wins."""
        self.scalars.setdefault(str(collection), {})[name] = value

    def facts(self, collection: str, values: Mapping[str, float], prefix: str = "") -> None:
        """Set several scalars, their names put behind ``prefix``."""
        known = self.scalars.setdefault(str(collection), {})
        if prefix:
            known.update({f"{prefix}{name}": value for name, value in values.items()})
        else:
            known.update(values)

    def measure(
        self,
        rows: Sequence[int],
        tensors: Sequence[Tensor],
        finish: Callable[[FloatArray], object] | None = None,
    ) -> None:
        """Set rows of the layout to the statistics of tensors, as they are when ``settle`` runs.

        Args:
            rows: Of the layout, R.
            tensors: As many.
            finish: Given the statistics (R, 32), which it may change.
        """
        if tensors:
            self._waiting.append(_Group(rows, tensors, finish))

    def later(self, add: Callable[[], object]) -> None:
        """Have something added when ``settle`` runs."""
        self._later.append(add)

    def settle(self) -> None:
        """Measure all that waits, in one go."""
        late, self._later = self._later, []
        for add in late:
            add()
        if not self._waiting:
            return
        groups, self._waiting = self._waiting, []
        if self.raw is not None:
            for group in groups:
                self.raw.add(group.rows, group.tensors)
        tensors = [tensor for group in groups for tensor in group.tensors]
        out = np.empty((len(tensors), WIDTH))
        (table if self.exact else sampled_table)(tensors, out)
        begin = 0
        for group in groups:
            part = out[begin : begin + len(group.tensors)]
            begin += len(part)
            if group.finish is not None:
                group.finish(part)
            self.rows(np.array(group.rows), part)

    def rows(self, rows: IntArray, table: FloatArray) -> None:
        """Set rows (R,) of the layout to ``table`` (R, 32)."""
        self.tables.append((rows, table))
        if len(self.tables) > _MAX_TABLES:  # a loop that records and never steps
            last = {
                row: stats
                for many, tables in self.tables
                for row, stats in zip(many.tolist(), tables, strict=True)
            }
            self.tables = [(np.array(list(last), dtype=np.int64), np.array(list(last.values())))]

    @property
    def empty(self) -> bool:
        """True if there is nothing to save."""
        kept = (self.scalars, self.tables, self.channels, self.labels, self._waiting, self._later)
        return not any(kept)
