"""Steps objects: every bit survives, and only their own kind is read."""

from __future__ import annotations

import dataclasses
import itertools
import json
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from trainwarden.errors import MalformedObjectError, RetryableError
from trainwarden.model import Channels, Layout, Mode, Observation, TensorInfo
from trainwarden.stats import catalog
from trainwarden.wire.codec import (
    MAX_OBJECT_BYTES,
    MAX_STEPS,
    WIRE_VERSION,
    LayoutUnknownError,
    StepsObject,
    decode,
    encode,
)
from trainwarden.wire.container import Entry, entry, pack, unpack
from trainwarden.wire.keys import StepsKey
from trainwarden.wire.manifest import layout_hash
from trainwarden.wire.tables import WIDTH, deflate

Header = dict[str, Any]
Tensors = dict[str, Entry]


def bits(value: float) -> bytes:
    return np.float64(value).tobytes()


def same(found: StepsObject, wanted: StepsObject) -> None:
    """Compare bit by bit, NaN included."""
    for name in ("job", "worker", "seq", "run"):
        assert getattr(found, name) == getattr(wanted, name)
    assert found.dropped == dict(wanted.dropped)
    assert len(found.observations) == len(wanted.observations)
    for a, b in zip(found.observations, wanted.observations, strict=True):
        for name in ("step", "mode", "mode_step", "time", "workers", "partial"):
            assert getattr(a, name) == getattr(b, name)
        rows = len(b.stats)
        assert a.stats[:rows].tobytes() == np.ascontiguousarray(b.stats).tobytes()
        assert np.isnan(a.stats[rows:]).all()
        present = {c: m for c, m in b.scalars.items() if m}
        assert {c: set(m) for c, m in a.scalars.items()} == {c: set(m) for c, m in present.items()}
        for collection, members in present.items():
            for name, value in members.items():
                assert bits(a.scalars[collection][name]) == bits(value)
        assert a.labels == {name: counts for name, counts in b.labels.items() if counts}
        assert set(a.channels) == set(b.channels)
        for name, (active, seen) in b.channels.items():
            assert a.channels[name].seen == seen
            np.testing.assert_array_equal(a.channels[name].active, active)
    assert set(found.histograms) == set(wanted.histograms)
    for at, counts in wanted.histograms.items():
        np.testing.assert_array_equal(found.histograms[at], counts)


def test_everything_survives_the_way(steps: StepsObject, layout: Layout, key: StepsKey) -> None:
    same(decode(encode(steps), layout, key=key), steps)


def test_equal_objects_give_equal_bytes(steps: StepsObject) -> None:
    shuffled = dataclasses.replace(
        steps,
        observations=tuple(
            dataclasses.replace(obs, scalars=dict(reversed(list(obs.scalars.items()))))
            for obs in steps.observations
        ),
        histograms=dict(reversed(list(steps.histograms.items()))),
    )
    assert encode(shuffled) == encode(steps)


def test_any_safetensors_reader_opens_an_object(steps: StepsObject) -> None:
    found = safetensors.numpy.load(encode(steps))
    assert found["stats.columns"].shape == (32,)
    assert found["scalars"].shape == (5, 2)


words = hnp.arrays(np.uint64, st.tuples(st.integers(1, 4), st.integers(1, 5), st.just(32)))


@given(words, st.booleans())
def test_any_bit_pattern_of_a_table_survives(table: np.ndarray[Any, Any], smooth: bool) -> None:  # noqa: FBT001 - drawn by hypothesis
    if smooth:
        table = table & np.uint64(0xFFFFFFFFE0000000) & np.uint64(0xC7FFFFFFFFFFFFFF)
    stats = table.view(np.float64)
    stats[..., :9] = 3.0
    layout = Layout(tuple(TensorInfo(f"t{i}", "weights") for i in range(stats.shape[1])))
    observations = tuple(Observation(i, Mode.TRAIN, i, 0.0, layout, s) for i, s in enumerate(stats))
    obj = StepsObject("j", 0, 0, "r", observations)
    same(decode(encode(obj), layout, key=StepsKey("j", 0, 0)), obj)


names = st.text(st.characters(codec="utf-8"), max_size=12)
scalars = st.dictionaries(names, st.dictionaries(names, st.floats(), max_size=3), max_size=3)
labels = st.dictionaries(
    names,
    st.dictionaries(st.integers(-(2**53), 2**53), st.integers(0, 2**53), max_size=4),
    max_size=2,
)
activity = st.integers(0, 2**40).flatmap(
    lambda seen: st.builds(
        Channels,
        hnp.arrays(np.int64, st.integers(0, 5), elements=st.integers(0, seen)),
        st.just(seen),
    )
)


