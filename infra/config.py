"""What a deployment can be told, in one frozen model.

Values come from the CDK context: the object ``trainwarden`` in ``cdk.json``, and single keys on
the command line, ``-c trainwarden.emails=a@example.org,b@example.org``, which win. Nothing is
read from the environment, so that the same sources always give the same template.
"""

from __future__ import annotations

import difflib
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
)

from infra import packing

CONTEXT_KEY = "trainwarden"
LOG_DAYS = (1, 7, 14, 30, 90, 180, 365, 731, 1827, 3653)


class ContextError(ValueError):
    """The context does not describe a deployment; the message lists every problem."""


def _items(value: Any) -> Any:
    """Take ``"a, b"`` from the command line as two items."""
    if isinstance(value, str):
        return [item.strip() for item in value.split(",") if item.strip()]
    return value


def _text(value: Any) -> Any:
    """Take an object or a list of ``cdk.json``, or of a file, as its JSON text."""
    if isinstance(value, str) and value.endswith((".json", ".yaml", ".yml")):
        value = _document(Path(value))
    return json.dumps(value, sort_keys=True) if isinstance(value, Mapping | list) else value


def _document(path: Path) -> Any:
    try:
        return yaml.safe_load(path.read_text("utf-8"))  # JSON is YAML
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"expected a file of rules as JSON or YAML: {error}") from error


def _distinct(values: tuple[str, ...]) -> tuple[str, ...]:
    twice = sorted({value for value in values if values.count(value) > 1})
    if twice:
        raise ValueError(f"{', '.join(twice)} is listed twice")
    return values


def _known_log_days(days: int) -> int:
    if days not in LOG_DAYS:
        raise ValueError(f"expected one of {', '.join(map(str, LOG_DAYS))}")
    return days


def _rules_folder(value: str) -> str:
    """Check a folder of custom rules, in a process of its own; return its absolute path."""
    if not value:
        return value
    folder = Path(value).resolve()
    if not folder.is_dir():
        raise ValueError("expected a folder of modules with rules")
    digest = packing.digest(packing.custom_rules(folder), folder)
    try:
        found = packing.described(folder, digest)
    except subprocess.TimeoutExpired:
        raise ValueError(f"its modules cannot be imported in {packing.CHECK_S:g} s") from None
    if found["problems"]:
        raise ValueError("; ".join(found["problems"]))
    return str(folder)


Email = Annotated[
    str,
    StringConstraints(
        pattern=r"^[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]+@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+$"
    ),
]
Phone = Annotated[str, StringConstraints(pattern=r"^\+[1-9][0-9]{6,14}$")]
Emails = Annotated[tuple[Email, ...], BeforeValidator(_items), AfterValidator(_distinct)]
Phones = Annotated[tuple[Phone, ...], BeforeValidator(_items), AfterValidator(_distinct)]


