"""What is packed for Lambda: enough to start every handler, and no more."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import botocore
import pytest
from aws_cdk import App, Stack
from aws_cdk.assertions import Annotations, Match
from botocore.loaders import Loader

from infra import packing
from infra.config import Config
from infra.constructs.layers import REQUIREMENTS, Layers
from tests.infra.command import Assembly
from tests.infra.synthesis import ROOT

HANDLERS = ("evaluator", "announcer", "jobs", "sweeper", "notifier", "stopper")
IMPORT = """
import sys
sys.path[:0] = {paths!r}
import importlib, botocore, numpy, aws_lambda_powertools, trainwarden
assert callable(importlib.import_module("lambdas.{package}.handler").handler)
from lambdas.shared import wiring
import trainwarden.pipeline, trainwarden.store.dynamo, trainwarden.store.s3, trainwarden.engine
for module in (botocore, numpy, aws_lambda_powertools, trainwarden, wiring):
    print(module.__file__)
"""


def layers(assembly: Assembly) -> dict[str, Path]:
    return {
        "core" if "Core" in id_ else "deps": folder / "python"
        for id_, folder in assembly.assets("AWS::Lambda::LayerVersion").items()
    }


def function(assembly: Assembly, package: str) -> Path:
    (found,) = (
        folder
        for folder in assembly.assets("AWS::Lambda::Function").values()
        if (folder / "lambdas" / package).is_dir()
    )
    return found


@pytest.mark.parametrize("package", HANDLERS)
def test_a_handler_starts_from_what_is_packed_alone(assembly: Assembly, package: str) -> None:
    packed = [function(assembly, package), *layers(assembly).values()]
    code = IMPORT.format(paths=list(map(str, packed)), package=package)
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code],  # -S leaves out the environment's packages
        capture_output=True,
        text=True,
        check=False,
        env={"POWERTOOLS_SERVICE_NAME": package, "AWS_DEFAULT_REGION": "eu-central-1"},
    )
    assert done.returncode == 0, done.stderr
    came_from = done.stdout.split()
    assert len(came_from) == 5
    assert all(any(path.startswith(str(p)) for p in packed) for path in came_from)


def test_the_sdk_knows_the_services_that_are_called_and_all_they_can_do(
    assembly: Assembly,
) -> None:
    slim = layers(assembly)["deps"] / "botocore" / "data"
    full = Path(botocore.__file__).parent / "data"
    assert {path.name for path in slim.iterdir() if path.is_dir()} == packing.SERVICES
    for service in packing.SERVICES:
        slim_model, full_model = (
            Loader(
                extra_search_paths=[str(data)], include_default_search_paths=False
            ).load_service_model(service, "service-2")
            for data in (slim, full)
        )
        assert slim_model["operations"].keys() == full_model["operations"].keys()
        assert slim_model["shapes"].keys() == full_model["shapes"].keys()
        for name, shape in full_model["shapes"].items():
            assert slim_model["shapes"][name].get("members", {}).keys() == (
                shape.get("members", {}).keys()
            )


def test_what_only_people_s_machines_run_is_left_out(assembly: Assembly) -> None:
    parts = {path.name for path in (layers(assembly)["core"] / "trainwarden").iterdir()}
    assert {"engine", "pipeline", "rules", "stats", "store", "wire"} <= parts
    assert not {"hook", "cli", "embedded", "plots", "report"} & parts


def test_a_function_holds_its_own_package_and_the_shared_one(assembly: Assembly) -> None:
    for package in HANDLERS:
        folder = function(assembly, package) / "lambdas"
        parts = {p.name for p in folder.iterdir() if p.name != "__pycache__"}
        assert parts == {"__init__.py", "shared", package}


def test_bytecode_is_shipped_and_is_never_checked_against_sources(assembly: Assembly) -> None:
    """Lambda cannot write bytecode: without it each cold start compiles what it imports."""
    for folder in (*layers(assembly).values(), function(assembly, "evaluator")):
        for source in folder.rglob("*.py"):
            compiled = Path(importlib.util.cache_from_source(str(source)))
            assert compiled.is_file(), source
            flags = int.from_bytes(compiled.read_bytes()[4:8], "little")
            assert flags == 1, source  # hash-based, unchecked


def test_the_dependencies_are_trimmed_and_far_below_lambda_s_limit(assembly: Assembly) -> None:
    files = [path for path in layers(assembly)["deps"].rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 80_000_000  # of 250 MB
    assert not [p for p in files if p.suffix in {".pyi", ".h", ".c"} or "tests" in p.parts]


def test_the_lock_names_hashes_and_no_addresses() -> None:
    lines = REQUIREMENTS.read_text("utf-8").splitlines()
    pinned = [line for line in lines if line and not line.startswith((" ", "#"))]
    assert {line.split("==")[0] for line in pinned} == {
        "aws-lambda-powertools",
        "botocore",
        "jmespath",
        "numpy",
        "python-dateutil",
        "six",
        "typing-extensions",
        "urllib3",
    }
    assert all(line.endswith("\\") for line in pinned)
    assert not [line for line in lines if "://" in line or line.startswith("-")]


@pytest.mark.parametrize(
    ("python", "architecture", "tag"),
    [
        ("3.10", "x86_64", "cpython-310-x86_64"),
        ("3.12", "arm64", "cpython-312-aarch64"),
        ("3.14", "arm64", "cpython-314-aarch64"),
    ],
)
def test_wheels_are_those_of_the_configured_runtime_wherever_they_are_built(
    tmp_path: Path, python: str, architecture: str, tag: str
) -> None:
    config = Config.model_validate({"python": python, "architecture": architecture})
    app = App(context={"aws:cdk:bundling-stacks": []})
    Layers(Stack(app, "Stack"), "Layers", config=config).build_deps(tmp_path)
    libraries = [path.name for path in tmp_path.rglob("*.so") if "cpython" in path.name]
    assert libraries
    assert all(tag in name for name in libraries)


def test_an_interpreter_that_is_not_there_is_no_error(tmp_path: Path) -> None:
    source = tmp_path / "module.py"
    source.write_text("ANSWER = 42\n")
    packing.add_bytecode(tmp_path, "3.99", runs_in="/opt/python")
    assert [path.name for path in tmp_path.iterdir()] == ["module.py"]


@pytest.mark.parametrize("found", [sys.executable, None])
def test_layers_without_bytecode_are_warned_of(
    found: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "interpreter", lambda _python: found)
    stack = Stack(App(context={"aws:cdk:bundling-stacks": []}), "Stack")
    Layers(stack, "Layers", config=Config())
    pattern = Match.string_like_regexp("no Python 3.13 on this machine")
    warnings = Annotations.from_stack(stack).find_warning("/Stack/Layers", pattern)
    assert len(warnings) == (found is None)


def test_without_uv_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _name: None)
    monkeypatch.setitem(sys.modules, "uv", None)
    with pytest.raises(packing.BundlingError, match="pip install uv"):
        packing.uv()


def test_the_order_of_files_and_their_times_do_not_change_an_asset() -> None:
    files = [ROOT / "app.py", ROOT / "cdk.json"]
    before = packing.digest(files)
    assert packing.digest(reversed(files)) == before
    assert packing.digest(files[:1]) != before
