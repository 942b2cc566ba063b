"""Bytes of wire version 1 that every later reader must understand.

Never write these files again: a new wire version gets files of its own.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from trainwarden.model import Json
from trainwarden.wire.codec import StepsObject, decode, encode
from trainwarden.wire.control import Control
from trainwarden.wire.keys import StepsKey
from trainwarden.wire.manifest import End, Manifest

GOLDEN = Path(__file__).parent / "golden"
KEY = StepsKey("resnet-7", 3, 12)


@pytest.fixture
def manifest() -> Manifest:
    return Manifest.from_bytes((GOLDEN / "manifest-v1.tw").read_bytes())


def as_json(obj: StepsObject) -> Json:
    """Spell an object out; floats as the hex digits of their bits, since NaN must survive."""
    return {
        "job": obj.job,
        "worker": obj.worker,
        "seq": obj.seq,
        "run": obj.run,
        "dropped": dict(obj.dropped),
        "histograms": [[*at, counts.tolist()] for at, counts in sorted(obj.histograms.items())],
        "observations": [
            {
                "step": obs.step,
                "mode": str(obs.mode),
                "mode_step": obs.mode_step,
                "time": obs.time,
                "workers": list(obs.workers),
                "partial": obs.partial,
                "stats": [row.astype(">f8").tobytes().hex() for row in obs.stats],
                "scalars": {
                    collection: {k: np.array(v, ">f8").tobytes().hex() for k, v in members.items()}
                    for collection, members in obs.scalars.items()
                },
                "channels": {k: [v.active.tolist(), v.seen] for k, v in obs.channels.items()},
                "labels": {
                    name: sorted([value, count] for value, count in counts.items())
                    for name, counts in obs.labels.items()
                },
            }
            for obs in obj.observations
        ],
    }


def test_the_steps_object_of_version_1_still_says_the_same(manifest: Manifest) -> None:
    body = (GOLDEN / "steps-v1.tw").read_bytes()
    found = decode(body, manifest.layout, key=KEY)
    assert as_json(found) == json.loads((GOLDEN / "steps-v1.json").read_text("utf-8"))


def test_what_was_read_is_written_to_say_the_same_again(manifest: Manifest) -> None:
    found = decode((GOLDEN / "steps-v1.tw").read_bytes(), manifest.layout, key=KEY)
    assert as_json(decode(encode(found), manifest.layout, key=KEY)) == as_json(found)


def test_the_manifest_of_version_1_still_says_the_same(manifest: Manifest) -> None:
    assert manifest.summary() == {
        "wire": 1,
        "job": "resnet-7",
        "run": "run-ä",
        "identity": "0123456789abcdef" * 2,
        "framework": "torch 2.13.0",
        "world_size": 8,
        "workers": [0, 3],
        "rules": {"Overfit": {"patience": "3"}},
        "sagemaker": True,
        "created": 1_790_000_000.25,
        "tensors": 6,
        "layout": "49ad9b2c9d324508",
    }
    assert manifest.capture == {"save_interval": 10}
    assert manifest.environment == {"python": "3.12"}
    assert manifest.layout.tensors[4].trainable is False
    assert manifest.layout.tensors[5].shape == (4, 6)


def test_the_end_and_control_objects_of_version_1_still_say_the_same() -> None:
    end = End("resnet-7", 3, "run-ä", 12, "stopped", 1_790_000_100.5, {"dropped": 2})
    assert End.from_bytes((GOLDEN / "end-v1.tw").read_bytes()) == end
    control = Control(7, stop=True, reason="NaN in fc1")  # nothing was captured on request
    assert Control.from_bytes((GOLDEN / "control-v1.json").read_bytes()) == control
