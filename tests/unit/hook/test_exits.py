"""Every way a process ends, in real processes."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.unit.hook.recording import Recording, read
from trainwarden.hook.exits import reason_of
from trainwarden.store.folder import FolderObjects

SCRIPT = """
import os, signal, sys, time
from trainwarden.hook.config import Place
from trainwarden.hook.exits import EXITS
from trainwarden.hook.options import Options
from trainwarden.hook.session import Session
from trainwarden.hook.uploader import Limits
from trainwarden.model import Mode

LIMITS = Limits(first_flush_s=1e6, flush_s=1e6)  # nothing is sent before the end

def save(session, step):
    draft = session.draft(step, Mode.TRAIN, step)
    draft.scalar("losses", "loss", float(step))
    session.submit(draft)

def start():
    session = Session(
        Options(), Place(job="job", out=sys.argv[1]), framework="none", environment={},
        limits=LIMITS,
    )
    EXITS.follow(session)
    return session

def ready():
    print("ready", flush=True)
    time.sleep(60)

"""


def run(tmp_path: Path, body: str, number: int | None = None) -> subprocess.CompletedProcess[str]:
    """Run a script; ``number`` is the signal it gets once it said ``ready``."""
    script = SCRIPT + textwrap.dedent(body)
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        first = process.stdout.readline() if number is not None else ""
        if number is not None:
            process.send_signal(number)
        out, err = process.communicate(timeout=60)
    return subprocess.CompletedProcess(script, process.returncode, first + out, err)


def recorded(tmp_path: Path) -> Recording:
    return read(FolderObjects(tmp_path))


def reason(tmp_path: Path) -> str:
    end = recorded(tmp_path).end
    return end.reason if end else "no end object"


def test_a_script_that_just_ends_is_closed(tmp_path: Path) -> None:
    done = run(tmp_path, "save(start(), 0)")
    assert (done.returncode, done.stderr) == (0, "")
    assert recorded(tmp_path).steps == [0]
    assert reason(tmp_path) == "finished"


def test_an_exception_ends_it_as_failed_and_is_shown_as_ever(tmp_path: Path) -> None:
    done = run(tmp_path, "save(start(), 0); raise ValueError('of the user')")
    assert done.returncode == 1
    assert "ValueError: of the user" in done.stderr
    assert recorded(tmp_path).steps == [0]
    assert reason(tmp_path) == "failed"


def test_ctrl_c_ends_it_as_stopped(tmp_path: Path) -> None:
    done = run(tmp_path, "save(start(), 0); ready()", signal.SIGINT)
    assert "KeyboardInterrupt" in done.stderr
    assert recorded(tmp_path).steps == [0]
    assert reason(tmp_path) == "stopped"


def test_sigterm_uploads_and_then_ends_the_process_as_ever(tmp_path: Path) -> None:
    done = run(tmp_path, "save(start(), 0); ready()", signal.SIGTERM)
    assert done.returncode == -signal.SIGTERM
    assert recorded(tmp_path).steps == [0]
    assert reason(tmp_path) == "stopped"


def test_the_users_own_sigterm_handler_is_called_and_may_go_on_training(tmp_path: Path) -> None:
    body = """
        def handler(number, frame):
            print("checkpoint", number, flush=True)
            save(session, 1)
            sys.exit(3)
        signal.signal(signal.SIGTERM, handler)
        session = start()
        save(session, 0)
        ready()
    """
    done = run(tmp_path, body, signal.SIGTERM)
    assert done.returncode == 3
    assert f"checkpoint {int(signal.SIGTERM)}" in done.stdout
    assert recorded(tmp_path).steps == [0, 1]
    assert reason(tmp_path) == "stopped"


def test_a_process_that_ignores_sigterm_goes_on_ignoring_it(tmp_path: Path) -> None:
    body = """
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        session = start()
        print("ready", flush=True)
        os.kill(os.getpid(), signal.SIGTERM)
        save(session, 0)
    """
    assert run(tmp_path, body).returncode == 0
    assert reason(tmp_path) == "finished"


def test_sigkill_loses_only_what_was_not_flushed(tmp_path: Path) -> None:
    body = """
        session = start()
        save(session, 0)
        assert session.flush(30)
        save(session, 1)
        ready()
    """
    done = run(tmp_path, body, signal.SIGKILL)
    assert done.returncode == -signal.SIGKILL
    assert recorded(tmp_path).steps == [0]
    assert reason(tmp_path) == "no end object"


def test_a_forked_child_uploads_nothing_and_dies_of_sigterm(tmp_path: Path) -> None:
    body = """
        session = start()
        save(session, 0)
        child = os.fork()
        if child == 0:
            session.guarded(save, session, 99)
            session.close("failed")
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)
        _, status = os.waitpid(child, 0)
        print(os.WTERMSIG(status))
    """
    done = run(tmp_path, body)
    assert done.stdout.strip() == str(int(signal.SIGTERM))
    assert recorded(tmp_path).steps == [0]
    assert reason(tmp_path) == "finished"


def test_handlers_are_taken_back_with_the_last_session(tmp_path: Path) -> None:
    body = """
        before = (sys.excepthook, signal.getsignal(signal.SIGTERM))
        first, second = start(), start()
        EXITS.forget(first)
        assert sys.excepthook != before[0]
        EXITS.forget(second)
        assert (sys.excepthook, signal.getsignal(signal.SIGTERM)) == before
        first.close("finished")
        second.close("finished")
    """
    done = run(tmp_path, body)
    assert (done.returncode, done.stderr) == (0, "")


def test_started_in_another_thread_it_leaves_signals_alone(tmp_path: Path) -> None:
    body = """
        import threading
        before = signal.getsignal(signal.SIGTERM)
        thread = threading.Thread(target=lambda: save(start(), 0))
        thread.start()
        thread.join()
        assert signal.getsignal(signal.SIGTERM) == before
    """
    done = run(tmp_path, body)
    assert (done.returncode, done.stderr) == (0, "")
    assert recorded(tmp_path).steps == [0]


def test_a_folder_that_cannot_be_written_is_said_and_training_goes_on(tmp_path: Path) -> None:
    (tmp_path / "jobs").write_text("a file where the folder should be")
    done = run(tmp_path, "save(start(), 0); print('trained')")
    assert (done.returncode, done.stdout) == (0, "trained\n")
    assert "trainwarden" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (None, "finished"),
        (ValueError, "failed"),
        (KeyboardInterrupt, "stopped"),
        (SystemExit, "stopped"),
    ],
)
def test_the_reason_follows_from_the_exception(
    kind: type[BaseException] | None, expected: str
) -> None:
    assert reason_of(kind) == expected
