"""Programs with one fault each, and their repaired twins: faults show in numbers, twins learn."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")

from tests.training.evidence import Evidence  # noqa: E402 - needs torch

# what is ill may well be warned of by torch itself: shapes that broadcast, schedules before steps
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

FOLDER = Path(__file__).parent / "faulty"
MANIFEST = json.loads((FOLDER / "manifest.json").read_text())
CASES, VOCABULARY = MANIFEST["cases"], set(MANIFEST["label_vocabulary"])


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
    for name in {"core", "programs", *(c["module"].partition(":")[0] for c in CASES)} - before:
        sys.modules.pop(name, None)


def numbers(core: Any, module: str, variant: str) -> dict[str, float]:
    evidence = Evidence()
    core.run_program(module, evidence, variant, seed=0)
    return evidence.numbers()


def test_every_label_is_the_cause_of_a_program() -> None:
    assert {label for case in CASES for label in case["labels"]} == VOCABULARY


def test_programs_are_told_apart_and_speak_the_vocabulary() -> None:
    assert len({case["id"] for case in CASES}) == len({case["module"] for case in CASES})
    assert len({case["module"] for case in CASES}) == len(CASES)
    for case in CASES:
        assert set(case["labels"]) <= set(case["accept"]) <= VOCABULARY, case["id"]
        assert set(case["tolerate"]) <= VOCABULARY - set(case["accept"]), case["id"]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c["module"].partition(":")[2])
def test_the_fault_shows_and_the_twin_learns(case: dict[str, Any], core: Any) -> None:
    names = {"f": numbers(core, case["module"], "faulty")}
    names["h"] = numbers(core, case["module"], "healthy")
    assert eval(case["shows"], {}, names), names["f"]  # noqa: S307 - our own manifest
    assert eval(case["learns"], {}, names), names["h"]  # noqa: S307 - our own manifest
