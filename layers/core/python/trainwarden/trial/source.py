"""What a trial reads from: our own runs, traces of SageMaker Debugger, what a fold has seen."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy.typing as npt

from trainwarden.model import Json, Mode

Array = npt.NDArray[Any]


class Moment(NamedTuple):
    """A saved step. The numbering of ``step`` is shared by all modes."""

    step: int
    mode: Mode
    mode_step: int


@dataclass(frozen=True)
class CollectionInfo:
    """A named set of tensors.

    Attributes:
        name: Its name.
        tensor_names: Members that were named.
        include_regex: Names that match anywhere belong to it, too.
        save_config: How often it was saved, by mode; empty if unknown.
        reduction_config: Which reductions were saved of it; empty if unknown.
    """

    name: str
    tensor_names: frozenset[str] = frozenset()
    include_regex: tuple[str, ...] = ()
    save_config: Mapping[str, Json] = field(default_factory=dict)
    reduction_config: Mapping[str, Json] = field(default_factory=dict)

    def holds(self, tensor: str) -> bool:
        """Say whether a tensor belongs to it."""
        return tensor in self.tensor_names or any(re.search(p, tensor) for p in self.include_regex)


class Unknown(Exception):  # noqa: N818 - no error: the trial turns it into one that knows the step
    """A cell does not hold what was asked for; the message says what it does hold."""


class Cell(Protocol):
    """One tensor at one moment on one worker."""

    @property
    def saved(self) -> Sequence[str]:
        """Reductions that can be had without the values, such as ``mean`` and ``abs_mean``."""
        ...

    def value(self) -> Array:
        """Return the values; text is an array of ``str``.

        Raises:
            Unknown: only reductions or the shape were kept.
            MalformedObjectError: what was written cannot be read.
        """
        ...

    def reduction(self, name: str, *, absolute: bool) -> float:
        """Return a number that sums the tensor up.

        Raises:
            Unknown: it was not kept and cannot be worked out.
            MalformedObjectError: what was written cannot be read.
        """
        ...

    def shape(self) -> tuple[int, ...]:
        """Return the shape.

        Raises:
            Unknown: neither values nor shape were kept.
            MalformedObjectError: what was written cannot be read.
        """
        ...


Workers = Mapping[str, Cell]


class Source(Protocol):
    """Where a trial's numbers come from."""

    @property
    def name(self) -> str:
        """The job's name."""
        ...

    @property
    def finished(self) -> bool:
        """True if nothing more will come."""
        ...

    @property
    def num_workers(self) -> int:
        """How many workers write."""
        ...

    @property
    def workers(self) -> Sequence[str]:
        """Names of the workers that have written something, ascending."""
        ...

    @property
    def collections(self) -> Mapping[str, CollectionInfo]:
        """Collections by name."""
        ...

    @property
    def moments(self) -> Mapping[Moment, frozenset[str]]:
        """Every saved step, in the order of steps, with the workers that wrote it."""
        ...

    @property
    def tensors(self) -> Mapping[str, Mapping[Moment, Workers]]:
        """Tensor → saved step → worker → what was kept."""
        ...

    def refresh(self) -> None:
        """Look for what came since.

        Raises:
            MalformedObjectError: something that nobody can read.
            RetryableError: the store does not answer.
        """
        ...
