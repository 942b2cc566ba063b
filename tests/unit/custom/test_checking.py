"""What a folder is told before it is deployed; ``tests/infra`` has the ways of being wrong."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainwarden import rules
from trainwarden.cli.main import main
from trainwarden.custom.checking import check
from trainwarden.custom.folder import load, modules
from trainwarden.custom.local import LocalCustomRules
from trainwarden.errors import BadInputError, NotFoundError
from trainwarden.rules import registry

EXAMPLE = Path(__file__).parents[3] / "examples/custom_rule/rules"
DEPLOYED = Path(__file__).parents[2] / "deployed/custom_rules"


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(rules, "_added", [])
    yield
    monkeypatch.undo()
    registry.cache_clear()


@pytest.mark.parametrize("folder", [EXAMPLE, DEPLOYED], ids=["example", "deployed-tests"])
def test_good_folders_have_no_problem(folder: Path) -> None:
    described, problems = check(folder)
    assert problems == []
    assert {one["name"] for one in described} == {*load(folder)}


def test_what_rules_new_writes_can_be_deployed(tmp_path: Path) -> None:
    assert main(["rules", "new", "HighLoss", "--folder", str(tmp_path)]) == 0
    described, problems = check(tmp_path)
    assert problems == []
    assert [one["code"] for one in described] == ["USR901"]
    assert [file.name for file in modules(tmp_path)] == ["high_loss.py"]


def test_modules_share_what_lies_beside_them(tmp_path: Path) -> None:
    (tmp_path / "rules.py").write_bytes((DEPLOYED / "rules.py").read_bytes())
    (tmp_path / "_bad.py").write_text('WAYS = {"raise": None}\n')
    assert {*load(tmp_path)} == {"LossSeen", "Bad"}


def test_one_name_twice_is_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.py").write_bytes((EXAMPLE / "one_layer_learns.py").read_bytes())
    with pytest.raises(BadInputError, match="OneLayerLearns twice"):
        load(tmp_path)


def test_no_folder_no_rules(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="there is no folder"):
        load(tmp_path / "nowhere")
    with pytest.raises(NotFoundError, match="no rule lies in"):
        load(tmp_path)


def test_a_folder_is_asked_behind_the_port() -> None:
    made = LocalCustomRules.of_folder(EXAMPLE)
    assert "OneLayerLearns" in registry()
    assert {*made.rules} == {"OneLayerLearns"}


def test_a_side_effect_is_told(tmp_path: Path) -> None:
    source = (EXAMPLE / "one_layer_learns.py").read_text("utf-8")
    (tmp_path / "effect.py").write_text(f"{source}\nopen('there', 'w').close()\n")
    command = [sys.executable, "-m", "trainwarden.custom.checking", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "effects: open there" in done.stdout
