from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from trainwarden.errors import (
    BadInputError,
    KeyGrammarError,
    MalformedObjectError,
    RetryableError,
)
from trainwarden.store.folder import FolderLedger, FolderObjects
from trainwarden.store.ports import Entry, EntryKind, JobRecord

KEY = "jobs/demo/manifest.tw"
RECORD = JobRecord("demo", version=1)
PRELUDE = """
import os, signal, sys
from dataclasses import replace
from pathlib import Path
from trainwarden.errors import ConflictError
from trainwarden.store.folder import FolderLedger, FolderObjects
from trainwarden.store.ports import Entry, EntryKind, JobRecord
objects, ledger = FolderObjects(sys.argv[1]), FolderLedger(sys.argv[1])
"""
KILL = """
left, rename = int(sys.argv[2]), Path.replace
def replace_or_die(self, target):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return rename(self, target)
Path.replace = replace_or_die
"""


def start(script: str, *args: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", PRELUDE + script, *map(str, args)])


@pytest.mark.parametrize(
    "key",
    [
        "",
        ".",
        "/etc/passwd",
        "../secret",
        "jobs/../../secret",
        "jobs//a",
        "jobs/./a",
        "jobs/a/",
        "jobs\\..\\secret",
        "c:/secret",
        "jobs/\0",
        "jobs/.hidden",
        ".ledger/demo/head.json",
    ],
)
def test_a_key_that_is_no_path_below_the_folder_is_refused(tmp_path: Path, key: str) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    objects = FolderObjects(tmp_path / "run")
    with pytest.raises(KeyGrammarError):
        objects.get(key, max_bytes=100)
    with pytest.raises(KeyGrammarError):
        objects.put(key, b"")
    assert [path.name for path in tmp_path.rglob("*")] == ["secret"]


def test_a_prefix_that_leads_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KeyGrammarError):
        list(FolderObjects(tmp_path).keys("../"))


def test_links_are_no_objects(tmp_path: Path) -> None:
    root, outside = tmp_path / "run", tmp_path / "outside"
    outside.mkdir()
    (outside / "manifest.tw").write_bytes(b"secret")
    (root / "jobs" / "file").mkdir(parents=True)
    (root / "jobs" / "demo").symlink_to(outside)
    (root / "jobs" / "file" / "manifest.tw").symlink_to(outside / "manifest.tw")
    (root / "jobs" / "file" / "dangling.tw").symlink_to(outside / "nothing")
    objects = FolderObjects(root)
    for key in (KEY, "jobs/file/manifest.tw", "jobs/file/dangling.tw"):
        with pytest.raises(MalformedObjectError, match="a link at"):
            objects.get(key, max_bytes=100)
    with pytest.raises(BadInputError, match="remove the link"):
        objects.put(KEY, b"overwritten")
    assert (outside / "manifest.tw").read_bytes() == b"secret"
    assert list(objects.keys("jobs/")) == []
    assert list(objects.keys("jobs/demo/")) == []


def test_a_link_to_the_folder_itself_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    objects = FolderObjects(tmp_path / "link")
    objects.put(KEY, b"body")
    assert objects.get(KEY, max_bytes=10) == b"body"
    assert list(objects.keys("jobs/demo/")) == [KEY]


def test_a_named_pipe_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    objects = FolderObjects(tmp_path)
    objects.put("jobs/demo/control.json", b"")
    os.mkfifo(tmp_path / KEY)
    with pytest.raises(MalformedObjectError, match="a regular file"):
        objects.get(KEY, max_bytes=10)


def test_what_stands_in_the_way_is_named_with_a_remedy(tmp_path: Path) -> None:
    objects = FolderObjects(tmp_path)
    objects.put("jobs/demo", b"a file where a folder is needed")
    with pytest.raises(BadInputError, match="remove the file that stands where a folder"):
        objects.put(KEY, b"")
    (tmp_path / "jobs" / "other" / "manifest.tw").mkdir(parents=True)
    with pytest.raises(BadInputError, match="remove the folder that stands where a file"):
        objects.put("jobs/other/manifest.tw", b"")


