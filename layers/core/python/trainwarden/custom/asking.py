"""Asks for what custom rules say, and takes an error for the answer of those that say nothing.

Whatever the function does, the job goes on: a rule that cannot be asked is settled as ``Error``
with the reason, and the others are asked without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from trainwarden.custom.protocol import Question, read_answer, write_question
from trainwarden.engine import ANSWERS, Answer, Engine, RuleSpec
from trainwarden.errors import BadInputError, MalformedObjectError, RetryableError
from trainwarden.model import Json, Observation
from trainwarden.store.ports import CustomRules

ABSENT = "this deployment has no function that runs it"
NO_TIME = "the function failed with several rules, and there was no time to ask for this one alone"
MOST_STEPS = 50  # in one question
Said = dict[str, Answer]


@dataclass(frozen=True)
class Asking:
    """Asks the port.

    Attributes:
        port: None where this process cannot ask: such rules get an error.
        late: True once there is no time left for asking rules one by one.
    """

    port: CustomRules | None
    late: Callable[[], bool] = lambda: False

    def ahead(self, engine: Engine, state: Json, observations: Sequence[Observation]) -> int:
        """Put the answers into the memos of the first few of ``observations``; return how many."""
        specs = self._open(engine, state)
        if not specs:
            for obs in observations:
                obs.memo[ANSWERS] = {}
            return len(observations)
        steps = tuple(observations[:MOST_STEPS])
        found = self._said(Question("advance", specs, state["rules"], steps))
        for obs, said in zip(steps, found, strict=False):
            obs.memo[ANSWERS] = said
        return len(found)

    def wait(self, engine: Engine, state: Json, now: float) -> Said:
        """Return the answers of the rules that care for time without a step."""
        waiting = {one.key for one in engine.elsewhere if one.waits}
        specs = tuple(spec for spec in self._open(engine, state) if spec.key in waiting)
        return self._said(Question("wait", specs, state["rules"], now=now))[0] if specs else {}

    def finish(self, engine: Engine, state: Json) -> Said:
        """Return the answers of the rules that have something to say at the end."""
        ending = {one.key for one in engine.elsewhere if one.finishes}
        specs = tuple(spec for spec in self._open(engine, state) if spec.key in ending)
        return self._said(Question("finish", specs, state["rules"]))[0] if specs else {}

    def _open(self, engine: Engine, state: Json) -> tuple[RuleSpec, ...]:
        entries: Mapping[str, Json] = state["rules"]
        return tuple(
            one.spec for one in engine.elsewhere if not one.is_settled(entries.get(one.key) or {})
        )

    def _said(self, question: Question) -> list[Said]:
        """Return the answers of one or more steps."""
        if self.port is None:
            return [_refused(question.specs, ABSENT)]
        try:
            body = _written(question)
            if body is None:
                half = question.observations[: len(question.observations) // 2]
                return self._said(question._replace(observations=half))
            return read_answer(self.port.ask(body), question)
        except RetryableError as error:
            return [_refused(question.specs, str(error))]
        except BadInputError as error:
            if len(question.specs) == 1:
                return [_refused(question.specs, _why(error))]
        return self._alone(question)

    def _alone(self, question: Question) -> list[Said]:
        """Ask each rule for itself: one of them harmed the others."""
        ended: Said = {}
        going: list[list[Said]] = []
        for spec in question.specs:
            if self.late():
                ended |= _refused((spec,), NO_TIME)
                continue
            said = self._said(question._replace(specs=(spec,)))
            first = said[0].get(spec.key)
            if first is not None and first.error:
                ended[spec.key] = first
            else:
                going.append(said)
        count = min((len(said) for said in going), default=1)
        steps: list[Said] = [{} for _ in range(count)]
        for said in going:
            for position in range(count):
                steps[position] |= said[position]
        steps[0] |= ended
        return steps


def _written(question: Question) -> bytes | None:
    """Return the question in bytes, None if half of its steps should be asked for first.

    Raises:
        MalformedObjectError: even one step is too much.
    """
    try:
        return write_question(question)
    except MalformedObjectError:
        if len(question.observations) > 1:
            return None
        raise


def _refused(specs: Sequence[RuleSpec], why: str) -> Said:
    return {spec.key: Answer(error=why[:500]) for spec in specs}


def _why(error: BadInputError) -> str:
    if isinstance(error, MalformedObjectError):
        return f"its answer is refused: {error}"
    return str(error)


NOBODY = Asking(None)  # where there are no custom rules, or nobody to ask
