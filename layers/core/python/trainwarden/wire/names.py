"""Names of tensors, scalars and collections: how long they are, and what they are made of.

Readers refuse what is longer. Writers, who cannot choose what a user's modules are called, bring
each name into shape with ``writable``.
"""

from __future__ import annotations

import hashlib

MAX_NAME_CHARS = 1024
MAX_COLLECTION_CHARS = 128
MAX_KIND_CHARS = 256

_GRADIENT = "gradient/"
_ROOM = 16  # for a prefix in front of a parameter's name, so that both are shortened alike
_HASH_CHARS = 12


def writable(name: str, most: int = MAX_NAME_CHARS) -> str:
    """Return ``name`` as every reader takes it; equal names give equal results.

    What cannot be printed is escaped, half a surrogate pair is replaced by U+FFFD. A name that is
    too long, or that had something replaced, ends in a hash of what it was, so that two names that
    differ stay two. ``gradient/`` in front of a parameter's name does not change the rest.

    Args:
        name: Any string.
        most: Longest result, at least 64 characters.
    """
    prefix = _GRADIENT if name.startswith(_GRADIENT) else ""
    rest, room = name[len(prefix) :], most - _ROOM
    if len(rest) <= room and rest.isprintable():
        return name
    shown = "".join(map(_printable, rest[:most]))
    if len(rest) > most or len(shown) > room or not _is_text(rest):
        digest = hashlib.sha256(rest.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_CHARS]
        shown = f"{shown[: room - _HASH_CHARS - 1]}~{digest}"
    return prefix + shown


def _printable(character: str) -> str:
    if character.isprintable():
        return character
    if "\ud800" <= character <= "\udfff":
        return "\ufffd"
    return character.encode("unicode_escape").decode()


def _is_text(name: str) -> bool:
    """Say if there is no half surrogate pair, which no encoder takes."""
    return not any("\ud800" <= character <= "\udfff" for character in name)
