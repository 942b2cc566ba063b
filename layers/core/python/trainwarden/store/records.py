"""What the ledger stores, as strict JSON; shared by every ledger so that all behave alike.

JSON has no NaN and no infinity, yet findings and rule states hold them. They are written as the
strings ``"NaN"``, ``"Infinity"`` and ``"-Infinity"``. A string that would read the same is written
with ``=`` before it (``"=NaN"``), one that already looks escaped with one more (``"==NaN"``), so
that every value comes back as what it was. Keys of objects are never touched.

Outbox entries leave the system, so they are *messages*: written with the same three words, but
strings stay as they are and nothing is turned back when read. What goes in as strict JSON goes out
as the same JSON.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from trainwarden.errors import BadInputError
from trainwarden.model import Json
from trainwarden.store.ports import Entry, EntryKind, JobRecord, JobStatus, TrainingJob
from trainwarden.wire.keys import job_name

MAX_ENTRIES = 96  # DynamoDB: 100 items in a transaction, the record is one; the rest is reserve
MAX_ID_BYTES = 960  # DynamoDB: a sort key has at most 1,024 bytes, the kind comes first

_RESTORE = "restore it from a backup, or delete it and let the job be judged anew"
_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_LOOKS_LIKE_ONE = re.compile(r"=*(?:NaN|-?Infinity)")


def dumps(body: Json) -> str:
    """Write JSON-shaped data as strict JSON text in ASCII; NaN and ±inf as described above.

    Numpy's numbers are written as Python's.

    Raises:
        TypeError: something that is no JSON, such as a set.
    """
    try:
        text = json.dumps(body, allow_nan=False, separators=(",", ":"), default=_plain)
    except ValueError:  # the C encoder met a NaN or an infinity
        text = ""
    if not text or _may_hold_word(text):
        text = json.dumps(_escaped(body), allow_nan=False, separators=(",", ":"))
    return text


def message(body: Json) -> str:
    """Write what is meant for others as strict JSON text in Unicode.

    Raises:
        TypeError: something that is no JSON, such as a set.
    """
    words = _escaped(body, strings=False)
    text = json.dumps(words, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    # Half a surrogate pair has no UTF-8; escaped it travels.
    return text if _is_unicode(text) else json.dumps(words, separators=(",", ":"))


def loads(text: str | bytes) -> Json:
    """Read what ``dumps`` wrote.

    Raises:
        BadInputError: not strict JSON.
    """
    body = loads_message(text)
    plain = text if isinstance(text, str) else text.decode()
    return _unescaped(body) if _may_hold_word(plain) else body


def loads_message(text: str | bytes) -> Json:
    """Read strict JSON as it is.

    Raises:
        BadInputError: not strict JSON.
    """
    try:
        return json.loads(text, parse_constant=_refuse)
    except ValueError as exc:
        raise BadInputError("strict JSON", f"{text[:40]!r} ({exc})", _RESTORE) from exc


def record_to_text(record: JobRecord) -> str:
    """Write a record as JSON text."""
    fields = dict(vars(record))
    fields["status"] = record.status.value
    fields["watermarks"] = {str(worker): list(at) for worker, at in record.watermarks.items()}
    fields["ended"] = {str(worker): seq for worker, seq in record.ended.items()}
    return dumps(fields)


def record_from_text(text: str | bytes) -> JobRecord:
    """Read a record; fields that a newer version added are ignored.

    Raises:
        BadInputError: not a record.
    """
    body = loads(text)
    try:
        fields = {name: body[name] for name in JobRecord.__dataclass_fields__ if name in body}
        fields["status"] = JobStatus(body["status"])
        fields["watermarks"] = {
            int(w): (int(s), int(i)) for w, (s, i) in body["watermarks"].items()
        }
        fields["ended"] = {int(worker): int(seq) for worker, seq in body["ended"].items()}
        return JobRecord(**fields)
    except (KeyError, TypeError, ValueError, AttributeError) as exc:
        raise BadInputError("the record of a job", f"{text[:80]!r} ({exc})", _RESTORE) from exc


def body_to_text(entry: Entry) -> str:
    """Write the body of an entry as JSON text; that of an outbox entry is a message."""
    return message(entry.body) if entry.kind is EntryKind.OUTBOX else dumps(entry.body)


def body_from_text(kind: EntryKind, text: str | bytes) -> Json:
    """Read what ``body_to_text`` wrote.

    Raises:
        BadInputError: not strict JSON.
    """
    return loads_message(text) if kind is EntryKind.OUTBOX else loads(text)


def entries_to_text(entries: Iterable[Entry]) -> str:
    """Write entries as one JSON text; each body is a text within it."""
    return dumps([{"kind": e.kind.value, "id": e.id, "body": body_to_text(e)} for e in entries])


def entries_from_text(text: str | bytes) -> tuple[Entry, ...]:
    """Read what ``entries_to_text`` wrote.

    Raises:
        BadInputError: not a list of entries.
    """
    try:
        found = [(EntryKind(e["kind"]), e["id"], e["body"]) for e in loads(text)]
    except (KeyError, TypeError, ValueError) as exc:
        raise BadInputError("a list of entries", f"{text[:80]!r} ({exc})", _RESTORE) from exc
    return tuple(Entry(kind, id_, body_from_text(kind, body)) for kind, id_, body in found)


def training_to_json(training: TrainingJob) -> dict[str, Json]:
    """Write SageMaker's description as the JSON kept in ``JobRecord.training``."""
    return {**vars(training), "debug_rules": list(training.debug_rules)}


