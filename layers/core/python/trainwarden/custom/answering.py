"""Answers a question about custom rules: runs where the rules run, and nothing else does.

Each rule is guarded from the others: by the engine against exceptions, here against taking too
long, ending the process, and giving what is no JSON.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from trainwarden.custom.protocol import (
    MAX_FINDINGS,
    Question,
    finding_json,
    read_answer,
    read_question,
)
from trainwarden.engine import START, RuleSpec
from trainwarden.engine.runner import Entry, Result, Runner, worded
from trainwarden.errors import MalformedObjectError
from trainwarden.model import Finding, Json, Observation, Rule, Status
from trainwarden.rules._parameters import cast
from trainwarden.wire.fields import dump_json

TOTAL_S = 4.0  # for all rules of a question; the function itself has more
MOST_S, LEAST_S = 2.0, 0.2  # for one rule
ANSWER_BYTES = 4_000_000  # later steps are left to the next question
Said = dict[str, Json]
Call = Callable[[Rule[Any], Json], tuple[Json, Sequence[Finding]]]


class TooLongError(BaseException):
    """A rule used up its time; no rule can take it for an exception of its own."""


class Recorder(Runner):
    """A runner that keeps why its rule failed."""

    why = ""

    def failed(self, before: Entry, what: str, at: int) -> Result:
        """Settle the rule, and keep the reason."""
        self.why = what
        return super().failed(before, what, at)


def answer(
    body: bytes, rules: Mapping[str, type[Rule[Any]]], limit_s: float | None = None
) -> bytes:
    """Return the answer to a question, in bytes.

    Each rule has ``limit_s`` seconds; what the function has for it if None.

    Raises:
        MalformedObjectError: no question of ours.
    """
    question = read_question(body)
    share = min(MOST_S, max(LEAST_S, TOTAL_S / max(1, len(question.specs))))
    limit = share if limit_s is None else limit_s
    said = {spec.key: _of_rule(spec, question, rules, limit) for spec in question.specs}
    count = max(1, len(question.observations))
    steps: list[dict[str, Said]] = []
    size = 0
    for position in range(count):
        step = {key: all_[position] for key, all_ in said.items() if position in all_}
        size += len(dump_json(step))
        if steps and size > ANSWER_BYTES:
            break
        steps.append(step)
    return dump_json({"version": 1, "steps": steps})


def _of_rule(
    spec: RuleSpec, question: Question, rules: Mapping[str, type[Rule[Any]]], limit: float
) -> dict[int, Said]:
    """Return what one rule says, by the step's position; an error is the last thing it says."""
    fold = _Fold(spec, question)
    try:
        with _within(limit):
            fold.run(rules)
    except TooLongError:
        steps = len(question.observations)
        fold.said[fold.at] = {"error": f"it took longer than {limit:g} s for {steps} saved steps"}
    except KeyboardInterrupt:  # a person's
        raise
    except BaseException as error:  # noqa: BLE001 - not even SystemExit may silence the others
        fold.said[fold.at] = {"error": worded(error)}
    return fold.said


class _Fold:
    """One rule over the steps of a question."""

    def __init__(self, spec: RuleSpec, question: Question) -> None:
        self.said: dict[int, Said] = {}
        self.at = 0  # position of the step that is being judged
        self._spec, self._question = spec, question

    def run(self, rules: Mapping[str, type[Rule[Any]]]) -> None:
        """Fold whatever is asked for."""
        cls, question = rules[self._spec.name], self._question
        runner = Recorder(self._spec, cls(**cast(cls, self._spec.parameters)))
        entry: Entry = dict(question.entries.get(self._spec.key) or {"state": START})
        if entry["state"] == START:
            entry["state"] = runner.rule.start()
        if question.operation == "wait":
            self._end(runner, entry, lambda rule, own: rule.wait(own, question.now))
        elif question.operation == "finish":
            self._end(runner, entry, lambda rule, own: rule.finish(own))
        else:
            self._advance(runner, entry)

    def _advance(self, runner: Recorder, entry: Entry) -> None:
        for at, obs in enumerate(self._question.observations):
            self.at = at
            if not runner.looks(entry, obs):
                continue
            scalars, tensors = obs.present_scalars, obs.present_tensors
            result = Result(*runner.advance(entry, obs, scalars, tensors))
            said = _checked(_said(runner, entry, result), self._spec.key, (obs,))
            if self.said and "error" not in said and said["state"] == entry["state"]:
                said = {**said, "same": True}
                del said["state"]
            self.said[self.at] = said
            entry = result.entry
            if "error" in said:
                return

    def _end(self, runner: Recorder, entry: Entry, call: Call) -> None:
        said = _said(runner, entry, runner.apply(entry, call))
        self.said[0] = _checked(said, self._spec.key, ())


def _said(runner: Recorder, before: Entry, result: Result) -> Said:
    after = result.entry
    if after.get("status") == Status.ERROR.value:
        return {"error": runner.why}
    return {
        "state": after["state"],
        "seen": after.get("inspected", 0) > before.get("inspected", 0),
        "findings": [finding_json(finding) for finding in result.findings[:MAX_FINDINGS]],
        "total": after.get("findings", 0) - before.get("findings", 0),
    }


def _checked(said: Said, key: str, observations: tuple[Observation, ...]) -> Said:
    """Return it as it is, or the error that a reader would find in it."""
    try:
        body = dump_json({"version": 1, "steps": [{key: said}]})
        read_answer(body, Question("", (RuleSpec(key, key),), {}, observations))
    except MalformedObjectError as error:
        return {"error": f"what it gave is refused: {error}"[:300]}
    return said


@contextmanager
def _within(limit: float) -> Iterator[None]:
    """Interrupt what takes longer, where signals can be had: in the process's main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise TooLongError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
