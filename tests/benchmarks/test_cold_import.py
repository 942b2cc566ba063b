"""The benchmark of cold starts says what was measured, also where the target is missed."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cold_import() -> Any:
    spec = importlib.util.spec_from_file_location(
        "cold_import", ROOT / "benchmarks" / "cold_import.py"
    )
    assert spec
    assert spec.loader
    module: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("cpu", "verdict"), [(0.59, "met"), (0.61, "MISSED")])
def test_a_missed_target_is_called_missed(cpu: float, verdict: str, cold_import: Any) -> None:
    usual = [cold_import.Start(1.0, 1.0, 600)] * 3
    starts = [cold_import.Start(cpu, 0.1, 400)] * 3
    assert cold_import.row("evaluator", starts, usual).endswith(f"<= 0.6: {verdict}")
    assert "0.6:" not in cold_import.row("notifier", starts, usual)


def test_one_start_in_a_bad_moment_does_not_move_a_ratio(cold_import: Any) -> None:
    usual = [cold_import.Start(1.0, 1.0, 600)] * 5
    starts = [cold_import.Start(cpu, cpu, 400) for cpu in (0.5, 0.5, 9.0, 0.5, 0.5)]
    assert cold_import.row("evaluator", starts, usual).split()[4] == "0.50"


def test_what_is_measured_is_what_is_shipped(tmp_path: Path, cold_import: Any) -> None:
    cases = {case.name: case for case in cold_import.pack(tmp_path)}
    evaluator = cases["evaluator"]
    assert not (tmp_path / "core" / "trainwarden" / "hook").exists()
    for folder in evaluator.paths[:3]:
        sources = list(folder.rglob("*.py"))
        assert sources
        assert all(Path(importlib.util.cache_from_source(str(s))).is_file() for s in sources)
    code = evaluator.code + "\nassert not {'boto3', 'trainwarden.hook'} & set(sys.modules)"
    assert evaluator._replace(code=code).start().cpu > 0
