from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from tests.embedded.conftest import alive, until
from trainwarden.embedded import extensions, jobs, launcher
from trainwarden.embedded.launcher import Options, Server
from trainwarden.errors import BadInputError, ConfigError, NotFoundError

SCRIPT = """
import os, signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print("pids", os.getpid(), child.pid, "end", flush=True)
child.wait()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    launcher.down(tmp_path)


def running_job(server: Server, folder: Path) -> list[int]:
    """Start a job that no SIGTERM ends, and return its processes."""
    script = folder / "train.py"
    script.write_text(SCRIPT)
    jobs.submit(server, jobs.Submission(script, name="long"))
    log = server.state / "jobs" / "long" / "job.log"
    until(lambda: log.is_file() and "end" in log.read_text())
    return [int(word) for word in log.read_text().split()[1:3]]


def test_without_its_emulator_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(extensions, "version", none)
    with pytest.raises(ConfigError, match=r"ministack .*, found none; .*trainwarden\[embedded\]"):
        launcher.up(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_it_listens_on_the_loopback_address_only(folder: Path) -> None:
    server = launcher.up(folder)
    with socket.socket() as other:
        # 127.0.0.2 is loopback as well, but not the one address that was bound.
        assert other.connect_ex(("127.0.0.2", server.port)) != 0
    assert server.endpoint == f"http://127.0.0.1:{server.port}"


def test_a_second_one_in_the_same_folder_is_refused_and_the_first_lives_on(folder: Path) -> None:
    server = launcher.up(folder)
    with pytest.raises(BadInputError, match=f"found one at {server.endpoint}"):
        launcher.up(folder)
    assert launcher.running(folder) == server


def test_two_folders_have_one_each(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    first, second = launcher.up(folder), launcher.up(other)
    try:
        assert first.port != second.port
        second.client("s3").create_bucket(Bucket="only-here")
        assert first.client("s3").list_buckets()["Buckets"] == []
    finally:
        launcher.down(other)


def test_a_taken_port_is_refused_with_what_to_do(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(BadInputError, match=f"port {port}.*choose another with --port"):
            launcher.up(folder, Options(port=port))
    assert launcher.find(folder) is None


def test_a_chosen_port_is_used(folder: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    assert launcher.up(folder, Options(port=port)).port == port


def test_down_ends_the_server_its_jobs_and_its_temporary_folder(folder: Path) -> None:
    server = launcher.up(folder)
    pids = running_job(server, folder)
    assert launcher.down(folder)
    assert not alive(server.pid)
    until(lambda: not any(alive(pid) for pid in pids))
    assert not Path(server.scratch).exists()
    assert launcher.find(folder) is None
    assert not launcher.down(folder)


def test_jobs_end_with_a_server_that_is_killed(folder: Path) -> None:
    server = launcher.up(folder)
    pids = running_job(server, folder)
    os.kill(server.pid, signal.SIGKILL)
    until(lambda: not any(alive(pid) for pid in pids))
    until(lambda: launcher.find(folder) is None)


def test_what_a_killed_server_left_is_cleared_by_the_next(folder: Path) -> None:
    first = launcher.up(folder)
    os.kill(first.pid, signal.SIGKILL)
    until(lambda: launcher.find(folder) is None)
    assert Path(first.scratch).exists()
    second = launcher.up(folder)
    assert second.pid != first.pid
    assert not Path(first.scratch).exists()


def test_a_frozen_server_is_killed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = launcher.up(folder)
    monkeypatch.setattr(launcher, "END_S", 0.5)
    os.kill(server.pid, signal.SIGSTOP)
    assert launcher.down(folder)
    assert not alive(server.pid)


def test_another_process_with_the_same_id_is_never_killed(folder: Path) -> None:
    server = launcher.up(folder)
    state = (server.state / "state.json").read_text()
    launcher.down(folder)
    with subprocess.Popen(["sleep", "60"]) as bystander:
        stale = state.replace(f'"pid": {server.pid}', f'"pid": {bystander.pid}')
        (server.state / "state.json").write_text(stale)
        assert not launcher.down(folder)
        assert bystander.poll() is None
        bystander.kill()


def test_without_one_it_says_how_to_start_one(folder: Path) -> None:
    with pytest.raises(NotFoundError, match="trainwarden local up"):
        launcher.running(folder)


def test_credentials_of_the_user_reach_neither_server_nor_jobs(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "production")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "secret")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    server = launcher.up(folder)
    script = folder / "train.py"
    script.write_text(
        "import os\n"
        "print({k: v for k, v in os.environ.items() if 'PROFILE' in k or 'TOKEN' in k})\n"
    )
    jobs.submit(server, jobs.Submission(script, name="clean"))
    lines: list[str] = []
    jobs.follow(server, "clean", lines.append)
    assert lines == ["{}"]