@given(
    st.lists(st.tuples(scalars, labels, st.dictionaries(names, activity, max_size=2)), min_size=1)
)
def test_any_side_tables_survive(sides: list[tuple[Any, Any, Any]]) -> None:
    observations = tuple(
        Observation(i, Mode.TRAIN, i, 0.0, scalars=s, labels=lab, channels=ch)
        for i, (s, lab, ch) in enumerate(sides)
    )
    obj = StepsObject("j", 0, 0, "r", observations)
    same(decode(encode(obj), Layout(), key=StepsKey("j", 0, 0)), obj)


def test_a_growing_layout_fills_earlier_steps_with_nan(
    steps: StepsObject, layout: Layout, key: StepsKey
) -> None:
    shorter = Layout(layout.tensors[:4])
    first = dataclasses.replace(
        steps.observations[0], layout=shorter, stats=steps.observations[0].stats[:4]
    )
    grown = dataclasses.replace(steps, observations=(first, *steps.observations[1:]))
    found = decode(encode(grown), layout, key=key)
    same(found, grown)
    assert found.observations[0].captured("weights").tolist() == [3]


def test_an_object_is_read_with_a_longer_layout(
    steps: StepsObject, layout: Layout, key: StepsKey
) -> None:
    longer = Layout((*layout.tensors, TensorInfo("later", "weights")))
    found = decode(encode(steps), longer, key=key)
    assert found.observations[0].layout is longer
    assert len(found.observations[0].stats) == 6


def test_more_rows_than_the_layout_ask_for_the_manifest_again(
    steps: StepsObject, layout: Layout, key: StepsKey
) -> None:
    with pytest.raises(LayoutUnknownError, match="6 rows, but the manifest read has 5") as caught:
        decode(encode(steps), Layout(layout.tensors[:5]), key=key)
    assert isinstance(caught.value, RetryableError)


def test_another_layout_of_the_same_length_is_refused(
    steps: StepsObject, layout: Layout, key: StepsKey
) -> None:
    other = Layout((*layout.tensors[:5], dataclasses.replace(layout.tensors[5], name="else")))
    with pytest.raises(MalformedObjectError, match=f"rows of layout {layout_hash(other.tensors)}"):
        decode(encode(steps), other, key=key)


@pytest.mark.parametrize(
    "other", [StepsKey("resnet-8", 3, 12), StepsKey("resnet-7", 2, 12), StepsKey("resnet-7", 3, 11)]
)
def test_an_object_at_another_key_is_refused(
    steps: StepsObject, layout: Layout, other: StepsKey
) -> None:
    with pytest.raises(MalformedObjectError, match="the object of"):
        decode(encode(steps), layout, key=other)


def test_a_step_merged_in_the_job_names_its_workers(
    steps: StepsObject, layout: Layout, key: StepsKey
) -> None:
    merged = dataclasses.replace(steps.observations[0], workers=(3, 4, 5), partial=True)
    obj = dataclasses.replace(steps, observations=(merged,), histograms={})
    same(decode(encode(obj), layout, key=key), obj)


def test_tables_that_were_read_cannot_be_written(
    steps: StepsObject, layout: Layout, key: StepsKey
) -> None:
    found = decode(encode(steps), layout, key=key).observations[0].stats
    assert not found.flags.writeable
    assert found.flags.c_contiguous


def test_the_wire_and_the_catalogue_agree_on_the_width() -> None:
    assert WIDTH == catalog.WIDTH


def change(body: bytes, edit: Callable[[Header, Tensors], None]) -> bytes:
    """Edit the header and tensors of an object and pack it again, validly."""
    found = unpack(body)
    header, tensors = json.loads(found.metadata["trainwarden"]), dict(found.tensors)
    edit(header, tensors)
    text = json.dumps(header)
    return pack(tensors, {"trainwarden": text})


def header(**changes: object) -> Callable[[Header, Tensors], None]:
    return lambda found, _: found.update(changes)


def step(**changes: object) -> Callable[[Header, Tensors], None]:
    return lambda found, _: found["steps"][1].update(changes)


def side(name: str, **changes: object) -> Callable[[Header, Tensors], None]:
    return lambda found, _: found[name].update(changes)


def replace(name: str, array: np.ndarray[Any, Any]) -> Callable[[Header, Tensors], None]:
    return lambda _, tensors: tensors.update({name: entry(array)})


