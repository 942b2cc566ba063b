"""Programs with one fault each, and their repaired twins: faults show in numbers, twins learn."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")

from benchmarks import detection  # noqa: E402 - needs torch
from tests.training.evidence import Evidence  # noqa: E402 - needs torch

# what is ill may well be warned of by torch itself: shapes that broadcast, schedules before steps
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

FOLDER = Path(__file__).parent / "faulty"
MANIFEST = json.loads((FOLDER / "manifest.json").read_text())
# programs of which the rules say nothing right as yet
SILENT = {"f31", "f35", "f92"}
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


class Both:
    """Evidence and the real hook watch the same run."""

    def __init__(self) -> None:
        self.evidence, self.adapter = Evidence(), detection.Adapter(None)

    def on_start(self, *args: Any) -> None:
        self.evidence.on_start(*args)
        self.adapter.on_start(*args)

    def on_step(self, *args: Any) -> None:
        self.evidence.on_step(*args)
        self.adapter.on_step(*args)

    def on_end(self) -> None:
        self.adapter.on_end()


class Ran(NamedTuple):
    numbers: dict[str, float]
    labels: set[str]


@pytest.fixture(scope="module")
def ran(core: Any) -> Callable[[str, str], Ran]:
    @cache
    def run(module: str, variant: str) -> Ran:
        both = Both()
        core.run_program(module, both, variant, seed=0)
        found = detection.judge(list(detection.observations(both.adapter.store)))
        return Ran(both.evidence.numbers(), {detection.LABELS.get(f.rule, f.rule) for f in found})

    return run


def test_every_label_is_the_cause_of_a_program() -> None:
    assert {label for case in CASES for label in case["labels"]} == VOCABULARY


def test_programs_are_told_apart_and_speak_the_vocabulary() -> None:
    assert len({case["id"] for case in CASES}) == len({case["module"] for case in CASES})
    assert len({case["module"] for case in CASES}) == len(CASES)
    for case in CASES:
        assert set(case["labels"]) <= set(case["accept"]) <= VOCABULARY, case["id"]
        assert set(case["tolerate"]) <= VOCABULARY - set(case["accept"]), case["id"]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c["module"].partition(":")[2])
def test_the_fault_shows_and_the_twin_learns(case: dict[str, Any], ran: Any) -> None:
    names = {v[0]: ran(case["module"], v).numbers for v in ("faulty", "healthy")}
    assert eval(case["shows"], {}, names), names["f"]  # noqa: S307 - our own manifest
    assert eval(case["learns"], {}, names), names["h"]  # noqa: S307 - our own manifest


@pytest.mark.parametrize("case", CASES, ids=lambda c: c["module"].partition(":")[2])
def test_no_rule_speaks_of_the_twin(case: dict[str, Any], ran: Any) -> None:
    assert ran(case["module"], "healthy").labels == set()


@pytest.mark.parametrize(
    "case", [c for c in CASES if c["id"] not in SILENT], ids=lambda c: c["module"].partition(":")[2]
)
def test_a_right_label_is_told(case: dict[str, Any], ran: Any) -> None:
    assert ran(case["module"], "faulty").labels & set(case["accept"])
