"""Healthy programs of many kinds, under the real hook: none may raise a finding."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")

from benchmarks import detection  # noqa: E402 - needs torch

FOLDER = Path(__file__).parent / "healthy"
PROGRAMS = json.loads((FOLDER / "manifest.json").read_text())["hard_negatives"]


@pytest.fixture(scope="module")
def core() -> Iterator[Any]:
    """The programs import each other by bare names; they leave no trace."""
    before, path, threads = set(sys.modules), list(sys.path), torch.get_num_threads()
    sys.path.insert(0, str(FOLDER))
    torch.set_num_threads(1)
    import core as found  # type: ignore[import-not-found]

    yield found
    torch.set_num_threads(threads)
    sys.path[:] = path
    for name in {"core", "programs", *(p["module"].partition(":")[0] for p in PROGRAMS)} - before:
        sys.modules.pop(name, None)


def test_there_are_programs_of_many_kinds() -> None:
    assert len(PROGRAMS) >= 50
    assert len({p["module"] for p in PROGRAMS}) == len(PROGRAMS)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p["module"].partition(":")[2])
def test_a_healthy_program_raises_no_finding(program: dict[str, Any], core: Any) -> None:
    run = detection.run(core, program, "healthy", 0, None)
    assert [f"{f.rule}: {f.message}" for f in run.findings] == []
    assert run.steps > 0
