"""Traces of SageMaker Debugger, against what its own reader says of them."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.unit.trial.traces import FOLDER, NAMES, read, reference
from trainwarden.errors import BadInputError, MalformedObjectError, NotFoundError
from trainwarden.model import Mode
from trainwarden.store.folder import FolderObjects
from trainwarden.store.memory import MemoryObjects
from trainwarden.trial import (
    InvalidWorker,
    NoMoreData,
    ShapeUnavailableForStep,
    StepState,
    StepUnavailable,
    Tensor,
    TensorUnavailable,
    TensorUnavailableForStep,
    Trial,
    open_trial,
)
from trainwarden.trial.source import Array


def digest(value: Array) -> str:
    text = "\x00".join(map(str, value.ravel())).encode()
    return hashlib.sha256(text if value.dtype.kind == "U" else value.tobytes()).hexdigest()


@pytest.mark.parametrize("name", NAMES)
def test_steps_modes_workers_and_collections_are_the_same(name: str) -> None:
    trial, expected = read(name), reference(name)
    assert trial.tensor_names() == expected["tensor_names"]
    assert (trial.workers(), trial.num_workers) == (expected["workers"], expected["num_workers"])
    assert trial.steps() == expected["steps_global"]
    assert [str(mode) for mode in trial.modes()] == expected["modes"]
    assert trial.loaded_all_steps is expected["loaded_all_steps"]
    assert trial.last_complete_step == expected["last_complete_step"]
    for mode, steps in expected["steps_by_mode"].items():
        assert trial.steps(Mode(mode)) == steps
    for step, (mode, mode_step) in expected["mode_of_global_step"].items():
        assert trial.mode_modestep(int(step)) == (Mode(mode), mode_step)
        if mode != "GLOBAL":
            assert trial.global_step(Mode(mode), mode_step) == int(step)
    for collection, found in expected["collections"].items():
        assert trial.tensor_names(collection=collection) == sorted(found["tensor_names_saved"])


@pytest.mark.parametrize("name", NAMES)
def test_every_value_and_shape_is_the_same_to_the_byte(name: str) -> None:
    trial = read(name)
    compared = 0
    for tensor, expected in reference(name)["tensors"].items():
        found = trial.tensor(tensor)
        assert found.steps() == expected["steps_global"]
        for mode, steps in expected["steps_by_mode"].items():
            assert found.steps(Mode(mode)) == steps
        for step, by_worker in expected["at"].items():
            for worker, cell in by_worker.items():
                compared += 1
                if "value" in cell:
                    value = found.value(int(step), worker=worker)
                    assert str(value.dtype) == cell["value"]["dtype"]
                    assert list(value.shape) == cell["value"]["shape"]
                    assert digest(value) == cell["value"]["sha256"]
                if "shape" in cell:
                    assert list(found.shape(int(step), worker=worker)) == cell["shape"]
                else:
                    with pytest.raises(ShapeUnavailableForStep):
                        found.shape(int(step), worker=worker)
    assert compared > 0


@pytest.mark.parametrize("name", NAMES)
def test_reductions_are_the_same_but_for_matrix_norms(name: str) -> None:
    trial = read(name)
    for tensor, expected in reference(name)["tensors"].items():
        for step, by_worker in expected["at"].items():
            for worker, cell in by_worker.items():
                for kind in ("reductions_saved", "reduction_value_any"):
                    for word, number in cell.get(kind, {}).items():
                        compare(trial.tensor(tensor), int(step), worker, word, number)


def compare(tensor: Tensor, step: int, worker: str, word: str, number: float | str) -> None:
    plain = word.removeprefix("abs_")
    absolute = plain != word
    if number == "ValueError":  # numpy has no such norm for their shape; ours is the flat one
        assert plain in ("l1", "l2")
        return
    failed = isinstance(number, str) and number not in ("nan", "inf", "-inf")
    if failed or is_text(tensor, step):
        with pytest.raises(TensorUnavailableForStep):
            tensor.reduction_value(step, plain, worker=worker, abs=absolute)
        return
    found, wanted = tensor.reduction_value(step, plain, worker=worker, abs=absolute), float(number)
    is_saved = word in tensor.reduction_values(step, worker=worker)
    if plain in ("l1", "l2") and not is_saved:  # theirs is numpy's norm of a matrix, or an error
        value = tensor.value(step, worker=worker).reshape(-1)
        wanted = float(np.linalg.norm(value, int(plain[1])))
    assert found == pytest.approx(wanted, rel=1e-6, nan_ok=True)


def is_text(tensor: Tensor, step: int) -> bool:
    try:
        return tensor.value(step).dtype.kind == "U"
    except TensorUnavailableForStep:
        return False


def test_a_tensor_of_which_only_reductions_were_saved_says_which() -> None:
    trial = read("pt_reductions")
    tensor = trial.tensor("MLP_fc0.weight")
    with pytest.raises(TensorUnavailableForStep, match=r"only .*abs_mean.*variance"):
        tensor.value(5)
    assert set(tensor.reduction_values(5)) >= {"mean", "abs_mean", "prod", "l2"}


def test_what_is_not_there_is_told_from_what_never_was() -> None:
    trial = read("pt_mlp_healthy")
    loss = trial.tensor("CrossEntropyLoss_output_0")
    with pytest.raises(StepUnavailable, match="step 3 of mode GLOBAL"):
        loss.value(3)
    with pytest.raises(TensorUnavailable, match=r"there are .*fc0\.weight"):
        trial.tensor("gradient/Net_fc0.weight")
    with pytest.raises(TensorUnavailableForStep):
        trial.tensor("gradient/MLP_fc0.weight").value(0, mode=Mode.EVAL)
    with pytest.raises(InvalidWorker):
        loss.value(0, worker="worker_7")
    with pytest.raises(NoMoreData, match="last step is 70"):
        trial.wait_for_steps([5, 1000])
    with pytest.raises(StepUnavailable):
        trial.wait_for_steps([3])
    assert trial.has_passed_step(5) is StepState.AVAILABLE
    assert trial.has_passed_step(6) is StepState.UNAVAILABLE
    assert loss.prev_steps(12, 3) == [5, 10, 12]
    assert loss.prev_steps(11, 1) == [10]
    assert loss.prev_steps(4, None) == [0]


def test_names_can_be_asked_for_by_step_mode_regex_and_collection() -> None:
    trial = read("pt_mlp_healthy")
    assert trial.tensor_names(regex=["relu.*", "CrossEntropy"]) == [
        "CrossEntropyLoss_output_0", "relu0_output_0", "relu1_output_0",
    ]  # fmt: skip
    assert "gradient/MLP_fc0.weight" not in trial.tensor_names(step=10)
    assert "gradient/MLP_fc0.weight" in trial.tensor_names(step=10, mode=Mode.TRAIN)
    assert trial.tensor_names(collection="nobody") == []
    with pytest.raises(BadInputError, match="both"):
        trial.tensor_names(regex=".*", collection="losses")
    with pytest.raises(BadInputError, match="regular expression"):
        trial.tensor_names(regex="(")


def test_a_step_is_complete_when_every_worker_wrote_it_or_the_job_has_ended(
    tmp_path: Path,
) -> None:
    copy(tmp_path, "pt_dist2_all")
    (tmp_path / "training_job_end.ts").unlink()
    (tmp_path / "index/000000000/000000000006_worker_1.json").unlink()
    trial = open_trial(tmp_path)
    assert trial.steps() == [0, 2, 4]
    assert trial.steps(show_incomplete_steps=True) == [0, 2, 4, 6]
    assert trial.has_passed_step(6) is StepState.NOT_YET_AVAILABLE
    (tmp_path / "training_job_end.ts").touch()
    assert trial.steps() == [0, 2, 4, 6]
    assert trial.loaded_all_steps


def test_waiting_ends_when_the_step_comes(tmp_path: Path) -> None:
    copy(tmp_path, "pt_mlp_plateau")
    late = tmp_path / "index/000000000/000000000038_worker_0.json"
    text = late.read_text()
    late.unlink()
    (tmp_path / "training_job_end.ts").unlink()
    trial = open_trial(tmp_path)
    slept = list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        late.write_text(text)

    trial._sleep = sleep
    trial.wait_for_steps([38])
    assert slept == [2.0]


def copy(to: Path, name: str) -> None:
    shutil.copytree(FOLDER / name, to, dirs_exist_ok=True)


def test_an_index_without_its_event_file_makes_its_values_unavailable(tmp_path: Path) -> None:
    copy(tmp_path, "pt_mlp_plateau")
    shutil.rmtree(tmp_path / "events/000000000004")
    (tmp_path / "events/000000000006" / "000000000006_worker_0.tfevents.tmp").touch()
    trial = open_trial(tmp_path)
    with pytest.raises(TensorUnavailableForStep, match=r"event file .* is missing"):
        trial.tensor("MLP_fc0.weight").value(4)
    assert trial.tensor("MLP_fc0.weight").value(6).shape == (32, 64)


@pytest.mark.parametrize("place", ["{}", "{}/debug-output", "{}/debug-output/"])
def test_the_folder_of_a_sagemaker_job_will_do(tmp_path: Path, place: str) -> None:
    copy(tmp_path / "my-job" / "debug-output", "xgb_defaults")
    trial = open_trial(place.format(tmp_path / "my-job"))
    assert trial.steps() == read("xgb_defaults").steps()
    assert "my-job" in trial.name


def test_any_object_store_can_hold_a_trace() -> None:
    store = MemoryObjects()
    source = FolderObjects(FOLDER / "xgb_defaults")
    for key in source.keys(""):
        store.put(key, source.get(key, max_bytes=1 << 20) or b"")
    assert open_trial(store).tensor_names() == read("xgb_defaults").tensor_names()


def test_a_place_that_holds_nothing_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="nothing is recorded"):
        open_trial(tmp_path)
    with pytest.raises(NotFoundError, match="no folder"):
        open_trial(tmp_path / "nowhere")
    with pytest.raises(BadInputError, match="s3://bucket"):
        open_trial("s3://")


INDEX = "index/000000000/000000000000_worker_0.json"
META = b'{"meta": {"mode": "TRAIN", "mode_step": 0'
OUTSIDE = META + b', "event_file_name": "events/../../x"}, "tensor_payload": []}'
PAYLOAD = b'[{"tensorname": "a", "start_idx": 0, "length": 9}]'
NOWHERE = META + b'}, "tensor_payload": ' + PAYLOAD + b"}"
EVENTS = "events/000000000000/000000000000_worker_0.tfevents"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "strict JSON"),
        (b"[]", "JSON object"),
        (b"{}", "'meta'"),
        (b'{"meta": {"mode": "DREAM", "mode_step": 0}, "tensor_payload": []}', "a mode"),
        (b'{"meta": {"mode": "TRAIN", "mode_step": -1}, "tensor_payload": []}', "mode_step"),
        (b'{"meta": {"mode": "TRAIN", "mode_step": 0}, "tensor_payload": [7]}', "objects"),
        (OUTSIDE, "event file below events/"),
        (NOWHERE, "event_file_name"),
    ],
)
def test_a_malformed_index_is_a_clear_error(tmp_path: Path, body: bytes, message: str) -> None:
    copy(tmp_path, "xgb_defaults")
    (tmp_path / INDEX).write_bytes(body)
    with pytest.raises(MalformedObjectError, match=message) as caught:
        open_trial(tmp_path)
    assert INDEX in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        {"collections": 3},
        {"collections": {"a": 1}},
        {"collections": {"a": {"include_regex": ["("], "tensor_names": []}}},
        {"collections": {}, "_meta": {"num_workers": 0}},
    ],
)
def test_a_malformed_collections_file_is_a_clear_error(tmp_path: Path, content: object) -> None:
    copy(tmp_path, "xgb_defaults")
    (tmp_path / "collections/000000000/worker_0_collections.json").write_text(json.dumps(content))
    with pytest.raises(MalformedObjectError):
        open_trial(tmp_path)


def test_no_damage_to_an_event_file_is_more_than_an_error(tmp_path: Path) -> None:
    copy(tmp_path, "xgb_defaults")
    whole = (tmp_path / EVENTS).read_bytes()
    refused = 0
    for at in range(0, len(whole), 3):
        for damaged in (whole[:at], whole[:at] + bytes([whole[at] ^ 0x9D]) + whole[at + 1 :]):
            (tmp_path / EVENTS).write_bytes(damaged)
            trial = open_trial(tmp_path)
            refused += sum(not is_read(trial, name) for name in trial.tensor_names(step=0))
    assert refused > len(whole) / 6


def is_read(trial: Trial, name: str) -> bool:
    try:
        trial.tensor(name).value(0)
    except MalformedObjectError:
        return False
    return True


def test_reductions_of_a_tensor_with_nan_are_numpys() -> None:
    trial = read("pt_mlp_exploding")
    tensor = trial.tensor("MLP_fc0.weight")
    step = next(s for s in tensor.steps() if np.isnan(tensor.value(s)).any())
    assert math.isnan(tensor.reduction_value(step, "mean"))
    assert math.isnan(tensor.reduction_value(step, "max", abs=True))
