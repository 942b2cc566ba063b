"""Our own runs as trials: statistics, scalars, workers, and what a trace becomes for the rules."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import numpy as np
import pytest
from moto import mock_aws

from tests.unit.rules.runs import Script, tensor
from tests.unit.trial.traces import read, reduced, reference
from trainwarden.errors import BadInputError, MalformedObjectError, NotFoundError
from trainwarden.model import Mode, Observation
from trainwarden.stats.derived import STATISTICS
from trainwarden.store.folder import FolderObjects
from trainwarden.store.memory import MemoryObjects
from trainwarden.store.ports import ObjectStore
from trainwarden.store.s3 import S3Objects
from trainwarden.trial import (
    StepState,
    TensorUnavailableForStep,
    Trial,
    open_trial,
)
from trainwarden.trial.observations import observations
from trainwarden.wire.codec import StepsObject, encode
from trainwarden.wire.keys import EndKey, ManifestKey, StepsKey
from trainwarden.wire.manifest import End, Manifest

JOB = "resnet-1"


def run_of(steps: int, *, worker: int = 0) -> list[Observation]:
    script = Script(tensor("fc.weight", "weights"), tensor("gradient/fc.weight", "gradients"))
    found = []
    for step in range(steps):
        values = {
            "fc.weight": np.full((4, 4), step),
            "gradient/fc.weight": np.arange(16) - 8 - worker,
        }
        obs = script.step(
            step,
            {name: np.reshape(value, (4, 4)) for name, value in values.items()},
            loss=1.0 / (step + 1),
            scalars={"optimizer": {"lr_0": 0.1 * (step + 1)}, "metrics": {"loss": 7.0}},
        )
        found.append(with_worker(obs, worker))
    evaluated = script.step(steps - 1, mode=Mode.EVAL, loss=5.0)
    return [*found, with_worker(evaluated, worker)]


def with_worker(obs: Observation, worker: int) -> Observation:
    return Observation(
        *(obs.step, obs.mode, 0 if obs.mode is Mode.EVAL else obs.step, obs.time, obs.layout),
        *(obs.stats, obs.scalars, obs.channels, obs.labels, (worker,)),
    )


def write(
    store: ObjectStore,
    *runs: list[Observation],
    job: str = JOB,
    run: str = "run-1",
    end: bool = True,
) -> None:
    manifest = Manifest(
        job=job, run=run, identity="", framework="torch 2.8", world_size=len(runs),
        workers=tuple(range(len(runs))), layout=runs[0][0].layout, rules=None, capture={},
        environment={}, sagemaker=False, created=1.0,
    )  # fmt: skip
    store.put(str(ManifestKey(job)), manifest.to_bytes())
    for worker, told in enumerate(runs):
        half = len(told) // 2
        for seq, part in enumerate((told[:half], told[half:])):
            body = encode(StepsObject(job, worker, seq, run, tuple(part)))
            store.put(str(StepsKey(job, worker, seq)), body)
        if end:
            store.put(str(EndKey(job, worker)), End(job, worker, run, 1).to_bytes())


@pytest.fixture
def trial() -> Trial:
    store = MemoryObjects()
    write(store, run_of(4))
    return open_trial(store)


def test_steps_modes_and_names(trial: Trial) -> None:
    assert trial.name == JOB
    assert trial.steps() == [0, 1, 2, 3]
    assert trial.steps(Mode.EVAL) == [0]
    assert trial.modes() == [Mode.EVAL, Mode.TRAIN]
    assert trial.loaded_all_steps
    assert trial.workers() == ["worker_0"]
    assert trial.tensor_names() == [
        "fc.weight",
        "gradient/fc.weight",
        "loss",
        "lr_0",
        "metrics/loss",
    ]
    assert trial.tensor_names(collection="gradients") == ["gradient/fc.weight"]
    assert set(trial.collections()) == {"weights", "gradients", "losses", "optimizer", "metrics"}
    assert trial.mode(3) is Mode.TRAIN
    assert trial.has_passed_step(9) is StepState.UNAVAILABLE


def test_scalars_have_values_and_training_comes_first(trial: Trial) -> None:
    assert trial.tensor("lr_0").value(2) > 0.25
    assert float(trial.tensor("loss").value(3)) == 0.25
    assert float(trial.tensor("loss").value(0, mode=Mode.EVAL)) == 5.0
    assert float(trial.tensor("metrics/loss").value(0)) == 7.0
    assert trial.tensor("loss").shape(1) == ()
    assert trial.tensor("loss").reduction_value(1, "mean") == 0.5


def test_a_tensor_has_statistics_and_says_so_when_asked_for_values(trial: Trial) -> None:
    gradient = trial.tensor("gradient/fc.weight")
    x = np.arange(16) - 8.0
    for name, wanted in {"mean": x.mean(), "min": -8, "max": 7, "sum": x.sum()}.items():
        assert gradient.reduction_value(1, name) == pytest.approx(wanted)
    for name, wanted in {"std": x.std(), "variance": x.var()}.items():
        assert gradient.reduction_value(1, name) == pytest.approx(wanted)
    assert gradient.reduction_value(1, "mean", abs=True) == pytest.approx(np.abs(x).mean())
    assert gradient.reduction_value(1, "l1") == pytest.approx(np.abs(x).sum())
    assert gradient.reduction_value(1, "l2") == pytest.approx(np.linalg.norm(x))
    assert gradient.shape(1) == (4, 4)
    assert gradient.steps() == [0, 1, 2, 3]
    with pytest.raises(TensorUnavailableForStep, match=r"reduction_value.* min, max, mean"):
        gradient.value(1)
    with pytest.raises(TensorUnavailableForStep, match="no prod"):
        gradient.reduction_value(1, "prod")


def test_several_workers_are_merged_unless_one_is_named() -> None:
    store = MemoryObjects()
    write(store, run_of(4), run_of(4, worker=1))
    trial = open_trial(store, JOB)
    gradient = trial.tensor("gradient/fc.weight")
    assert trial.workers() == gradient.workers(2) == ["worker_0", "worker_1"]
    assert gradient.reduction_value(2, "min", worker="worker_0") == -8
    assert gradient.reduction_value(2, "min", worker="worker_1") == -9
    assert gradient.reduction_value(2, "min") == -9


def test_what_is_written_later_is_seen_and_an_earlier_run_is_not() -> None:
    store = MemoryObjects()
    write(store, run_of(6), run="run-0")
    write(store, run_of(2), run="run-1", end=False)
    trial = open_trial(store)
    assert trial.steps() == [0, 1]
    assert not trial.loaded_all_steps
    write(store, run_of(6), run="run-2")
    assert trial.steps() == [0, 1, 2, 3, 4, 5]
    assert trial.loaded_all_steps


def test_a_damaged_object_is_a_clear_error() -> None:
    store = MemoryObjects()
    write(store, run_of(4))
    store.put(str(StepsKey(JOB, 0, 1)), b"nothing of ours")
    with pytest.raises(MalformedObjectError):
        open_trial(store)


def test_a_job_is_found_in_a_folder_by_name_or_alone(tmp_path: Path) -> None:
    write(FolderObjects(tmp_path), run_of(4))
    assert open_trial(tmp_path).name == JOB
    assert open_trial(tmp_path / "jobs" / JOB).steps() == [0, 1, 2, 3]
    write(FolderObjects(tmp_path), run_of(4), job="resnet-2")
    with pytest.raises(BadInputError, match="resnet-1, resnet-2"):
        open_trial(tmp_path)
    assert open_trial(tmp_path, "resnet-2").name == "resnet-2"
    with pytest.raises(NotFoundError, match="manifest is missing"):
        open_trial(tmp_path, "resnet-3")


@pytest.fixture
def client() -> Iterator[Any]:
    with mock_aws():
        session = boto3.Session("key", "key", region_name="us-east-1")
        found = session.client("s3")
        found.create_bucket(Bucket="bucket")
        yield found


def test_runs_and_traces_are_read_from_s3(client: Any) -> None:
    write(S3Objects("bucket", client), run_of(4))
    for place in ("s3://bucket", f"s3://bucket/jobs/{JOB}"):
        assert open_trial(place, client=client).steps() == [0, 1, 2, 3]
    source = FolderObjects(Path(__file__).parents[2] / "data/smdebug/xgb_defaults")
    for key in source.keys(""):
        body = source.get(key, max_bytes=1 << 20) or b""
        client.put_object(Bucket="bucket", Key=f"out/job-7/debug-output/{key}", Body=body)
    trial = open_trial("s3://bucket/out/job-7", client=client)
    assert trial.steps() == read("xgb_defaults").steps()
    with pytest.raises(NotFoundError, match="nothing is recorded at s3://bucket/other"):
        open_trial("s3://bucket/other", client=client)


def test_observations_of_an_own_run_are_those_that_were_written(trial: Trial) -> None:
    found = list(observations(trial))
    assert [(o.step, o.mode) for o in found] == [(o.step, o.mode) for o in sorted_run()]
    assert found[1].scalars["losses"] == {"loss": 0.5}


def sorted_run() -> list[Observation]:
    return sorted(run_of(4), key=lambda o: (o.step, o.mode.value))


def test_observations_of_a_trace_hold_its_statistics_and_updates() -> None:
    run = reduced("pt_mlp_healthy")
    trial = read("pt_mlp_healthy")
    assert [o.step for o in run] == trial.steps()
    assert [o.mode for o in run] == [trial.mode(step) for step in trial.steps()]
    row, name = run[0].layout.row_of["MLP_fc0.weight"], "MLP_fc0.weight"
    tensor_ = trial.tensor(name)
    train = [o for o in run if o.mode is Mode.TRAIN]
    now, before = (tensor_.value(o.step).astype(np.float64) for o in (train[1], train[0]))
    stats = train[1].stats[row][None]
    for statistic, wanted in {
        "mean": now.mean(), "std": now.std(), "update_l2": np.linalg.norm(now - before),
    }.items():  # fmt: skip
        assert STATISTICS[statistic].compute(stats)[0] == pytest.approx(wanted, rel=1e-5)
    assert np.isnan(STATISTICS["update_l2"].compute(train[0].stats[row][None])[0])
    assert run[0].layout.tensors[row].collection == "weights"
    losses = {"CrossEntropyLoss_output_0"}
    assert all(set(o.scalars["losses"]) == losses for o in run)
    assert set(train[0].channels) == {"relu0_output_0", "relu1_output_0"}


def test_reductions_stand_in_for_values_that_were_not_saved() -> None:
    expected = reference("pt_reductions")["tensors"]["MLP_fc0.weight"]["at"]["5"]["worker_0"]
    obs = next(o for o in reduced("pt_reductions") if o.step == 5)
    stats = obs.stats[obs.layout.row_of["MLP_fc0.weight"]][None]
    for ours, theirs in {
        "mean": "mean", "min": "min", "max": "max", "abs_mean": "abs_mean", "variance": "variance",
    }.items():  # fmt: skip
        wanted = float(expected["reductions_saved"][theirs])
        assert STATISTICS[ours].compute(stats)[0] == pytest.approx(wanted, rel=1e-5)


def test_probabilities_become_classes_unless_they_are_cut_off() -> None:
    sound = next(observations(read("xgb_binary")))
    cut = next(observations(read("xgb_binary"), truncated=True))
    assert set(sound.labels["predicted/0"]) == {0, 1}
    assert set(cut.labels["predicted/0"]) == {0}
    assert sound.scalars["objective"]["recorded.accuracy"] > 0.8
    assert not next(observations(read("xgb_regression"))).labels
