"""Waiting for imports, and what ``trainwarden run`` hands to a command."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainwarden.cli.main import main
from trainwarden.cli.run import SITE, environment
from trainwarden.hook import auto
from trainwarden.hook.auto import imports


@pytest.fixture
def finder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A finder of the test's own, and a folder of modules that can be imported."""
    monkeypatch.setattr(imports, "_FINDER", imports._Finder())
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    if imports._FINDER in sys.meta_path:
        sys.meta_path.remove(imports._FINDER)
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_it_acts_once_the_module_has_run_whoever_imports_it(finder: Path) -> None:
    (finder / "waited_for.py").write_text("value = 1")
    (finder / "importer.py").write_text("import waited_for, importlib.util")
    seen: list[int] = []
    imports.after({"waited_for": lambda: seen.append(sys.modules["waited_for"].value)})
    assert imports._FINDER in sys.meta_path
    import importer  # type: ignore[import-not-found]

    assert importer.waited_for.value == 1
    assert seen == [1]
    assert imports._FINDER not in sys.meta_path


@pytest.mark.usefixtures("finder")
def test_it_acts_at_once_if_the_module_is_there_and_only_once() -> None:
    seen: list[str] = []
    for _ in range(2):
        imports.after({"json": lambda: seen.append("json")})
    assert seen == ["json"]
    assert imports._FINDER not in sys.meta_path


@pytest.mark.usefixtures("finder")
def test_a_module_that_does_not_exist_fails_as_it_always_does() -> None:
    imports.after({"no_such_module": lambda: None})
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        import no_such_module  # type: ignore[import-not-found]  # noqa: F401


def test_an_error_of_ours_is_said_and_the_import_goes_on(
    finder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (finder / "waited_for.py").write_text("value = 1")
    imports.after({"waited_for": lambda: 1 / 0})
    with caplog.at_level(logging.WARNING, "trainwarden"):
        import waited_for  # type: ignore[import-not-found]

    assert waited_for.value == 1
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("value", ["", "0", "false", "No", " off "])
def test_it_is_off_unless_the_environment_asks_for_it(value: str) -> None:
    assert not auto.activate({auto.VARIABLE: value})
    assert not auto.activate({})


def test_options_that_are_no_json_are_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "trainwarden"):
        assert auto._options('{"job": ') == {}
    assert "expected 1, or the options of watch" in caplog.text
    assert auto._options("1") == {}
    assert auto._options('{"job": "a", "save_interval": 5}') == {"job": "a", "save_interval": 5}


def test_a_command_gets_the_options_and_where_interpreters_look_first() -> None:
    asked = Namespace(job="a", out=None, save_interval=5)
    before = {"PYTHONPATH": "mine", auto.VARIABLE: '{"job": "b", "strict": true}', "OTHER": "kept"}
    made = environment(asked, before)
    assert json.loads(made[auto.VARIABLE]) == {"job": "a", "strict": True, "save_interval": 5}
    assert made["PYTHONPATH"].split(":") == [str(SITE), "mine"]
    assert made["OTHER"] == "kept"
    assert environment(Namespace(job=None, out=None, save_interval=None), {})[auto.VARIABLE] == "{}"


def test_no_command_and_one_that_does_not_exist_are_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["run"]) == 2
    assert "trainwarden run -- python train.py" in capsys.readouterr().err
    assert main(["run", "--", "no-such-command"]) == 2
    assert "no-such-command" in capsys.readouterr().err


def test_the_sitecustomize_of_others_runs_too(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('of others')")
    made = environment(
        Namespace(job=None, out=None, save_interval=None), {"PYTHONPATH": str(tmp_path)}
    )
    code = "import sys; print('trainwarden.hook.auto' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], env=made, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["of others", "True"]
