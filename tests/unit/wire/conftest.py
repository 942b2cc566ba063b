"""A steps object with everything in it, and its layout."""

from __future__ import annotations

import numpy as np
import pytest

from trainwarden.model import Channels, Layout, Mode, Observation, TensorInfo
from trainwarden.stats.reductions import Tensor, channel_columns, table
from trainwarden.wire.codec import StepsObject
from trainwarden.wire.keys import StepsKey

KEY = StepsKey("resnet-7", 3, 12)


def make_layout(rows: int = 6) -> Layout:
    kinds = ("weights", "gradients", "activations")
    return Layout(
        tuple(
            TensorInfo(
                name=f"{kinds[i % 3]}/ebene.{i}",
                collection=kinds[i % 3],
                shape=(4, i + 1),
                dtype="float32",
                module=f"ebene.{i}",
                kind="Linear",
                depth=i,
                trainable=i != 4,
            )
            for i in range(rows)
        )
    )


def make_observation(step: int, layout: Layout, worker: int = 3) -> Observation:
    rng = np.random.default_rng(step)
    stats = np.empty((len(layout.tensors), 32))
    arrays = [rng.normal(size=t.shape).astype(np.float32) for t in layout.tensors]
    table([Tensor(x, "float32", x * np.float32(0.9)) for x in arrays], stats)
    stats[::5] = np.nan
    activity = Channels(rng.integers(0, 60_000, 7), 60_000)
    if len(stats) > 2:
        channel_columns(stats[2], activity)
    metrics = {"accuracy": 0.25} if step % 2 else {}
    return Observation(
        step=step,
        mode=Mode.EVAL if step % 3 == 2 else Mode.TRAIN,
        mode_step=step // 2,
        time=1_790_000_000.125 + step,
        layout=layout,
        stats=stats,
        scalars={"losses": {"loss": [1.5, np.nan, np.inf, -0.0][step % 4]}, "metrics": metrics},
        channels={"activations/ebene.2": activity} if step % 2 else {},
        labels={"label/0": {0: 5, 7: 1, -100: 3}} if step else {},
        workers=(worker,),
    )


@pytest.fixture
def layout() -> Layout:
    return make_layout()


@pytest.fixture
def steps(layout: Layout) -> StepsObject:
    counts = np.zeros(769, np.int64)
    counts[[3, 384, 700]] = (1, 2**33, 5)
    return StepsObject(
        job=KEY.job,
        worker=KEY.worker,
        seq=KEY.seq,
        run="run-ä",
        observations=tuple(make_observation(step, layout) for step in range(5)),
        dropped={"queue full": 2},
        histograms={(0, "weights/ebene.0"): counts, (4, "weights/ebene.3"): counts * 2},
    )


@pytest.fixture
def key() -> StepsKey:
    return KEY