def packed(name: str, array: np.ndarray[Any, Any]) -> Callable[[Header, Tensors], None]:
    return lambda _, tensors: tensors.update({name: deflate(array)})


def drop(name: str) -> Callable[[Header, Tensors], None]:
    return lambda found, tensors: (found.pop(name, None), tensors.pop(name, None), None)[-1]


INDEX = np.zeros((4, 4), np.int64)
MALFORMED: dict[str, tuple[Callable[[Header, Tensors], None], str]] = {
    "newer wire": (header(wire=WIRE_VERSION + 1), "deploy a trainwarden as new as the hook"),
    "wire zero": (header(wire=0), "of wire version 1"),
    "wire as text": (header(wire="1"), "'wire' as an integer"),
    "no job": (drop("job"), "with 'job'"),
    "job as number": (header(job=3), "'job' as a string"),
    "job with a path": (header(job="../x"), "the object of"),
    "negative seq": (header(seq=-1), "'seq' as an integer"),
    "worker as truth": (header(worker=True), "'worker' as an integer"),
    "absurd rows": (header(rows=2**40), "'rows' as an integer"),
    "fewer rows": (header(rows=5), "rows of layout"),
    "no steps": (header(steps=[]), "at least one step"),
    "too many steps": (header(steps=[{}] * (MAX_STEPS + 1)), "'steps' as a list of at most"),
    "steps as text": (header(steps="abc"), "'steps' as a list"),
    "step without fields": (header(steps=[{}]), "with 'mode'"),
    "step as number": (header(steps=[1]), "a list of objects"),
    "one step more": (
        lambda found, _: found["steps"].append(found["steps"][0]),
        "tensor 'stats.raw'",
    ),
    "negative step": (step(step=-1), "'step' as an integer"),
    "fractional step": (step(step=1.5), "'step' as an integer"),
    "absurd step": (step(step=2**60), "'step' as an integer"),
    "unknown mode": (step(mode="TEST"), "a mode of TRAIN, EVAL"),
    "negative time": (step(time=-1.0), "'time' as a number"),
    "time as text": (step(time="now"), "'time' as a number"),
    "NaN time": (step(time=float("nan")), "finite numbers"),
    "infinite time": (step(time=float("inf")), "finite numbers"),
    "absurd time": (step(time=1e300), "'time' as a number"),
    "absurd worker": (step(workers=[10_000]), "'workers'"),
    "partial as number": (step(partial=1), "'partial'"),
    "negative drops": (header(dropped={"queue": -1}), "'dropped' as counters"),
    "dropped as list": (header(dropped=[1]), "'dropped' as an object"),
    "run too long": (header(run="x" * 200), "'run' as a string"),
    "columns missing": (drop("stats.columns"), "tensor 'stats.columns'"),
    "columns of another code": (replace("stats.columns", np.full(32, 3, np.uint8)), "codes from 0"),
    "columns of another width": (replace("stats.columns", np.zeros(31, np.uint8)), "U8 \\(32,\\)"),
    "all columns constant": (replace("stats.columns", np.zeros(32, np.uint8)), "'stats.planes'"),
    "planes of another code": (
        lambda _, t: t.update({"stats.planes": entry(t["stats.planes"].array() * 0 + 2)}),
        "codes from 0",
    ),
    "raw of another height": (replace("stats.raw", np.zeros((1, 30), np.uint8)), "'stats.raw'"),
    "packed missing": (drop("stats.packed"), "tensor 'stats.packed'"),
    "packed of another type": (replace("stats.packed", np.zeros(9)), "as a U8 vector"),
    "packed is no zlib": (replace("stats.packed", np.zeros(99, np.uint8)), "as a zlib stream"),
    "packed is too short": (packed("stats.packed", np.zeros(9, np.uint8)), "the table of"),
    "packed is a bomb": (packed("stats.packed", np.zeros(10**7, np.uint8)), "the table of"),
    "packed has a tail": (
        lambda _, t: t.update(
            {"stats.packed": entry(np.append(t["stats.packed"].array(), np.uint8(0)))}
        ),
        "the table of",
    ),
    "packed is cut": (
        lambda _, t: t.update({"stats.packed": entry(t["stats.packed"].array()[:-1])}),
        "the table of",
    ),
    "scalars missing": (lambda _, t: t.update(scalars=t["stats.columns"]), "tensor 'scalars'"),
    "scalars of one name": (header(scalars=[["losses", "loss"]]), "tensor 'scalars'"),
    "scalars twice": (header(scalars=[["a", "b"]] * 2), "unique scalars"),
    "scalars as text": (header(scalars=["losses", "loss"]), "scalars as \\[collection, name\\]"),
    "scalars of one part": (header(scalars=[["a"], ["b"]]), "scalars as \\[collection, name\\]"),
    "mask of another type": (replace("scalars.present", np.zeros((5, 2))), "'scalars.present'"),
    "channels as list": (header(channels=[]), "'channels' as an object"),
    "channels of no width": (side("channels", width=0), "'width' as an integer"),
    "channels of odd width": (side("channels", width=3), "in 1, 2, 4 or 8 bytes"),
    "channel names twice": (side("channels", names=["a", "a"]), "unique strings"),
    "channels without names": (side("channels", names=[]), "an index out of range"),
    "absurd entries": (side("channels", entries=10**9), "'entries' as an integer"),
    "other number of entries": (side("channels", entries=3), "the index of channels"),
    "channels of no step": (packed("channels.index", np.array([[9, 0, 0, 0]] * 2)), "out of range"),
    "channels of negative step": (
        packed("channels.index", np.array([[-1, 0, 0, 0]] * 2)),
        "out of range",
    ),
    "channels twice": (packed("channels.index", INDEX[:2]), "once a step"),
    "negative channels": (
        packed("channels.index", np.array([[0, 0, -1, 0], [1, 0, 8, 9]])),
        "from 0",
    ),
    "absurd channels": (
        packed("channels.index", np.array([[0, 0, 2**62, 9], [1, 0, 2**62, 9]])),
        "activity of at most",
    ),
    "more active than seen": (
        packed("channels.index", np.array([[1, 0, 7, 1], [3, 0, 7, 1]])),
        "active in at most what was seen",
    ),
    "activity missing": (drop("channels.active"), "tensor 'channels.active'"),
    "other number of labels": (side("labels", entries=1), "the index of labels"),
    "negative label counts": (
        lambda found, t: (
            found["labels"].update(entries=1),
            t.update({"labels.index": deflate(np.array([[0, 0, 7, -1]]))}),
            None,
        )[-1],
        "label counts from 0",
    ),
    "histogram of no bin": (
        lambda found, t: (
            found["histograms"].update(entries=1),
            t.update({"histograms.index": deflate(np.array([[0, 0, 769, 1]]))}),
            None,
        )[-1],
        "in 769 bins",
    ),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_object_is_refused_by_its_fault(
    name: str, steps: StepsObject, layout: Layout, key: StepsKey
) -> None:
    edit, message = MALFORMED[name]
    body = change(encode(steps), edit)
    with pytest.raises(MalformedObjectError, match=message):
        decode(body, layout, key=key)


@pytest.mark.parametrize(
    ("at", "value"),
    [
        *itertools.product([(0, 0), (1, 4), (4, 8), (2, 17), (0, 31)], [-1.0, np.inf, -np.inf]),
        *itertools.product([(1, 1), (1, 6)], [np.nan]),
    ],
)
def test_a_counter_that_counts_nothing_is_refused(
    at: tuple[int, int],
    value: float,
    steps: StepsObject,
    layout: Layout,
    key: StepsKey,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps.observations[2].stats[at] = value
    with pytest.raises(MalformedObjectError, match="counters from 0"):
        encode(steps)
    with monkeypatch.context() as careless:
        careless.setattr("trainwarden.wire.tables._check_counters", lambda _: None)
        body = encode(steps)
    with pytest.raises(MalformedObjectError, match="counters from 0"):
        decode(body, layout, key=key)


def test_a_header_without_our_part_is_refused(layout: Layout, key: StepsKey) -> None:
    with pytest.raises(MalformedObjectError, match="steps object as strict JSON"):
        decode(pack({}, {}), layout, key=key)


def test_an_object_over_the_limit_is_not_looked_at(layout: Layout, key: StepsKey) -> None:
    with pytest.raises(MalformedObjectError, match="an object of at most"):
        decode(bytes(MAX_OBJECT_BYTES + 1), layout, key=key)


def test_a_bomb_is_not_inflated(steps: StepsObject, layout: Layout, key: StepsKey) -> None:
    stream = zlib.compressobj(1)
    bomb = b"".join(stream.compress(bytes(2**20)) for _ in range(128)) + stream.flush()
    edit = replace("stats.packed", np.frombuffer(bomb, np.uint8))
    body = change(encode(steps), edit)
    tracemalloc.start()
    try:
        with pytest.raises(MalformedObjectError, match="the table of"):
            decode(body, layout, key=key)
        assert tracemalloc.get_traced_memory()[1] < 4 * 2**20
    finally:
        tracemalloc.stop()


def test_a_table_too_large_to_hold_is_refused_before_it_is_made(key: StepsKey) -> None:
    layout = Layout(tuple(TensorInfo(f"t{i}", "weights") for i in range(50_000)))
    obs = Observation(0, Mode.TRAIN, 0, 0.0, layout)
    body = encode(StepsObject(key.job, key.worker, key.seq, "r", (obs,)))
    more = change(body, lambda found, _: found.update(steps=found["steps"] * 1000))
    with pytest.raises(MalformedObjectError, match="a table of at most"):
        decode(more, layout, key=key)


UNWRITABLE: dict[str, tuple[Callable[[StepsObject], StepsObject], str]] = {
    "no steps": (lambda o: dataclasses.replace(o, observations=()), "1 to 1000 steps"),
    "too many steps": (
        lambda o: dataclasses.replace(o, observations=o.observations[:1] * 1001),
        "1 to 1000 steps",
    ),
    "a table too large": (
        lambda o: dataclasses.replace(o, observations=(_wide(),) * 30),
        "a table of at most",
    ),
    "layouts of two runs": (
        lambda o: dataclasses.replace(o, observations=(_wide(9), *o.observations)),
        "layouts that extend each other",
    ),
    "more rows than names": (
        lambda o: _with(o, stats=np.zeros((7, 32))),
        "statistics \\(<= 6, 32\\)",
    ),
    "another width": (lambda o: _with(o, stats=np.zeros((6, 31))), "statistics \\(<= 6, 32\\)"),
    "a negative step": (lambda o: _with(o, step=-1), "'step' as an integer"),
    "an endless time": (lambda o: _with(o, time=float("nan")), "'time' as a number"),
    "negative activity": (
        lambda o: _with(o, channels={"c": Channels(np.array([-1]), 3)}),
        "channels active in 0 to all",
    ),
    "more activity than was seen": (
        lambda o: _with(o, channels={"c": Channels(np.array([4]), 3)}),
        "channels active in 0 to all",
    ),
    "negative label counts": (lambda o: _with(o, labels={"l": {1: -1}}), "label counts from 0"),
    "a name too long": (lambda o: _with(o, scalars={"m": {"x" * 1025: 1.0}}), "of 1024 characters"),
    "a label too long": (lambda o: _with(o, labels={"x" * 1025: {1: 1}}), "of 1024 characters"),
    "a number of eleven digits": (lambda o: dataclasses.replace(o, seq=10**10), "'seq'"),
    "a run too long": (lambda o: dataclasses.replace(o, run="x" * 129), "'run' as a string"),
    "negative drops": (lambda o: dataclasses.replace(o, dropped={"a": -1}), "'dropped'"),
    "a histogram of another size": (
        lambda o: dataclasses.replace(o, histograms={(0, "a"): np.zeros(3, np.int64)}),
        "counts \\(769,\\)",
    ),
    "a histogram of no step": (
        lambda o: dataclasses.replace(o, histograms={(5, "a"): np.ones(769, np.int64)}),
        "counts \\(769,\\)",
    ),
    "a histogram of negative counts": (
        lambda o: dataclasses.replace(o, histograms={(0, "a"): -np.ones(769, np.int64)}),
        "counts \\(769,\\)",
    ),
    "too many bytes": (
        lambda o: _with(o, channels={"c": _noise(), "d": _noise()}),
        "an object of at most",
    ),
}


def _with(obj: StepsObject, **changes: Any) -> StepsObject:
    first = dataclasses.replace(obj.observations[0], **changes)
    return dataclasses.replace(obj, observations=(first, *obj.observations[1:]))


def _wide(rows: int = 5000) -> Observation:
    layout = Layout(tuple(TensorInfo(f"t{i}", "weights") for i in range(rows)))
    return Observation(0, Mode.TRAIN, 0, 0.0, layout)


def _noise() -> Channels:
    return Channels(np.random.default_rng(0).integers(0, 2**50, 800_000), 2**50)


@pytest.mark.parametrize("name", UNWRITABLE)
def test_what_no_reader_takes_is_not_written(name: str, steps: StepsObject) -> None:
    edit, message = UNWRITABLE[name]
    with pytest.raises(MalformedObjectError, match=message):
        encode(edit(steps))
