"""The ways a process ends: return, exception, Ctrl-C, SIGTERM, fork.

Installed with the first session, taken back with the last one. Whatever was there before is called
after us: a user's SIGTERM handler that writes a checkpoint goes on working.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from trainwarden.hook.session import Session

SIGTERM_FLUSH_S = 10.0


def reason_of(kind: type[BaseException] | None) -> str:
    """Return the end object's reason for an exception; None means there was none."""
    if kind is None:
        return "finished"
    stopped = issubclass(kind, KeyboardInterrupt | SystemExit | GeneratorExit)
    return "stopped" if stopped else "failed"


class _Exits:
    """The sessions of this process, and what was installed for them."""

    def __init__(self) -> None:
        self.sessions: list[Session] = []
        self._reason = "finished"
        self._signal: Any = None  # the handler before ours; None: leave SIGTERM alone
        self._excepthook: Callable[..., Any] = sys.excepthook

    def follow(self, session: Session) -> None:
        """Close ``session`` when the process ends, in whatever way."""
        if not self.sessions:
            self._reason = "finished"
            atexit.register(self._at_exit)
            self._excepthook, sys.excepthook = sys.excepthook, self._on_exception
            if threading.current_thread() is threading.main_thread():
                self._signal = signal.getsignal(signal.SIGTERM)
                if self._signal is not None:  # None: installed from C, cannot be called from here
                    signal.signal(signal.SIGTERM, self._on_sigterm)
        self.sessions = [other for other in self.sessions if not other.over]
        self.sessions.append(session)

    def forget(self, session: Session) -> None:
        """Undo ``follow``; handlers are taken back with the last session."""
        if session not in self.sessions:
            return
        self.sessions.remove(session)
        if self.sessions:
            return
        atexit.unregister(self._at_exit)
        if sys.excepthook == self._on_exception:
            sys.excepthook = self._excepthook
        if (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGTERM) == self._on_sigterm
        ):
            signal.signal(signal.SIGTERM, self._signal)

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        """Save what is there, then do what would have been done without us."""
        previous = self._signal
        if previous is signal.SIG_IGN:
            return
        ours = [session for session in self.sessions if session.pid == os.getpid()]
        if ours:
            self._reason = "stopped"
        if callable(previous):
            for session in ours:  # the user's handler may go on training: hand over, do not wait
                session.flush(0)
            previous(number, frame)
            return
        for session in ours:
            if not session.close("stopped", SIGTERM_FLUSH_S):  # it interrupted ``close`` itself
                session.uploader.close("stopped", SIGTERM_FLUSH_S)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def _on_exception(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        self._reason = reason_of(kind)
        self._excepthook(kind, error, trace)

    def _at_exit(self) -> None:
        for session in tuple(self.sessions):
            session.close(self._reason)


EXITS = _Exits()
