"""A stop that was asked for in the background, carried out at the end of a step."""

from __future__ import annotations

from collections.abc import Callable

from trainwarden.hook.saying import say


class StopTraining(SystemExit):
    """Ends a training loop that may be stopped: ``watch(stop="allow")``.

    Raised by ``optimizer.step()`` once the step is made and ``on_stop`` has returned. Caught by
    nobody it ends the script, as ``sys.exit()`` does; ``except Exception`` does not catch it.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(0)
        self.reason = reason

    def __str__(self) -> str:
        """Say why."""
        return self.reason


class Stopping:
    """Whether a run is to end, and how.

    Args:
        allowed: The loop may be ended.
        alone: This process trains alone: of several, one that leaves lets the others wait for ever.

    Attributes:
        on_stop: Called with the reason, in the training thread, after a step.
        reason: Why the run is to end; None while nobody asks for it.
        by_caller: A framework's callback ends the loop, by the framework's own means.
    """

    def __init__(self, *, allowed: bool, alone: bool) -> None:
        self.on_stop: Callable[[str], object] | None = None
        self.reason: str | None = None
        self.by_caller = False
        self._allowed, self._alone, self._done = allowed, alone, False

    def ask(self, reason: str) -> None:
        """The run is to end; from any thread. A second time changes nothing."""
        if self.reason is not None:
            return
        self.reason = reason
        ending = self._ends or self.by_caller
        ends = "it ends after this step" if ending else "look at stop_requested, and end it"
        say(f"the loop is asked to stop: {reason}; {ends}")
        if self._allowed and not self._alone and not self.by_caller:
            say("it trains in several processes, and is not ended from one of them alone")

    @property
    def _ends(self) -> bool:
        return self._allowed and self._alone and not self.by_caller

    def act(self, close: Callable[[str], object]) -> None:
        """Call ``on_stop`` and end the loop, once; in the training thread, at the end of a step.

        Args:
            close: Ends the watch for a reason.

        Raises:
            StopTraining: the loop is to end, and may be ended.
        """
        if self.reason is None or self._done:
            return
        self._done = True
        if self.on_stop is not None:
            try:
                self.on_stop(self.reason)
            except Exception as error:  # noqa: BLE001 - the user's own: training, or its end, goes on
                say(f"on_stop failed: {type(error).__name__}: {error}")
        if self._ends:
            close("stopped")
            raise StopTraining(self.reason)
