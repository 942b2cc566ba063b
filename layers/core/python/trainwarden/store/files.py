"""Files that several processes write: whole or not at all, one at a time, errors translated."""

from __future__ import annotations

import errno
import os
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from trainwarden.errors import BadInputError, MalformedObjectError, RetryableError

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_FOR_EVER = {
    errno.EACCES: "give this user the right to read and write there",
    errno.EPERM: "give this user the right to read and write there",
    errno.EROFS: "choose a folder on a writable file system",
    errno.ENOTDIR: "remove the file that stands where a folder is needed",
    errno.EISDIR: "remove the folder that stands where a file is needed",
    errno.EEXIST: "remove the file that stands where a folder is needed",
    errno.ENAMETOOLONG: "choose a folder with a shorter path",
    errno.ELOOP: "remove the links",
}


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn the operating system's errors about ``path`` into ours.

    Raises:
        BadInputError: refused for ever, with what to do.
        RetryableError: anything else: disk full, too many open files, I/O error.
    """
    try:
        yield
    except OSError as exc:
        if exc.errno in _FOR_EVER:
            raise BadInputError(
                f"to read and write {path}", os.strerror(exc.errno), _FOR_EVER[exc.errno]
            ) from exc
        raise RetryableError(f"{path}: {exc.strerror or exc}") from exc


def write_atomically(path: Path, body: bytes) -> None:
    """Write a file, and the folders above it, so that readers see the old body or the new one.

    A process killed half-way leaves at most a hidden file whose name begins with a dot.

    Raises:
        OSError: as the operating system says.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temp = path.with_name(f".{path.name[:80]}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        with temp.open("xb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())  # else a power cut may show the new name with no content
        temp.replace(path)
    except BaseException:
        with suppress(OSError):
            temp.unlink()
        raise


def read_bounded(path: Path, max_bytes: int) -> bytes | None:
    """Read a regular file of at most ``max_bytes``; None if there is none or it is a folder.

    Raises:
        MalformedObjectError: larger, or a device, pipe or socket.
        OSError: as the operating system says.
    """
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            return None
        if not stat.S_ISREG(status.st_mode):  # opening a named pipe would wait for its writer
            raise MalformedObjectError("a regular file", f"something else at {path}")
        body = b""
        if status.st_size <= max_bytes:
            with path.open("rb") as file:
                body = file.read(max_bytes + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if max(status.st_size, len(body)) > max_bytes:
        raise MalformedObjectError(
            f"an object of at most {max_bytes} bytes",
            f"{max(status.st_size, len(body))} bytes or more at {path}",
        )
    return body


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold the lock file ``path`` against other processes and threads; released at their death.

    Raises:
        OSError: as the operating system says.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        if sys.platform == "win32":
            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)  # gives up after 10 s: OSError
            try:
                yield
            finally:
                file.seek(0)
                msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)
        else:
            # flock belongs to the open file, so it excludes threads too; closing releases it.
            fcntl.flock(file.fileno(), fcntl.LOCK_EX)
            yield
