"""Lambda: code and layers are unpacked once, not again for every worker.

MiniStack unpacks 75 MB of layers for each worker it starts, which on a small machine takes longer
than all the rest of a cold start.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import threading
import zipfile
from pathlib import Path
from types import ModuleType

from ministack.core import lambda_runtime

from trainwarden.embedded.settings import ServerSettings


class Unpacked:
    """Archives by content, each unpacked into a folder that nobody writes to."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = threading.Lock()

    def folder(self, archive: zipfile.ZipFile) -> Path:
        """Return the folder with the archive's content."""
        file = archive.fp
        if file is None:
            raise ValueError("the archive is closed")
        file.seek(0)
        digest = hashlib.sha256(file.read()).hexdigest()
        target = self._root / digest
        with self._lock:
            if not target.exists():
                draft = target.with_suffix(".draft")
                shutil.rmtree(draft, ignore_errors=True)
                zipfile.ZipFile.extractall(archive, draft)
                draft.rename(target)
        return target


def install(_settings: ServerSettings) -> None:
    """Hand MiniStack's workers links instead of copies."""
    unpacked = Unpacked(Path(tempfile.mkdtemp(prefix="unpacked-")))

    class LinkingZipFile(zipfile.ZipFile):
        """A ZipFile whose ``extractall`` links to what is unpacked already."""

        def extractall(self, path: object = None, *_: object, **__: object) -> None:
            target = Path(str(path))
            for entry in unpacked.folder(self).iterdir():
                (target / entry.name).symlink_to(entry)

    substitute = ModuleType("zipfile")
    vars(substitute).update(vars(zipfile), ZipFile=LinkingZipFile)
    lambda_runtime.zipfile = substitute
