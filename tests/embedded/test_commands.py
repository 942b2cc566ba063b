from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from trainwarden.embedded import commands, launcher
from trainwarden.errors import BadInputError, NotFoundError
from trainwarden.model import Json


class Recorder:
    """An output that keeps what it was given."""

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        self.lines: list[str] = []
        self.documents: list[Json] = []
        self.tables: list[Sequence[Mapping[str, Json]]] = []

    def rows(self, rows: Sequence[Mapping[str, Json]], columns: Sequence[str], empty: str) -> None:
        del columns, empty
        self.tables.append(rows)

    def document(self, value: Json) -> None:
        self.documents.append(value)

    def line(self, text: str) -> None:
        if not self.as_json:
            self.lines.append(text)

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


def run(*words: str) -> tuple[int, Recorder]:
    """Run ``trainwarden local`` with these words."""
    parser = argparse.ArgumentParser()
    commands.register(parser.add_subparsers())
    args = parser.parse_args(["local", *words])
    out = Recorder(as_json=args.json)
    return args.run(args, out), out


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    launcher.down(tmp_path)


def test_a_session_from_up_to_down(folder: Path) -> None:
    assert "no embedded AWS runs in this folder" in run("status")[1].text
    assert run("status", "--json")[1].documents == [{"running": False}]

    _, out = run("up")
    server = launcher.running(folder)
    assert server.endpoint in out.text
    assert f"export AWS_ENDPOINT_URL={server.endpoint}" in out.text

    (folder / "my_train.py").write_text("import sys\nprint('args', sys.argv[1:])\n")
    options = ["--tags", "a=1", "b=2", "--tags", "c=3", "--hyperparameters", "lr=0.1"]
    code, out = run("train", "my_train.py", "--name", "one", "--wait", *options)
    assert code == 0
    assert out.lines == ["args ['--lr', '0.1']", "one: Completed"]
    arn = server.client("sagemaker").describe_training_job(TrainingJobName="one")["TrainingJobArn"]
    tags = server.client("sagemaker").list_tags(ResourceArn=arn)["Tags"]
    assert {tag["Key"]: tag["Value"] for tag in tags} == {"a": "1", "b": "2", "c": "3"}

    [found] = run("status", "--json")[1].documents
    assert found["endpoint"] == server.endpoint
    assert [(job["job"], job["status"]) for job in found["jobs"]] == [("one", "Completed")]
    assert "nothing is deployed" in run("status")[1].text
    assert "args ['--lr', '0.1']" in run("logs", "one")[1].text
    assert "nothing was logged yet" in run("logs")[1].text
    assert run("outbox", "--json")[1].documents == [[]]

    assert "has ended" in run("down")[1].text
    assert run("down", "--json")[1].documents == [{"ended": False}]


def test_a_script_that_fails_makes_the_command_fail_and_says_why(folder: Path) -> None:
    run("up")
    (folder / "bad.py").write_text("raise SystemExit('out of memory')\n")
    code, out = run("train", "bad.py", "--name", "bad", "--wait", "--json")
    assert code == commands.JOB_FAILED
    [document] = out.documents
    assert document["status"] == "Failed"
    assert "out of memory" in document["failure"]


def test_without_wait_the_name_is_made_and_told(folder: Path) -> None:
    run("up")
    (folder / "some_script.py").write_text("")
    [document] = run("train", "some_script.py", "--json")[1].documents
    assert document["job"].startswith("some-script-20")
    lines: list[str] = []
    from trainwarden.embedded import jobs

    jobs.follow(launcher.running(folder), document["job"], lines.append)
    assert lines == []


def test_messages_are_shown_as_a_person_would_read_them(folder: Path) -> None:
    run("up")
    message = {"protocol": "email", "to": "ada@example.org", "subject": "S", "message": "text"}
    (folder / ".trainwarden" / "outbox.jsonl").write_text(json.dumps(message) + "\n")
    _, out = run("outbox")
    assert out.lines[:3] == ["email to ada@example.org", "Subject: S", f"\ntext\n{'-' * 72}"]


@pytest.mark.parametrize("verb", [["deploy"], ["train", "x.py"], ["logs"]])
def test_a_verb_that_needs_the_server_says_how_to_start_it(folder: Path, verb: list[str]) -> None:
    del folder
    with pytest.raises(NotFoundError, match="trainwarden local up"):
        run(*verb)


@pytest.mark.parametrize("word", ["novalue", "=x"])
def test_a_pair_without_key_or_value_is_refused(word: str) -> None:
    with pytest.raises(BadInputError, match="--tags key=value"):
        commands.pairs([word], "--tags")


def test_a_value_may_contain_equals_signs() -> None:
    assert commands.pairs(["a=b=c", "d="], "--tags") == {"a": "b=c", "d": ""}
