"""Manifest and end objects."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest

from trainwarden.errors import MalformedObjectError
from trainwarden.model import Collection, Layout, TensorInfo
from trainwarden.wire.manifest import (
    MAX_END_BYTES,
    MAX_MANIFEST_BYTES,
    MAX_TENSORS,
    WIRE_VERSION,
    End,
    Manifest,
    layout_hash,
)


@pytest.fixture
def manifest(layout: Layout) -> Manifest:
    return Manifest(
        job="resnet-7",
        run="5f3a",
        identity="0" * 32,
        framework="torch 2.13.0",
        world_size=8,
        workers=(0, 3),
        layout=layout,
        rules={"Overfit": {"patience": "3"}},
        capture={"save_interval": 10},
        environment={"python": "3.12", "größe": 1.5},
        sagemaker=True,
        created=1_790_000_000.25,
    )


def test_a_manifest_survives_the_way(manifest: Manifest) -> None:
    assert Manifest.from_bytes(manifest.to_bytes()) == manifest


def test_tensors_in_several_collections_survive_the_way(manifest: Manifest) -> None:
    layout = Layout((TensorInfo("a", "weights", also=("mine", "yours")), TensorInfo("b", "mine")))
    sent = dataclasses.replace(manifest, layout=layout)
    found = Manifest.from_bytes(sent.to_bytes())
    assert found == sent
    assert found.layout.names_by_collection["mine"] == ("a", "b")
    tensors = json.loads(sent.to_bytes())["tensors"]
    assert ["also" in tensor for tensor in tensors] == [True, False]


def test_an_end_survives_the_way() -> None:
    end = End("job", 3, "run", -1, "stopped", 12.5, {"dropped": 2})
    assert End.from_bytes(end.to_bytes()) == end


def test_equal_manifests_give_equal_bytes(manifest: Manifest) -> None:
    turned = dataclasses.replace(
        manifest, environment=dict(reversed(list(manifest.environment.items())))
    )
    assert turned.to_bytes() == manifest.to_bytes()


def test_a_summary_has_the_size_of_the_layout_and_not_the_layout(manifest: Manifest) -> None:
    summary = manifest.summary()
    assert json.loads(json.dumps(summary)) == summary
    assert (summary["tensors"], summary["layout"]) == (6, layout_hash(manifest.layout.tensors))
    assert (summary["job"], summary["workers"], summary["wire"]) == ("resnet-7", [0, 3], 1)
    assert "weights/ebene.0" not in json.dumps(summary)


def test_a_summary_is_small_whatever_people_want_to_know(manifest: Manifest) -> None:
    junk = {f"k{i}": "x" * 1_000 for i in range(900)}
    large = dataclasses.replace(manifest, environment=junk, capture=junk)
    assert large.summary() == manifest.summary()


def test_the_hash_of_a_layout_sees_every_property() -> None:
    tensor = TensorInfo("a", "weights", (2, 3), "float32", "m", "Linear", 1, trainable=True)
    others = [
        dataclasses.replace(tensor, **change)
        for change in (
            {"name": "b"},
            {"collection": "biases"},
            {"shape": (3, 2)},
            {"dtype": "float16"},
            {"module": "n"},
            {"kind": "Conv"},
            {"depth": 2},
            {"trainable": False},
            {"also": ("mine",)},
        )
    ]
    hashes = {layout_hash([t]) for t in (tensor, *others)}
    hashes |= {layout_hash([tensor, others[0]]), layout_hash([others[0], tensor]), layout_hash([])}
    assert len(hashes) == 13
    assert all(len(found) == 16 and int(found, 16) >= 0 for found in hashes)


def test_the_hash_of_a_layout_never_changes() -> None:
    tensors = [TensorInfo("fc.weight", Collection.WEIGHTS, (2, 3)), TensorInfo("x", "own", depth=3)]
    assert layout_hash(tensors) == "99e30b14ea0b82ab"
    assert (
        layout_hash([TensorInfo("fc.weight", "weights", (2, 3)), tensors[1]]) == "99e30b14ea0b82ab"
    )


CHANGES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "newer wire": (lambda m: m.update(wire=2), "deploy a trainwarden as new as the hook"),
    "job with a path": (lambda m: m.update(job="../../etc"), "a job name of 1 to 63"),
    "job too long": (lambda m: m.update(job="a" * 64), "a job name of 1 to 63"),
    "no run": (lambda m: m.pop("run"), "with 'run'"),
    "workers unsorted": (lambda m: m.update(workers=[3, 0]), "ascending worker ranks"),
    "workers twice": (lambda m: m.update(workers=[0, 0]), "ascending worker ranks"),
    "more workers than processes": (
        lambda m: m.update(workers=[0, 1, 2], world_size=2),
        "at most 2 workers",
    ),
    "more workers than are read": (
        lambda m: m.update(workers=list(range(65)), world_size=10_000),
        "at most 64 workers that write, of 10000 processes",
    ),
    "no workers": (lambda m: m.update(workers=[]), "ascending worker ranks"),
    "no world": (lambda m: m.update(world_size=0), "'world_size' as an integer"),
    "name twice": (lambda m: m["tensors"].append(m["tensors"][0]), "unique tensor names"),
    "tensor as text": (lambda m: m["tensors"].append("x"), "a list of objects"),
    "negative shape": (lambda m: m["tensors"][0].update(shape=[-1]), "'shape' as integers"),
    "unknown depth": (lambda m: m["tensors"][0].update(depth=-2), "'depth' as an integer"),
    "too many tensors": (
        lambda m: m.update(tensors=[0] * (MAX_TENSORS + 1)),
        "'tensors' as a list of at most",
    ),
    "environment as list": (lambda m: m.update(environment=[]), "'environment' as an object"),
    "sagemaker as text": (lambda m: m.update(sagemaker="yes"), "'sagemaker' as true or false"),
    "created never": (lambda m: m.update(created=float("inf")), "finite numbers"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_malformed_manifest_is_refused_by_its_fault(name: str, manifest: Manifest) -> None:
    edit, message = CHANGES[name]
    document = json.loads(manifest.to_bytes())
    edit(document)
    with pytest.raises(MalformedObjectError, match=message):
        Manifest.from_bytes(json.dumps(document).encode())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"wire": 2}, "of wire version 1"),
        ({"last_seq": -2}, "'last_seq' as an integer"),
        ({"worker": 10_000}, "'worker' as an integer"),
        ({"counters": {"a": -1}}, "'counters' as counters"),
        ({"job": "a/b"}, "a job name of 1 to 63"),
    ],
)
def test_a_malformed_end_is_refused_by_its_fault(change: dict[str, Any], message: str) -> None:
    document = json.loads(End("job", 0, "run", 3).to_bytes()) | change
    with pytest.raises(MalformedObjectError, match=message):
        End.from_bytes(json.dumps(document).encode())


def test_documents_over_the_limit_are_not_parsed() -> None:
    with pytest.raises(MalformedObjectError, match="a manifest of at most"):
        Manifest.from_bytes(b"{" + b" " * MAX_MANIFEST_BYTES + b"}")
    with pytest.raises(MalformedObjectError, match="an end object of at most"):
        End.from_bytes(b"{" + b" " * MAX_END_BYTES + b"}")


def test_a_manifest_of_numbers_that_are_none_is_not_written(manifest: Manifest) -> None:
    with pytest.raises(MalformedObjectError, match="finite JSON values"):
        dataclasses.replace(manifest, environment={"loss": float("nan")}).to_bytes()


def test_what_no_reader_takes_is_not_written(manifest: Manifest, layout: Layout) -> None:
    with pytest.raises(MalformedObjectError, match="unique tensor names"):
        dataclasses.replace(manifest, layout=Layout(layout.tensors * 2)).to_bytes()
    with pytest.raises(MalformedObjectError, match="a manifest of at most"):
        dataclasses.replace(manifest, environment={"x": "y" * MAX_MANIFEST_BYTES}).to_bytes()
    with pytest.raises(MalformedObjectError, match="'last_seq' as an integer"):
        End("job", 0, "run", -2).to_bytes()


def test_large_integers_of_an_environment_are_kept(manifest: Manifest) -> None:
    seeded = dataclasses.replace(manifest, environment={"seed": 2**64 - 1})
    assert Manifest.from_bytes(seeded.to_bytes()) == seeded


def test_a_field_that_a_later_writer_adds_is_ignored(manifest: Manifest) -> None:
    document = json.loads(manifest.to_bytes()) | {"mood": "good"}
    assert Manifest.from_bytes(json.dumps(document).encode()) == manifest
    assert manifest.wire == WIRE_VERSION
