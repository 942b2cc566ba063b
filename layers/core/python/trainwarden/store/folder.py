"""Adapters over a local folder: what ``watch(out="folder")`` writes and ``check`` judges.

root/jobs/<job>/…                         objects, under their keys
root/.ledger/<job>/head.json              the record
root/.ledger/<job>/commits/<version>.json the entries of one commit, if it has any
root/.ledger/<job>/lock                   held while committing
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from trainwarden.errors import (
    BadInputError,
    ConflictError,
    KeyGrammarError,
    MalformedObjectError,
)
from trainwarden.store import files, records
from trainwarden.store.ports import Entry, EntryKind, JobRecord, JobStatus
from trainwarden.wire.keys import job_name

_MAX_LEDGER_BYTES = 1 << 30


class FolderObjects:
    """An ``ObjectStore`` in a folder; keys are paths below ``root`` that cannot lead out of it.

    Several processes may read and write. Links are no objects: what a folder from somebody else
    holds is read only as far as it lies in that folder.

    Args:
        root: The folder; made at the first ``put``.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root).absolute()

    def get(self, key: str, *, max_bytes: int) -> bytes | None:
        """Return the object, None if there is none.

        Raises:
            KeyGrammarError: a key that is no path below the folder.
            MalformedObjectError: larger than ``max_bytes`` (never read), a link, a device, a pipe.
            BadInputError: not readable for this user.
        """
        path = self._path(key)
        with files.translated(path):
            if path.resolve() != self.root.resolve() / key and os.path.lexists(path):
                raise MalformedObjectError("a regular file", f"a link at {path}")
            return files.read_bounded(path, max_bytes)

    def put(self, key: str, body: bytes) -> None:
        """Write the object whole or not at all; overwrites.

        Raises:
            KeyGrammarError: a key that is no path below the folder.
            RetryableError: disk full, I/O error.
            BadInputError: not writable for this user, or a file or link stands in the way.
        """
        path = self._path(key)
        with files.translated(path):
            if path.parent.resolve() != (self.root.resolve() / key).parent:
                raise BadInputError("a folder", f"a link at {path.parent}", "remove the link")
            files.write_atomically(path, body)

    def replace(self, key: str, body: bytes, *, before: bytes | None) -> None:
        """Write the object if it is still ``before``; None: if there is none.

        Raises:
            ConflictError: it is another one by now.
            BadInputError: as ``put``, like the others.
        """
        path = self._path(key)
        with files.translated(path), files.exclusive(path.with_name(f".{path.name}.lock")):
            if self._head(path, len(before or b"") + 1) != before:
                raise ConflictError(f"{path} was changed meanwhile")
            self.put(key, body)

    def keys(self, prefix: str, *, after: str = "") -> Iterator[str]:
        """Yield the keys below ``prefix`` in ascending order, those > ``after`` only.

        Raises:
            KeyGrammarError: a prefix that is no path below the folder.
        """
        start = prefix.rpartition("/")[0]
        folder = self._path(start) if start else self.root
        with files.translated(folder):
            if folder.resolve() != self.root.resolve() / start:
                return iter(())
        return _walk(folder, f"{start}/" if start else "", prefix, after)

    @staticmethod
    def _head(path: Path, most: int) -> bytes | None:
        """Return the first ``most`` bytes of a file, None if there is none."""
        if not path.is_file():
            return None
        with path.open("rb") as file:
            return file.read(most)

    def _path(self, key: str) -> Path:
        parts = key.split("/")
        if any(not part or part.startswith(".") for part in parts) or set(key) & set("\\:\0"):
            raise KeyGrammarError(
                "a relative key such as jobs/<job>/manifest.tw, no part of which begins with a dot",
                repr(key[:200]),
            )
        return self.root.joinpath(*parts)


def _walk(folder: Path, base: str, prefix: str, after: str) -> Iterator[str]:
    """Yield keys of regular files below ``folder``, whose own key is ``base``.

    A folder sorts by its name with the slash, as the keys below it do: ``a-b`` before ``a/b``.
    """
    with files.translated(folder):
        try:
            with os.scandir(folder) as entries:
                found = sorted(
                    base + entry.name + ("/" if entry.is_dir(follow_symlinks=False) else "")
                    for entry in entries
                    if not entry.name.startswith(".") and not entry.is_symlink()
                )
        except (FileNotFoundError, NotADirectoryError):
            return
    for key in found:
        if key.endswith("/"):
            overlaps = key.startswith(prefix) or prefix.startswith(key)
            if overlaps and (key > after or after.startswith(key)):
                yield from _walk(folder / key[len(base) : -1], key, prefix, after)
        elif key.startswith(prefix) and key > after:
            yield key


class FolderLedger:
    """A ``Ledger`` in a folder, for one machine; several processes may use it at once.

    Args:
        root: The folder; the ledger lies in ``.ledger`` below it.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = Path(root).absolute() / ".ledger"

    def load(self, job: str) -> JobRecord | None:
        """Read a job's record; None if the job is unknown.

        Raises:
            BadInputError: the file is damaged or not readable for this user.
        """
        head = self._root / job_name(job) / "head.json"
        with files.translated(head):
            text = files.read_bounded(head, _MAX_LEDGER_BYTES)
        return None if text is None else records.record_from_text(text)

    def commit(self, record: JobRecord, entries: Sequence[Entry] = ()) -> None:
        """Write the record and its entries, all or nothing; an entry that exists stays as it is.

        Raises:
            ConflictError: another writer committed first; nothing was written.
            RetryableError: disk full, I/O error.
            BadInputError: more than 96 entries, or not writable for this user.
        """
        kept = records.checked(record, entries)
        folder = self._root / record.job
        head = records.record_to_text(record).encode()
        beside = records.entries_to_text(kept).encode()
        with files.translated(folder), files.exclusive(folder / "lock"):
            stored = self.load(record.job)
            seen = stored.version if stored else 0
            if record.version != seen + 1:
                raise ConflictError(
                    f"{record.job}: version {seen} is stored, not {record.version - 1}"
                )
            # The rename of the head is the commit. A writer killed before it leaves entries of a
            # version that is not reached: nobody reads them, and the next commit replaces them.
            commit = folder / "commits" / f"{record.version:010d}.json"
            if kept:
                files.write_atomically(commit, beside)
            else:
                commit.unlink(missing_ok=True)
            files.write_atomically(folder / "head.json", head)

    def entries(self, job: str, kind: EntryKind) -> Iterator[Entry]:
        """Yield a job's entries of one kind in ascending order of id.

        Raises:
            BadInputError: a file is damaged or not readable for this user.
        """
        record = self.load(job)
        folder = self._root / job / "commits"
        last = f"{record.version:010d}.json" if record else ""
        with files.translated(folder):
            names = sorted(path.name for path in folder.glob("[0-9]*.json") if path.name <= last)
        first: dict[str, Entry] = {}
        for name in names:
            with files.translated(folder / name):
                text = files.read_bounded(folder / name, _MAX_LEDGER_BYTES) or b"[]"
            for entry in records.entries_from_text(text):
                if entry.kind is kind:
                    first.setdefault(entry.id, entry)
        return (first[id_] for id_ in sorted(first))

    def open_jobs(self) -> Iterator[str]:
        """Yield the names of jobs that are not ``CLOSED``."""
        return (record.job for record in self.jobs() if record.status is not JobStatus.CLOSED)

    def jobs(self) -> Iterator[JobRecord]:
        """Yield every job's record."""
        with files.translated(self._root):
            heads = sorted(self._root.glob("*/head.json"))
        for head in heads:
            record = self.load(head.parent.name)
            if record:
                yield record