class Config(BaseModel):
    """One deployment of Trainwarden."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    emails: Emails = Field(
        default=(),
        description="Addresses that are told about verdicts; each confirms by a link once.",
    )
    sms: Phones = Field(
        default=(),
        description="Phone numbers for text messages, with country code: `+4915112345678`.",
    )
    alarm_emails: Emails = Field(
        default=(),
        description="Addresses for alarms about Trainwarden itself; empty: those of `emails`.",
    )
    rules: Annotated[str, BeforeValidator(_text), StringConstraints(min_length=1)] = Field(
        default="default",
        description="Rules of jobs that name none: `default` (all), names with blanks between, "
        'settings as JSON, `{"Overfit": {"patience": 3}}`, or a file of rules: `rules.yaml`.',
    )
    stop_on: Literal["error", "warning", "never"] = Field(
        default="error",
        description="Findings of this severity or worse ask to stop a job that allows it "
        "by its tag `trainwarden:stop=allow`.",
    )
    dry_run: bool = Field(
        default=False,
        description="Decide and announce, but stop nothing: every stop is denied.",
    )
    retain: bool = Field(
        default=True,
        description="Keep bucket and table when the stack is destroyed; false: delete them with "
        "everything in them.",
    )
    point_in_time_recovery: bool = Field(
        default=True, description="Continuous backups of the table, 35 days back."
    )
    steps_days: Annotated[int, Field(ge=1, le=3650)] = Field(
        default=90, description="Days after which saved steps, manifests and reports are deleted."
    )
    tensors_days: Annotated[int, Field(ge=1, le=3650)] = Field(
        default=30, description="Days after which raw tensors are deleted."
    )
    ledger_days: Annotated[int, Field(ge=0, le=3650)] = Field(
        default=365,
        description="Days after its last data that a job and its verdicts are kept; 0: for ever.",
    )
    log_days: Annotated[int, AfterValidator(_known_log_days)] = Field(
        default=30,
        description="Days the functions' logs are kept.",
        json_schema_extra={"enum": list(LOG_DAYS)},
    )
    archive_days: Annotated[int, Field(ge=0, le=3650)] = Field(
        default=0, description="Days an archive keeps the bus's events for replay; 0: no archive."
    )
    python: Literal["3.10", "3.11", "3.12", "3.13", "3.14"] = Field(
        default="3.13", description="Python version of the functions and their layers."
    )
    architecture: Literal["arm64", "x86_64"] = Field(
        default="arm64",
        description="Processor of the functions and their layers; arm64 costs less.",
    )
    evaluator_memory_mb: Annotated[int, Field(ge=256, le=10_240)] = Field(
        default=1024, description="Memory of the evaluator; its share of a processor grows with it."
    )
    evaluator_concurrency: Annotated[int, Field(ge=2, le=1000)] = Field(
        default=20, description="Evaluators that run at once at most."
    )
    custom_rules: Annotated[str, AfterValidator(_rules_folder)] = Field(
        default="",
        description="A folder of your own rules in Python: they run in a function without "
        "permissions (`docs/custom-rules.md`); empty: none.",
    )
    custom_rules_concurrency: Annotated[int, Field(ge=0, le=1000)] = Field(
        default=0,
        description="Concurrency reserved for the function of custom rules; 0: none is reserved.",
    )


def from_context(context: Mapping[str, Any]) -> Config:
    """Read the deployment from the whole CDK context.

    Raises:
        ContextError: a key nobody knows (the nearest right one is named) or a wrong value.
    """
    values = _object(context.get(CONTEXT_KEY, {}))
    prefix = f"{CONTEXT_KEY}."
    values |= {k.removeprefix(prefix): v for k, v in context.items() if k.startswith(prefix)}
    try:
        return Config.model_validate(values)
    except ValidationError as exc:
        lines = [_explain(error) for error in exc.errors()]
        raise ContextError("\n".join(["The CDK context is wrong:", *lines])) from None


def _object(value: Any) -> dict[str, Any]:
    if isinstance(value, str):  # -c trainwarden='{"emails": [...]}'
        try:
            value = json.loads(value)
        except ValueError:
            value = None
    if isinstance(value, Mapping):
        return dict(value)
    raise ContextError(
        f"The CDK context is wrong:\n  {CONTEXT_KEY}: expected an object, "
        f'as in -c {CONTEXT_KEY}=\'{{"emails": ["a@example.org"]}}\' '
        f"or -c {CONTEXT_KEY}.emails=a@example.org"
    )


def _explain(error: Any) -> str:
    """Say in one line which key is wrong, what was found and what would be right."""
    key, *rest = (str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        near = difflib.get_close_matches(key, Config.model_fields, n=1, cutoff=0.4)
        known = ", ".join(Config.model_fields)
        hint = f"did you mean {CONTEXT_KEY}.{near[0]}?" if near else f"known are {known}"
        return f"  {CONTEXT_KEY}.{key}: there is no such key; {hint}"
    where = f"{CONTEXT_KEY}.{key}" + (f" (item {int(rest[0]) + 1})" if rest else "")
    return f"  {where}: found {error['input']!r}; {_wanted(key, error)}"


def _wanted(key: str, error: Any) -> str:
    if error["type"] == "string_pattern_mismatch":
        return {
            "sms": "expected a phone number with country code, as +4915112345678",
        }.get(key, "expected an e-mail address, as ada@example.org")
    message: str = error["msg"]
    return (
        message.removeprefix("Value error, ")[:1].lower()
        + message.removeprefix("Value error, ")[1:]
    )
