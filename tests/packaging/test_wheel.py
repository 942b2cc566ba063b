"""The wheel that users install, built from the layer's source and used without it."""

import ast
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "layers/core/python/trainwarden"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", str(out), str(ROOT)], check=True)
    (built,) = out.glob("trainwarden-*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    return target


def run(site: Path, code: str) -> str:
    """Run code that can see the unpacked wheel but not the sources."""
    front = f"import sys; sys.path[:] = [p for p in sys.path if {str(ROOT)!r} + '/layers' not in p]"
    script = f"{front}; sys.path.insert(0, {str(site)!r}); sys.meta_path = "
    script += "[f for f in sys.meta_path if 'editable' not in repr(f).lower()]\n" + code
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, cwd=site
    )
    return done.stdout.strip()


def test_the_wheel_holds_the_whole_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    sources = {
        f"trainwarden/{path.relative_to(PACKAGE).as_posix()}" for path in PACKAGE.rglob("*.py")
    }
    assert sources <= names
    assert "trainwarden/py.typed" in names
    strange = {n for n in names if not n.startswith("trainwarden")}
    assert strange == set()


@pytest.mark.parametrize(
    ("value", "waits"), [("1", "True"), ('{"job": "a"}', "True"), ("", "False")]
)
def test_an_environment_variable_turns_watching_on_when_an_interpreter_starts(
    wheel: Path, tmp_path: Path, value: str, waits: str
) -> None:
    venv.create(tmp_path, symlinks=True)
    (site,) = (tmp_path / "lib").glob("python3.*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    code = "import sys; print('trainwarden.hook.auto' in sys.modules, 'numpy' in sys.modules)"
    done = subprocess.run(
        [tmp_path / "bin/python", "-c", code], env={"TRAINWARDEN_AUTO": value}, cwd=tmp_path,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == (f"{waits} False\n", "")


def test_rules_are_found_in_the_wheel(installed: Path) -> None:
    code = "from trainwarden.rules import registry; import trainwarden\n"
    code += "print(trainwarden.__file__); print(*sorted(registry()))"
    where, names = run(installed, code).splitlines()
    assert where.startswith(str(installed))
    expected = {path.stem.replace("_", "") for path in (PACKAGE / "rules").glob("[a-z]*.py")}
    assert {name.lower() for name in names.split()} == expected


def test_the_hook_needs_no_rules_no_engine_and_no_table(installed: Path) -> None:
    code = "import trainwarden.hook, sys\n"
    code += "print([m for m in sys.modules if m.startswith(('trainwarden.rules', "
    code += "'trainwarden.engine', 'trainwarden.store.dynamo', 'boto3', 'rich', 'torch'))])"
    assert run(installed, code) == "[]"


def test_importing_the_package_imports_nothing_heavy(installed: Path) -> None:
    code = "import trainwarden, sys; print('numpy' in sys.modules, 'boto3' in sys.modules)"
    assert run(installed, code) == "False False"


@pytest.mark.parametrize(
    "path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: p.relative_to(PACKAGE).as_posix()
)
def test_the_source_is_python_3_10(path: Path) -> None:
    ast.parse(path.read_text(), feature_version=(3, 10))
