"""One tensor of a trial, over all saved steps."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import TYPE_CHECKING

from trainwarden.model import Mode
from trainwarden.trial.exceptions import (
    InvalidWorker,
    ShapeUnavailableForStep,
    StepUnavailable,
    TensorUnavailableForStep,
)
from trainwarden.trial.source import Array, Cell, Moment, Unknown, Workers

if TYPE_CHECKING:
    from trainwarden.trial.trial import Trial

MERGED = ""  # stands for all workers together, where a source knows them merged


class Tensor:
    """What is known of a tensor.

    Steps are global ones, or those of a mode where one is given.

    Attributes:
        name: Its name.
    """

    def __init__(self, trial: Trial, name: str) -> None:
        self.name = name
        self._trial = trial

    @property
    def original_name(self) -> str:
        """The name in the framework; the same."""
        return self.name

    def steps(self, mode: Mode = Mode.GLOBAL, *, show_incomplete_steps: bool = False) -> list[int]:
        """Return the steps at which it was saved, ascending."""
        self._trial.maybe_refresh()
        return self._trial.numbered(self._cells(), mode, incomplete=show_incomplete_steps)

    def prev_steps(self, step: int, n: int | None, mode: Mode = Mode.GLOBAL) -> list[int]:
        """Return the last ``n`` saved steps up to and including ``step``; all for None."""
        steps = self.steps(mode)
        before = steps[: bisect_right(steps, step)]
        return before if n is None else before[max(0, len(before) - n) :]

    def workers(self, step: int, mode: Mode = Mode.GLOBAL) -> list[str]:
        """Return the workers that saved it at a step.

        Raises:
            StepUnavailable: the step was not saved.
            TensorUnavailableForStep: it was, without this tensor.
        """
        return [name for name in self._at(step, mode) if name != MERGED]

    def value(self, step: int, mode: Mode = Mode.GLOBAL, worker: str | None = None) -> Array:
        """Return its values at a step; of the first worker, or all merged, unless one is named.

        Raises:
            StepUnavailable: the step was not saved.
            TensorUnavailableForStep: the values were not kept; says what was.
            InvalidWorker: no such worker.
            MalformedObjectError: what was written cannot be read.
        """
        try:
            return self._cell(step, mode, worker).value()
        except Unknown as error:
            raise TensorUnavailableForStep(self.name, step, mode, str(error)) from error

    def values(self, mode: Mode = Mode.GLOBAL, worker: str | None = None) -> dict[int, Array]:
        """Return step → values.

        Raises:
            As ``value``.
        """
        return {step: self.value(step, mode, worker) for step in self.steps(mode)}

    def shape(
        self, step: int, mode: Mode = Mode.GLOBAL, worker: str | None = None
    ) -> tuple[int, ...]:
        """Return its shape at a step; in our own runs without the batch dimension.

        Raises:
            StepUnavailable: the step was not saved.
            ShapeUnavailableForStep: neither values nor shape were kept.
        """
        try:
            return self._cell(step, mode, worker).shape()
        except Unknown as error:
            raise ShapeUnavailableForStep(self.name, step, mode, str(error)) from error

    def reduction_value(
        self,
        step: int,
        reduction_name: str,
        mode: Mode = Mode.GLOBAL,
        worker: str | None = None,
        abs: bool = False,  # noqa: A002, FBT001, FBT002 - the name and place are SageMaker's
    ) -> float:
        """Return ``min max mean std variance sum prod l1 l2`` of it, or of its absolute values.

        Raises:
            StepUnavailable: the step was not saved.
            TensorUnavailableForStep: it is not known; says what is.
            InvalidWorker: no such worker.
            MalformedObjectError: what was written cannot be read.
        """
        try:
            return self._cell(step, mode, worker).reduction(reduction_name, absolute=abs)
        except Unknown as error:
            raise TensorUnavailableForStep(self.name, step, mode, str(error)) from error

    def reduction_values(
        self, step: int, mode: Mode = Mode.GLOBAL, worker: str | None = None
    ) -> dict[str, float]:
        """Return the reductions that were saved, such as ``mean`` and ``abs_mean``.

        Raises:
            As ``reduction_value``.
        """
        cell, found = self._cell(step, mode, worker), {}
        for name in cell.saved:
            plain = name.removeprefix("abs_")
            try:
                found[name] = cell.reduction(plain, absolute=plain != name)
            except Unknown:
                continue  # an empty tensor, or a reduction that somebody else invented
        return found

    def _cells(self) -> Mapping[Moment, Workers]:
        return self._trial.source.tensors.get(self.name, {})

    def _at(self, step: int, mode: Mode) -> Workers:
        self._trial.maybe_refresh()
        moments = self._trial.moments_at(step, mode)
        if not moments:
            raise StepUnavailable(step, mode)
        cells = self._cells()
        for moment in moments:
            if moment in cells:
                return cells[moment]
        raise TensorUnavailableForStep(self.name, step, mode, "it was not saved at this step")

    def _cell(self, step: int, mode: Mode, worker: str | None) -> Cell:
        by_worker = self._at(step, mode)
        if worker is None:
            return by_worker.get(MERGED) or next(iter(by_worker.values()))
        if worker not in self._trial.source.workers:
            raise InvalidWorker(worker)
        if worker not in by_worker:
            why = f"{worker} did not save it"
            raise TensorUnavailableForStep(self.name, step, mode, why)
        return by_worker[worker]
