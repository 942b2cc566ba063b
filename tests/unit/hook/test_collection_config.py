"""``CollectionConfig``, ``ReductionConfig``, ``RawConfig``: the predecessor's words, checked."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from trainwarden.errors import ConfigError
from trainwarden.hook import CollectionConfig, RawConfig, ReductionConfig, SaveConfig, starting
from trainwarden.hook.options import Options, options
from trainwarden.hook.plan import Plan
from trainwarden.hook.raw import COLLECTIONS
from trainwarden.hook.rows import Rows
from trainwarden.model import TRAIN, Json, Mode, TensorInfo

INFOS = (
    TensorInfo("fc1.weight", "weights", module="fc1"),
    TensorInfo("gradient/fc1.weight", "gradients", module="fc1"),
    TensorInfo("activation/relu", "activations", module="relu"),
)


def checked(*configs: CollectionConfig, **given: Json) -> Options:
    """What ``watch`` makes of its arguments; none of them may be wrong."""
    return options({"collection_configs": configs, **given}, report=pytest.fail)


def refuse(message: str, *, kind: str = "") -> None:
    raise AssertionError(message + kind)


def plan_of(found: Options) -> tuple[Plan, Rows]:
    rows = Rows(refuse, found.also)
    for info in INFOS:
        rows.row(info)
    return Plan(found, rows), rows


def saved(found: Options, row: int, steps: int = 30, mode: Mode = TRAIN) -> list[int]:
    """Steps at which a row is saved."""
    plan, _ = plan_of(found)
    kept = [step for step in range(steps) if plan.saves(step)]
    resting = {step: plan.resting(mode, step) for step in kept}
    return [step for step, rest in resting.items() if rest is None or not rest.row(row)]


def test_a_collection_has_its_own_steps_and_the_others_keep_those_of_the_run() -> None:
    own = CollectionConfig("gradients", {"save_interval": "7", "end_step": "20"})
    found = checked(own, save_interval=10, dense_steps=0)
    assert saved(found, 1) == [0, 7, 14]
    assert saved(found, 0) == [0, 10, 20]


def test_a_tensor_is_saved_if_one_of_its_collections_is() -> None:
    rare = SaveConfig(20)
    mine = CollectionConfig("mine", include_regex="^gradient/fc1", save_config=SaveConfig(7))
    found = checked(
        CollectionConfig("gradients", save_config=rare), mine, save_interval=10, dense_steps=0
    )
    assert saved(found, 1) == [0, 7, 14, 20, 21, 28]


def test_all_is_every_tensor() -> None:
    found = checked(
        CollectionConfig("all", {"save_interval": "15"}), save_interval=10, dense_steps=0
    )
    assert saved(found, 0) == saved(found, 2) == [0, 15]


def test_a_collection_that_is_never_saved_is_not_captured() -> None:
    found = checked(CollectionConfig("gradients", {"end_step": "0"}))
    assert not found.wants("gradients", "gradient/fc1.weight")
    assert found.wants("weights", "fc1.weight")


def test_names_of_the_predecessor_are_ours() -> None:
    assert CollectionConfig("optimizer_variables").name == "optimizer"
    assert CollectionConfig("layers").name == "activations"


@pytest.mark.parametrize(
    ("name", "given", "near"),
    [
        ("gradient", {}, "gradients"),
        ("gradient", {"save_interval": "5"}, "gradients"),
        ("weights", {"save_intervall": "5"}, "save_interval"),
        ("weights", {"reductions": "mean,abs_maxx"}, "max"),
        ("weights", {"reductions": "l3_norm"}, ""),
        ("weights", {"save_interval": "often"}, ""),
        ("weights", {"save_raw_tensor": "perhaps"}, ""),
        ("mine", {}, ""),
        ("mine", {"include_regex": "("}, ""),
        ("", {}, ""),
    ],
    ids=str,
)
def test_what_cannot_be_meant_is_refused_with_the_nearest(
    name: str, given: Json, near: str
) -> None:
    with pytest.raises(ConfigError, match=f"did you mean '{near}'" if near else "expected"):
        CollectionConfig(name, given)


def test_reductions_are_read_from_one_text() -> None:
    found = CollectionConfig("weights", {"reductions": "mean,abs_max,l2_norm,abs_l1_norm"})
    asked = found.reduction_config
    assert (asked.reductions, asked.abs_reductions) == (["mean"], ["max"])
    assert (asked.norms, asked.abs_norms) == (["l2"], ["l1"])
    with pytest.raises(ConfigError, match="did you mean 'mean'"):
        ReductionConfig(reductions=["maen"])


def test_what_has_no_effect_is_said_once() -> None:
    said: list[str] = []
    both = [CollectionConfig(name, {"reductions": "mean"}) for name in ("weights", "biases")]
    options({"collection_configs": both}, report=said.append)
    assert len(said) == 1
    assert "only save_raw_tensor" in said[0]


def test_something_else_is_said_and_left_out() -> None:
    said: list[str] = []
    found = options({"collection_configs": ["weights"], "raw": "weights"}, report=said.append)
    assert len(said) == 2
    assert found.configs == () == found.raw


def chosen(config: RawConfig, *infos: TensorInfo) -> list[str]:
    return [info.name for info in infos if config.chooses(info, COLLECTIONS)]


def test_raw_tensors_are_narrowed_down_by_collection_name_and_module() -> None:
    assert chosen(RawConfig(), *INFOS) == [info.name for info in INFOS]
    assert chosen(RawConfig(modules="^fc"), *INFOS) == ["fc1.weight", "gradient/fc1.weight"]
    assert chosen(RawConfig("gradients", modules="^fc"), *INFOS) == ["gradient/fc1.weight"]
    assert chosen(RawConfig(include=["relu$"]), *INFOS) == ["activation/relu"]


def test_of_a_batch_nothing_is_kept_unless_its_collection_is_named() -> None:
    batch = TensorInfo("input/0", "inputs")
    assert chosen(RawConfig(include="input"), batch) == []
    assert chosen(RawConfig("inputs"), batch) == ["input/0"]


def test_raw_steps_are_saved_for_it_and_nothing_rests_then() -> None:
    gradients = CollectionConfig("gradients", {"save_interval": "20"})
    found = checked(gradients, raw=RawConfig(save_steps=[13]), save_interval=10, dense_steps=0)
    assert saved(found, 1) == [0, 13, 20]
    plan, _ = plan_of(found)
    assert [step for step in range(30) if plan.raw(step)] == [13]
    every = options({"raw": RawConfig(), "save_interval": 10}, report=pytest.fail)
    assert not plan_of(every)[0].saves(13)
    assert plan_of(every)[0].raw(13)


def test_a_plain_run_is_asked_no_more_than_its_schedule() -> None:
    found = checked()
    assert plan_of(found)[0].saves == found.schedule.saves
    assert plan_of(found)[0].resting(TRAIN, 10) is None


def test_collection_configurations_of_a_job_are_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "input" / "config"
    folder.mkdir(parents=True)
    body = {
        "HookParameters": {"save_interval": "10", "start_step": "4"},
        "CollectionConfigurations": [
            {"CollectionName": "gradients", "CollectionParameters": {"train.save_interval": "6"}},
            {
                "CollectionName": "relu_out",
                "CollectionParameters": {"include_regex": "relu_output"},
            },
            {"CollectionName": "weights"},
            {"CollectionName": "mine", "CollectionParameters": {"save_intervall": "6"}},
        ],
    }
    (folder / "debughookconfig.json").write_text(json.dumps(body))
    monkeypatch.setenv("SAGEMAKER_BASE_DIR", str(tmp_path))
    with caplog.at_level(logging.WARNING, logger="trainwarden"):
        found, _ = starting.settings({"dense_steps": 0}, "job", "out", strict=False)
    assert saved(found, 1) == [6, 12, 18, 24]
    assert saved(found, 0) == [10, 20]
    assert plan_of(found)[1].info(2).also == ("relu_out",)
    assert "did you mean 'save_interval'" in caplog.text
    said = CollectionConfig("gradients", {"save_interval": "9"})
    found, _ = starting.settings({"collection_configs": [said]}, "job", "out", strict=False)
    assert saved(found, 1) == [0, 9, 18, 27]
