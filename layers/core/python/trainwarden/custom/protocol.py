"""What is asked of the function of custom rules, and what it answers: strict JSON both ways.

The answer comes from code that anybody may have written: nothing of it is believed unseen.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import NamedTuple

from trainwarden.engine import (
    MAX_EVIDENCE_BYTES,
    MAX_STATE_BYTES,
    Answer,
    RuleSpec,
)
from trainwarden.model import Finding, Json, Mode, Observation, Severity
from trainwarden.wire import codec
from trainwarden.wire.fields import Fields, dump_json, malformed, parse_json
from trainwarden.wire.keys import StepsKey
from trainwarden.wire.manifest import layout_json, read_layout

VERSION = 1
MAX_BYTES = 5_500_000  # Lambda: 6 MB either way
MAX_FINDINGS = 2  # of a rule at a step; the others are counted
MAX_TOTAL = 1_000_000
MAX_TEXT_CHARS = 2_000
MAX_REMEDIES = 10
_NAME_CHARS = 512
_KEY = StepsKey("custom", 0, 0)
_FINDING = frozenset(
    {
        *("step", "tensor", "value", "limit", "message", "first_step"),
        *("evidence", "remedies", "confidence", "severity"),
    }
)
_ANSWER = frozenset({"state", "same", "seen", "findings", "total", "error"})
_WHAT = "an answer of custom rules"
_LARGEST = 1.7976931348623157e308
Entries = Mapping[str, Mapping[str, Json]]


class Question(NamedTuple):
    """What is asked: of these rules, from these entries of the engine's state.

    ``operation`` is ``advance`` (over ``observations``), ``wait`` (until ``now``) or ``finish``.
    """

    operation: str
    specs: tuple[RuleSpec, ...]
    entries: Entries
    observations: tuple[Observation, ...] = ()
    now: float = 0.0


def write_question(question: Question) -> bytes:
    """Return the question's bytes.

    Raises:
        MalformedObjectError: more than the function takes; ask for fewer steps.
    """
    body: dict[str, Json] = {
        "version": VERSION,
        "operation": question.operation,
        "now": question.now,
        "specs": [_spec_json(spec) for spec in question.specs],
        "entries": {spec.key: question.entries.get(spec.key) for spec in question.specs},
    }
    if question.observations:
        steps = codec.StepsObject(*_KEY, "", question.observations)
        body["layout"] = layout_json(question.observations[-1].layout)
        body["steps"] = base64.b64encode(codec.encode(steps)).decode()
    found = dump_json(body)
    if len(found) > MAX_BYTES:
        raise malformed(f"a question of at most {MAX_BYTES} bytes", str(len(found)))
    return found


def read_question(body: bytes) -> Question:
    """Read a question.

    Raises:
        MalformedObjectError: anything that ``write_question`` does not make.
    """
    found = Fields(parse_json(body, "a question"), "a question")
    found.integer("version", VERSION, VERSION)
    observations: tuple[Observation, ...] = ()
    if "steps" in found:
        layout = read_layout(Fields(found.mapping("layout"), "a layout"))
        steps = base64.b64decode(found.text("steps", MAX_BYTES))
        observations = codec.decode(steps, layout, key=_KEY).observations
    return Question(
        found.text("operation", 16),
        tuple(_spec(item) for item in found.objects("specs", 1_000)),
        found.mapping("entries"),
        observations,
        found.number("now"),
    )


def _spec_json(spec: RuleSpec) -> dict[str, Json]:
    return {
        "key": spec.key,
        "name": spec.name,
        "parameters": dict(spec.parameters),
        "start_step": spec.start_step,
        "end_step": spec.end_step,
        "modes": [mode.value for mode in spec.modes],
        "severity": spec.severity.value if spec.severity else None,
        "every": spec.every,
    }


def _spec(fields: Fields) -> RuleSpec:
    end, severity = fields.json("end_step"), fields.json("severity")
    return RuleSpec(
        key=fields.text("key"),
        name=fields.text("name"),
        parameters=fields.mapping("parameters"),
        start_step=fields.integer("start_step"),
        end_step=None if end is None else fields.integer("end_step"),
        modes=tuple(Mode(word) for word in fields.texts("modes", len(Mode))),
        severity=Severity(severity) if severity else None,
        every=fields.integer("every", 1),
    )


def finding_json(finding: Finding) -> dict[str, Json]:
    """Return a finding as an answer holds it."""
    return {
        "step": finding.step,
        "tensor": finding.tensor,
        "value": finding.value,
        "limit": finding.limit,
        "message": finding.message,
        "first_step": finding.first_step,
        "evidence": dict(finding.evidence),
        "remedies": list(finding.remedies),
        "confidence": finding.confidence,
        "severity": finding.severity.value if finding.severity else None,
    }


def read_answer(body: bytes, question: Question) -> list[dict[str, Answer]]:
    """Read what the rules said: for each step that was answered, key → answer.

    Raises:
        MalformedObjectError: it is not an answer to this question in every respect.
    """
    if len(body) > MAX_BYTES:
        raise malformed(f"an answer of at most {MAX_BYTES} bytes", str(len(body)))
    found = parse_json(body, _WHAT)
    if set(found) != {"version", "steps"}:
        raise malformed(f"{_WHAT} with version and steps", ", ".join(sorted(found))[:80])
    fields = Fields(found, _WHAT)
    fields.integer("version", VERSION, VERSION)
    most = max(1, len(question.observations))
    steps = fields.items("steps", most)
    if not steps:
        raise malformed(f"{_WHAT} about at least one step", "none")
    states = {
        spec.key: (question.entries.get(spec.key) or {}).get("state") for spec in question.specs
    }
    answers = []
    for position, step in enumerate(steps):
        if not isinstance(step, dict) or not states.keys() >= step.keys():
            raise malformed("answers of the rules that were asked", str(step)[:80])
        last = _last_step(question, position)
        read: dict[str, Answer] = {}
        for key, one in step.items():
            if not isinstance(one, dict) or not one.keys() <= _ANSWER:
                raise malformed(f"an answer with {', '.join(sorted(_ANSWER))}", str(one)[:80])
            read[key] = _answer(Fields(one, f"the answer of {key}"), states[key], last)
            states[key] = read[key].state
        answers.append(read)
    return answers


def _last_step(question: Question, position: int) -> int | None:
    """Return the step up to which a finding may tell; None if that is not known."""
    return question.observations[position].step if question.observations else None


def _answer(fields: Fields, before: Json, last: int | None) -> Answer:
    if "error" in fields:
        return Answer(error=fields.text("error", MAX_TEXT_CHARS) or "no reason given")
    same = fields.flag("same") if "same" in fields else False
    state = before if same else fields.json("state")
    if not same and len(dump_json(state)) > MAX_STATE_BYTES:
        raise malformed(f"a state of at most {MAX_STATE_BYTES} bytes", "more")
    findings = tuple(_finding(one, last) for one in fields.objects("findings", MAX_FINDINGS))
    total = fields.integer("total", len(findings), MAX_TOTAL)
    return Answer(state, fields.flag("seen"), findings, total)


def _finding(fields: Fields, last: int | None) -> Finding:
    strangers = [name for name in fields.names() if name not in _FINDING]
    if strangers:
        raise malformed("a finding's own fields", ", ".join(strangers)[:80])
    step = fields.integer("step", 0, 2**53 if last is None else last)
    evidence, severity = fields.mapping("evidence"), fields.json("severity")
    if len(dump_json(evidence)) > MAX_EVIDENCE_BYTES:
        raise malformed(f"evidence of at most {MAX_EVIDENCE_BYTES} bytes", "more")
    if severity is not None and severity not in {one.value for one in Severity}:
        raise malformed("a severity", repr(severity))
    return Finding(
        step=step,
        tensor=fields.text("tensor", _NAME_CHARS),
        value=fields.number("value", -_LARGEST, _LARGEST),
        limit=fields.number("limit", -_LARGEST, _LARGEST),
        message=fields.text("message", MAX_TEXT_CHARS),
        first_step=fields.integer("first_step", 0, step),
        evidence=evidence,
        remedies=tuple(fields.texts("remedies", MAX_REMEDIES, MAX_TEXT_CHARS)),
        confidence=fields.number("confidence", 0.0, 1.0),
        severity=Severity(severity) if severity else None,
    )
