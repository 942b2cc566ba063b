"""On SageMaker every object is sealed; the key is nowhere to be read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.hook.recording import LAZY, Flaky, read
from trainwarden.errors import RetryableError
from trainwarden.hook.config import Place, discover, environment
from trainwarden.hook.options import Options
from trainwarden.hook.session import Session
from trainwarden.hook.uploader import Limits
from trainwarden.model import Mode
from trainwarden.store.memory import MemoryObjects
from trainwarden.store.ports import ObjectStore
from trainwarden.wire.keys import ManifestKey
from trainwarden.wire.seal import is_sealed, seal_key

JOB = "resnet-1"
ARN = f"arn:aws:sagemaker:eu-west-1:123456789012:training-job/{JOB}"
HYPERPARAMETERS = {"lr": "0.125", "epochs": "3"}
KEY = seal_key(ARN, HYPERPARAMETERS, "n1")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """What is found in a SageMaker container."""
    folder = tmp_path / "input" / "config"
    folder.mkdir(parents=True)
    (folder / "hyperparameters.json").write_text(json.dumps(HYPERPARAMETERS))
    environ = {
        "SAGEMAKER_BASE_DIR": str(tmp_path),
        "TRAINING_JOB_NAME": JOB,
        "TRAINING_JOB_ARN": ARN,
        "TRAINWARDEN_NONCE": "n1",
    }
    return discover(None, None, report=pytest.fail, environ=environ)


def run(store: ObjectStore, place: Place, *steps: int, limits: Limits = LAZY) -> None:
    session = Session(
        Options(),
        place,
        framework="none 1",
        environment=environment({}, place),
        store=store,
        limits=limits,
    )
    for step in steps:
        draft = session.draft(step, Mode.TRAIN, step)
        draft.scalar("losses", "loss", float(step))
        session.submit(draft)
        assert session.flush(30.0)
    session.close("finished", 30.0)


def bodies(store: ObjectStore) -> dict[str, bytes]:
    return {key: store.get(key, max_bytes=1 << 24) or b"" for key in store.keys("jobs/")}


def test_manifest_steps_and_end_are_sealed_each_for_its_key(place: Place) -> None:
    store = MemoryObjects()
    run(store, place, 0, 1)
    found = bodies(store)
    assert len(found) == 4
    for key in found:
        assert [name for name, body in found.items() if is_sealed(body, KEY, key)] == [key]
    assert read(store, JOB).steps == [0, 1]


def test_neither_the_key_nor_what_it_is_made_of_is_written_or_shown(place: Place) -> None:
    store = MemoryObjects()
    run(store, place, 0)
    shown = [repr(place), *(body.decode("latin-1") for body in bodies(store).values())]
    for text in shown:
        for secret in (KEY.hex(), repr(KEY), "0.125", 'n1"'):
            assert secret not in text


def test_what_failed_is_sealed_when_it_is_sent_again(place: Place) -> None:
    store = Flaky([RetryableError("throttled")] * 2)
    quick = replace(LAZY, retry_s=0.001, max_retry_s=0.002)
    run(store, place, 0, limits=quick)
    assert all(is_sealed(body, KEY, key) for key, body in bodies(store).items())
    assert len(bodies(store)) == 3


def test_a_restart_goes_on_with_its_own_manifest_and_with_nobody_elses(place: Place) -> None:
    store = MemoryObjects()
    run(store, place, 0)
    first = read(store, JOB).manifest
    run(store, place, 1)
    assert read(store, JOB).manifest.run == first.run
    forged = replace(first, run="forged").to_bytes()
    store.put(str(ManifestKey(JOB)), forged)
    run(store, place, 2)
    found = read(store, JOB)
    assert found.manifest.run not in {"forged", first.run}
    assert [obj.run == first.run for obj in found.objects] == [True, True, False]
    assert all(is_sealed(body, KEY, key) for key, body in bodies(store).items())


def test_outside_sagemaker_nothing_is_sealed(tmp_path: Path) -> None:
    place = discover(JOB, tmp_path, report=pytest.fail, environ={"TRAINING_JOB_ARN": ARN})
    assert place.seal_key == b""
    store = MemoryObjects()
    run(store, place, 0)
    assert not any(b'"seal"' in body for body in bodies(store).values())
