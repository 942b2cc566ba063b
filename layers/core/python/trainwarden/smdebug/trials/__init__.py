"""``smdebug.trials``."""

from __future__ import annotations

from collections.abc import Sequence

from trainwarden.errors import BadInputError
from trainwarden.trial import StepState, Trial, open_trial

__all__ = ["StepState", "Trial", "create_trial"]


def create_trial(
    path: str,
    name: str | None = None,
    range_steps: Sequence[int | None] | None = None,
    profiler: bool = False,  # noqa: FBT001, FBT002 - as smdebug has it
    output_dir: str | None = None,
) -> Trial:
    """Open a recorded run, ``open_trial``.

    Args:
        path: Folder or ``s3://bucket/prefix``.
        name: Job to open where several lie there.
        range_steps: Accepted where it leaves nothing out: ``None`` or ``(0, None)``.
        profiler: Accepted as False only: profiler output is not read.
        output_dir: Accepted and without effect.

    Raises:
        NotFoundError: nothing is recorded there.
        BadInputError: something that is not read here.
    """
    del output_dir
    if profiler:
        raise BadInputError("profiler=False", "True", "profiler output is not read here")
    if range_steps is not None and (range_steps[0] or any(range_steps[1:])):
        raise BadInputError("all steps", f"range_steps={range_steps}", "ask for the steps you want")
    return open_trial(path, name)