@pytest.mark.parametrize(
    ("code", "error"),
    [(errno.ENOSPC, RetryableError), (errno.EIO, RetryableError), (errno.EROFS, BadInputError)],
)
def test_a_disk_that_fails_leaves_the_old_body_and_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, error: type[Exception]
) -> None:
    def fail(_fd: int) -> None:
        raise OSError(code, os.strerror(code))

    objects = FolderObjects(tmp_path)
    objects.put(KEY, b"old")
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(error, match=os.strerror(code)):
        objects.put(KEY, b"new")
    assert objects.get(KEY, max_bytes=10) == b"old"
    assert [path.name for path in (tmp_path / "jobs" / "demo").iterdir()] == ["manifest.tw"]


def test_a_writer_killed_before_the_rename_leaves_the_old_object(tmp_path: Path) -> None:
    objects = FolderObjects(tmp_path)
    objects.put(KEY, b"old")
    killed = start(f'{KILL}\nobjects.put("{KEY}", b"new")', tmp_path, 1)
    assert killed.wait(60) == -signal.SIGKILL
    assert len(list((tmp_path / "jobs" / "demo").iterdir())) == 2  # the hidden file is there …
    assert objects.get(KEY, max_bytes=10) == b"old"
    assert list(objects.keys("")) == [KEY]  # … and is no object


@pytest.mark.parametrize("rename", [1, 2], ids=["before-entries", "before-head"])
@pytest.mark.parametrize("version", [1, 2])
def test_a_writer_killed_within_a_commit_has_committed_nothing(
    tmp_path: Path, version: int, rename: int
) -> None:
    ledger = FolderLedger(tmp_path)
    old = Entry(EntryKind.FINDING, "old", {})
    if version == 2:
        ledger.commit(RECORD, [old])
    before = ledger.load("demo")
    script = f"""{KILL}
ledger.commit(JobRecord("demo", version={version}, outcome="killed"),
              [Entry(EntryKind.FINDING, "killed", {{}})])
"""
    assert start(script, tmp_path, rename).wait(60) == -signal.SIGKILL
    assert ledger.load("demo") == before
    kept = [old] if version == 2 else []
    assert list(ledger.entries("demo", EntryKind.FINDING)) == kept
    ledger.commit(replace(RECORD, version=version))  # the lock is free, the leftovers are not read
    assert list(ledger.entries("demo", EntryKind.FINDING)) == kept
    ledger.commit(replace(RECORD, version=version + 1), [Entry(EntryKind.FINDING, "new", {})])
    assert {e.id for e in ledger.entries("demo", EntryKind.FINDING)} == {
        "new",
        *(e.id for e in kept),
    }


def test_several_processes_lose_no_commit(tmp_path: Path) -> None:
    script = """
for number in range(15):
    while True:
        seen = ledger.load("demo") or JobRecord("demo", rules={"sum": 0})
        try:
            ledger.commit(
                replace(seen, version=seen.version + 1, rules={"sum": seen.rules["sum"] + 1}),
                [Entry(EntryKind.ACTION, f"{os.getpid()}#{number}", {})],
            )
            break
        except ConflictError:
            pass
"""
    writers = [start(script, tmp_path) for _ in range(3)]
    assert [writer.wait(120) for writer in writers] == [0, 0, 0]
    ledger = FolderLedger(tmp_path)
    found = ledger.load("demo")
    assert found is not None
    assert found.version == found.rules["sum"] == 45
    assert len(list(ledger.entries("demo", EntryKind.ACTION))) == 45


def test_the_ledger_lies_beside_the_objects_and_is_none(tmp_path: Path) -> None:
    FolderLedger(tmp_path).commit(RECORD, [Entry(EntryKind.ACTION, "a", {})])
    assert list(FolderObjects(tmp_path).keys("")) == []
    assert [record.job for record in FolderLedger(tmp_path).jobs()] == ["demo"]


def test_a_damaged_record_is_refused_with_a_remedy(tmp_path: Path) -> None:
    ledger = FolderLedger(tmp_path)
    ledger.commit(RECORD)
    (tmp_path / ".ledger" / "demo" / "head.json").write_text('{"job": "demo"')
    with pytest.raises(BadInputError, match="delete it and let the job be judged anew"):
        ledger.load("demo")
