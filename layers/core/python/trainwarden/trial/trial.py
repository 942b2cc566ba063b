"""What was recorded of a job, to be asked for: steps, tensors, collections, values, reductions.

The surface is SageMaker Debugger's, over our own runs and over traces that it recorded.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from enum import Enum

from trainwarden.errors import BadInputError
from trainwarden.model import Mode
from trainwarden.trial.exceptions import NoMoreData, StepUnavailable, TensorUnavailable
from trainwarden.trial.source import CollectionInfo, Moment, Source
from trainwarden.trial.tensor import Tensor

POLL_S = 2.0
_NEAR = 3  # names shown of those that were saved
# Where two modes share a step number, as in our own runs, training is what is meant.
_ORDER = {Mode.TRAIN: 0, Mode.GLOBAL: 1, Mode.EVAL: 2, Mode.PREDICT: 3}


class StepState(Enum):
    """Whether a step can be had."""

    UNAVAILABLE = 0
    AVAILABLE = 1
    NOT_YET_AVAILABLE = 2


class Trial:
    """A recorded job.

    Args:
        source: Where the numbers come from.
        sleep: Waits between two looks, seconds; for tests.

    Attributes:
        dynamic_refresh: Look for new steps at every question, as long as the job runs.
    """

    def __init__(self, source: Source, sleep: Callable[[float], None] = time.sleep) -> None:
        self.source = source
        self.dynamic_refresh = True
        self._sleep = sleep
        self.refresh()

    @property
    def name(self) -> str:
        """Name of the job."""
        return self.source.name

    @property
    def loaded_all_steps(self) -> bool:
        """True if the job has ended and all it saved was read."""
        return self.source.finished

    @property
    def num_workers(self) -> int:
        """How many workers write."""
        return self.source.num_workers

    @property
    def last_complete_step(self) -> int:
        """The last global step that all workers have saved; -1 before the first."""
        return max(self.steps(), default=-1)

    def refresh(self) -> None:
        """Look for what came since.

        Raises:
            MalformedObjectError: something that nobody can read.
            RetryableError: the store does not answer.
        """
        self.source.refresh()

    refresh_data = refresh

    def maybe_refresh(self, name: str | None = None) -> None:
        """Look for what came since, unless the job has ended or nobody wants to."""
        del name
        if self.dynamic_refresh and not self.source.finished:
            self.refresh()

    def workers(self) -> list[str]:
        """Return the names of the workers."""
        self.maybe_refresh()
        return list(self.source.workers)

    def modes(self) -> list[Mode]:
        """Return the modes in which steps were saved, ``GLOBAL`` apart."""
        self.maybe_refresh()
        found = {moment.mode for moment in self.source.moments} - {Mode.GLOBAL}
        return sorted(found, key=str)

    def steps(self, mode: Mode = Mode.GLOBAL, *, show_incomplete_steps: bool = False) -> list[int]:
        """Return the saved steps, ascending: global ones, or those of a mode in its own numbers."""
        self.maybe_refresh()
        return self.numbered(self.source.moments, mode, incomplete=show_incomplete_steps)

    def numbered(self, moments: Iterable[Moment], mode: Mode, *, incomplete: bool) -> list[int]:
        """Return the numbers of ``moments`` in a mode, ascending."""
        last = -1 if incomplete else self._last_complete()
        chosen = [m for m in moments if incomplete or m.step <= last]
        if mode is Mode.GLOBAL:
            return sorted({moment.step for moment in chosen})
        return sorted({moment.mode_step for moment in chosen if moment.mode is mode})

    def _last_complete(self) -> int:
        """Steps up to this one are complete: all workers saved it, or the job has ended."""
        moments = self.source.moments
        wanted = 1 if self.source.finished else self.source.num_workers
        return max((m.step for m, who in moments.items() if len(who) >= wanted), default=-1)

    def moments_at(self, step: int, mode: Mode) -> list[Moment]:
        """Return what was saved at a step, what is meant first."""
        if mode is Mode.GLOBAL:
            found = [moment for moment in self.source.moments if moment.step == step]
        else:
            found = [
                moment
                for moment in self.source.moments
                if moment.mode is mode and moment.mode_step == step
            ]
        return sorted(found, key=lambda moment: (_ORDER[moment.mode], -moment.step))

    def mode(self, global_step: int) -> Mode:
        """Return the mode of a global step.

        Raises:
            StepUnavailable: it was not saved.
        """
        return self.mode_modestep(global_step)[0]

    def mode_step(self, global_step: int) -> int:
        """Return the number of a global step within its mode.

        Raises:
            StepUnavailable: it was not saved.
        """
        return self.mode_modestep(global_step)[1]

    def mode_modestep(self, global_step: int) -> tuple[Mode, int]:
        """Return mode and number within it of a global step.

        Raises:
            StepUnavailable: it was not saved.
        """
        self.maybe_refresh()
        found = self.moments_at(global_step, Mode.GLOBAL)
        if not found:
            raise StepUnavailable(global_step)
        return found[0].mode, found[0].mode_step

    def global_step(self, mode: Mode, mode_step: int) -> int:
        """Return the global step of a mode's step.

        Raises:
            StepUnavailable: it was not saved.
        """
        self.maybe_refresh()
        found = self.moments_at(mode_step, mode)
        if not found:
            raise StepUnavailable(mode_step, mode)
        return found[0].step

    def collections(self) -> dict[str, CollectionInfo]:
        """Return the collections by name."""
        self.maybe_refresh()
        return dict(self.source.collections)

    def collection(self, name: str) -> CollectionInfo:
        """Return a collection; an empty one if nobody knows it."""
        return self.collections().get(name, CollectionInfo(name))

    def tensor_names(
        self,
        step: int | None = None,
        mode: Mode = Mode.GLOBAL,
        regex: str | Iterable[str] | None = None,
        collection: str | CollectionInfo | None = None,
    ) -> list[str]:
        """Return names of tensors, ascending.

        Args:
            step: Only those saved at this step.
            mode: Only those saved in this mode.
            regex: Only those that one of these matches from the start of the name.
            collection: Only its members.

        Raises:
            BadInputError: both a regex and a collection, or a regex that is none.
        """
        if regex is not None and collection is not None:
            raise BadInputError("a regex or a collection", "both", "ask twice")
        self.maybe_refresh()
        names: Iterable[str] = self.source.tensors
        if step is not None or mode is not Mode.GLOBAL:
            names = self._saved(step, mode)
        if regex is not None:
            patterns = _compiled([regex] if isinstance(regex, str) else regex)
            names = [name for name in names if any(p.match(name) for p in patterns)]
        if collection is not None:
            known = collection if isinstance(collection, CollectionInfo) else None
            members = known or self.collection(str(collection))
            names = [name for name in names if members.holds(name)]
        return sorted(names)

    def _saved(self, step: int | None, mode: Mode) -> list[str]:
        if step is None:
            wanted = {moment for moment in self.source.moments if moment.mode is mode}
        else:
            wanted = set(self.moments_at(step, mode))
        return [name for name, cells in self.source.tensors.items() if not wanted.isdisjoint(cells)]

    def has_tensor(self, name: str) -> bool:
        """Say whether a tensor was ever saved."""
        self.maybe_refresh()
        return name in self.source.tensors

    def tensor(self, name: str) -> Tensor:
        """Return a tensor.

        Raises:
            TensorUnavailable: it was never saved.
        """
        if not self.has_tensor(name):
            part = name.rpartition("/")[2].rpartition("_")[2]
            near = [known for known in self.source.tensors if part and part in known][:_NEAR]
            raise TensorUnavailable(name, f"there are {', '.join(near)}" if near else "")
        return Tensor(self, name)

    def tensors(self, names: Iterable[str]) -> Mapping[str, Tensor]:
        """Return tensors by name.

        Raises:
            TensorUnavailable: one was never saved.
        """
        return {name: self.tensor(name) for name in names}

    def has_passed_step(self, step: int, mode: Mode = Mode.GLOBAL) -> StepState:
        """Say whether a step is there, will never come, or may still come."""
        steps = self.steps(mode)
        if step in steps:
            return StepState.AVAILABLE
        passed = self.source.finished or (bool(steps) and steps[-1] > step)
        return StepState.UNAVAILABLE if passed else StepState.NOT_YET_AVAILABLE

    def wait_for_steps(self, required_steps: Iterable[int], mode: Mode = Mode.GLOBAL) -> None:
        """Wait until steps are there.

        Raises:
            StepUnavailable: one was passed without being saved.
            NoMoreData: the job has ended before it.
        """
        for step in required_steps:
            while (state := self.has_passed_step(step, mode)) is StepState.NOT_YET_AVAILABLE:
                self._sleep(POLL_S)
                self.refresh()
            if state is StepState.UNAVAILABLE:
                steps = self.steps(mode)
                if not steps or step > steps[-1]:
                    raise NoMoreData(step, mode, steps[-1] if steps else -1)
                raise StepUnavailable(step, mode)

    def __repr__(self) -> str:
        return f"Trial({self.name!r}, {len(self.source.moments)} saved steps)"


def _compiled(patterns: Iterable[str]) -> list[re.Pattern[str]]:
    try:
        return [re.compile(pattern) for pattern in patterns]
    except re.error as error:
        raise BadInputError("a regular expression", f"{error.pattern!r}: {error}") from error
