"""Names that no reader would take are brought into shape, and stay different."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwarden.model import Layout, TensorInfo
from trainwarden.wire.manifest import Manifest
from trainwarden.wire.names import MAX_COLLECTION_CHARS, MAX_NAME_CHARS, writable

ANY_TEXT = st.text(alphabet=st.characters(), max_size=40).map(lambda text: text * 60)


@pytest.mark.parametrize(
    "name", ["", "fc1.weight", "gradient/fc1.weight", "größe/层 1", "a" * 1000]
)
def test_an_ordinary_name_stays_as_it_is(name: str) -> None:
    assert writable(name) is name


def test_what_cannot_be_printed_is_escaped() -> None:
    assert writable("a\nb\x1b[31m\u202e") == r"a\nb\x1b[31m\u202e"


def test_long_names_that_differ_at_their_end_stay_two() -> None:
    found = {writable("m." * 2000 + end) for end in ("a", "b")}
    assert len(found) == 2
    assert all(len(name) <= MAX_NAME_CHARS for name in found)


def test_halves_of_surrogate_pairs_are_replaced_and_stay_two() -> None:
    found = {writable(name) for name in ("\ud800", "\ud801")}
    assert len(found) == 2
    assert all(name.startswith("\ufffd~") for name in found)


@pytest.mark.parametrize("chars", [990, 1008, 1009, 1016, 1024, 5000])
def test_a_gradient_keeps_the_name_of_its_parameter(chars: int) -> None:
    name = "w" * chars
    assert writable(f"gradient/{name}") == f"gradient/{writable(name)}"


@given(name=ANY_TEXT, collection=ANY_TEXT)
def test_a_manifest_takes_every_name(name: str, collection: str) -> None:
    info = TensorInfo(writable(name), writable(collection, MAX_COLLECTION_CHARS))
    body = Manifest(job="job", run="run", layout=Layout((info,))).to_bytes()
    assert Manifest.from_bytes(body).layout.tensors == (info,)
    assert writable(info.name) == info.name