def training_from_json(body: Mapping[str, Json]) -> TrainingJob | None:
    """Read what ``training_to_json`` wrote; None if ``body`` is empty."""
    if not body:
        return None
    fields = {name: body[name] for name in TrainingJob.__dataclass_fields__ if name in body}
    return TrainingJob(**fields | {"debug_rules": tuple(fields.get("debug_rules", ()))})


def checked(record: JobRecord, entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """Return the entries to write, the first of each ``(kind, id)``; every ledger asks this first.

    Raises:
        BadInputError: more entries than one commit holds, an id too long or empty, a version < 1.
        KeyGrammarError: no valid job name.
    """
    job_name(record.job)
    if record.version < 1:
        raise BadInputError("the version after this commit, from 1", str(record.version))
    if len(entries) > MAX_ENTRIES:
        raise BadInputError(
            f"at most {MAX_ENTRIES} entries in one commit",
            str(len(entries)),
            "commit earlier, at a step boundary",
        )
    for entry in entries:
        if not 1 <= len(entry.id.encode("utf-8", "surrogatepass")) <= MAX_ID_BYTES:
            raise BadInputError(f"an entry id of 1 to {MAX_ID_BYTES} bytes", repr(entry.id[:80]))
    first: dict[tuple[EntryKind, str], Entry] = {}
    for entry in entries:
        first.setdefault((entry.kind, entry.id), entry)
    return tuple(first.values())


def _may_hold_word(text: str) -> bool:
    """Tell whether a string in ``text`` may need an escape; false alarms only cost time."""
    return 'NaN"' in text or 'Infinity"' in text


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _plain(value: object) -> Json:
    """Let ``json`` write any mapping, not only dict, and numpy's numbers."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is not JSON: {value!r:.80}")


def _escaped(value: Json, *, strings: bool = True) -> Json:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, str):
        return f"={value}" if strings and _LOOKS_LIKE_ONE.fullmatch(value) else value
    if isinstance(value, Mapping):
        return {key: _escaped(item, strings=strings) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_escaped(item, strings=strings) for item in value]
    return value


def _unescaped(value: Json) -> Json:
    if isinstance(value, str):
        if value in _WORDS:
            return _WORDS[value]
        return value[1:] if _LOOKS_LIKE_ONE.fullmatch(value) else value
    if isinstance(value, dict):
        return {key: _unescaped(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_unescaped(item) for item in value]
    return value


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON")
