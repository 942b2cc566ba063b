from __future__ import annotations

import platform
import subprocess
from pathlib import Path

import pytest

from trainwarden.embedded import deploy, toolchain
from trainwarden.embedded.launcher import Server
from trainwarden.errors import BadInputError, NotFoundError, RetryableError

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("machine", "name"),
    [("x86_64", "x86_64"), ("AMD64", "x86_64"), ("arm64", "arm64"), ("aarch64", "arm64")],
)
def test_this_machines_processor_has_a_name_in_lambda(
    machine: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert deploy.architecture() == name


def test_a_processor_that_lambda_does_not_have_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(BadInputError, match="found riscv64"):
        deploy.architecture()


def test_the_app_is_found_from_a_folder_below_it() -> None:
    assert deploy.app_folder(ROOT / "tests" / "embedded") == ROOT


def test_the_app_is_found_from_an_editable_install_anywhere(tmp_path: Path) -> None:
    assert deploy.app_folder(tmp_path) == ROOT


def test_what_cdk_says_is_in_the_error_when_it_fails(server: Server, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("raise SystemExit('the context is wrong')\n")
    heard: list[str] = []
    deployment = deploy.Deployment(server, tmp_path, progress=heard.append)
    with pytest.raises(RetryableError, match="the context is wrong"):
        deployment.destroy()
    assert any("the context is wrong" in line for line in heard)
    assert "the context is wrong" in (server.state / "cdk.log").read_text()


def test_node_and_the_cdk_are_there_after_the_first_use() -> None:
    found = toolchain.toolchain()
    done = subprocess.run(
        found.command("--version"), capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.startswith(toolchain.CDK_VERSION)


def test_a_download_that_fails_says_so_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(toolchain.CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:9/")
    monkeypatch.setenv("npm_config_fetch_retries", "0")
    with pytest.raises(RetryableError, match="npm could not install aws-cdk"):
        toolchain.toolchain()
    assert not [path for path in (tmp_path / "cache").iterdir() if path.is_dir()]


def test_without_nodes_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(NotFoundError, match="trainwarden\\[embedded\\]"):
        toolchain.node_root()
