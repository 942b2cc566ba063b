"""Stands between the server and one training script, so that no script outlives the server.

Run as a file, standard library only: ``python supervisor.py COMMAND ...``. The script gets a
process group of its own. SIGTERM is handed on to the script alone, as ``docker stop`` does it.
When standard input closes, because the server wants the job gone or has died itself, the whole
group is killed. What the script leaves running is killed when it ends, as a container would.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from types import FrameType


class Supervisor:
    """One script and the means to end it."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._told_to_stop = False

    def run(self, command: list[str]) -> int:
        """Run the script to its end and return its exit code, 128 + n for signal n."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in the server's terminal
        signal.signal(signal.SIGTERM, self._stop)
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
        self._child = child
        if self._told_to_stop:  # the signal came before the script existed
            child.terminate()
        threading.Thread(target=_outlive_nobody, args=(child.pid,), daemon=True).start()
        code = child.wait()
        _kill_group(child.pid)
        return code if code >= 0 else 128 - code

    def _stop(self, _signal: int, _frame: FrameType | None) -> None:
        self._told_to_stop = True
        if self._child is not None:
            self._child.terminate()


def _outlive_nobody(group: int) -> None:
    while os.read(0, 4096):
        pass
    _kill_group(group)


def _kill_group(group: int) -> None:
    # macOS says PermissionError of a group of zombies.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(Supervisor().run(sys.argv[1:]))
