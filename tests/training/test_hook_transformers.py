"""Trainings of Hugging Face's Trainer under the callback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

transformers = pytest.importorskip("transformers")

import trainwarden  # noqa: E402 - needs transformers
from tests.unit.hook.recording import Recording, read  # noqa: E402 - as above
from trainwarden.hook import TransformersCallback  # noqa: E402 - as above
from trainwarden.model import Mode  # noqa: E402 - as above
from trainwarden.store.memory import MemoryObjects  # noqa: E402 - as above

# Transformers' own: of torch functions that it still uses.
pytestmark = pytest.mark.filterwarnings("ignore")
IDS = torch.randint(0, 20, (40, 12), generator=torch.Generator().manual_seed(1))
ROWS = [{"input_ids": row, "labels": row} for row in IDS]


def trainer(folder: Path, *callbacks: Any, **arguments: Any) -> Any:
    """A Trainer of a tiny GPT-2."""
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=20, n_positions=12, n_embd=16, n_layer=1, n_head=2, bos_token_id=None,
        eos_token_id=None,
    )  # fmt: skip
    known = {
        "max_steps": 12, "per_device_train_batch_size": 4, "eval_strategy": "steps",
        "eval_steps": 6, "save_strategy": "no", "logging_steps": 1, "report_to": [],
        "use_cpu": True, "disable_tqdm": True,
    }  # fmt: skip
    return transformers.Trainer(
        model=transformers.GPT2LMHeadModel(config),
        args=transformers.TrainingArguments(str(folder), **{**known, **arguments}),
        train_dataset=ROWS,
        eval_dataset=ROWS[:8],
        callbacks=list(callbacks),
    )


def watching(store: MemoryObjects, **options: Any) -> TransformersCallback:
    return trainwarden.TransformersCallback(job="job", strict=True, _store=store, **options)


@pytest.fixture(scope="module", params=[{}, {"gradient_accumulation_steps": 2}, {"bf16": True}])
def trained(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Any, Any, Recording]:
    """The same training without and with the callback, and what that recorded."""
    store = MemoryObjects()
    plain = trainer(tmp_path_factory.mktemp("plain"), **request.param)
    plain.train()
    watched = trainer(tmp_path_factory.mktemp("watched"), watching(store), **request.param)
    watched.train()
    return plain, watched, read(store)


def test_the_weights_are_the_same_to_the_bit(trained: tuple[Any, Any, Recording]) -> None:
    plain, watched, _ = trained
    pairs = zip(plain.model.parameters(), watched.model.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def test_each_optimizer_step_is_a_step_with_the_loss_that_is_logged(
    trained: tuple[Any, Any, Recording],
) -> None:
    _, watched, found = trained
    logged = [log["loss"] for log in watched.state.log_history if "loss" in log]
    assert found.steps == [*range(10), 10]
    losses = [obs.scalars["losses"]["loss"] for obs in found.of(Mode.TRAIN)]
    assert losses == pytest.approx(logged[:11], rel=2e-3)


def test_a_step_has_everything(trained: tuple[Any, Any, Recording]) -> None:
    *_, found = trained
    last = found.of(Mode.TRAIN)[-1]
    for collection in ("weights", "gradients", "activations", "outputs"):
        assert last.captured(collection).size
    assert last.scalars["optimizer"]["lr_0"] > 0
    assert sum(last.labels["input/0"].values()) % 48 == 0


def test_evaluations_are_recorded_with_their_loss(trained: tuple[Any, Any, Recording]) -> None:
    _, watched, found = trained
    logged = [log["eval_loss"] for log in watched.state.log_history if "eval_loss" in log]
    assert [obs.step for obs in found.of(Mode.EVAL)] == [6, 12]
    losses = [obs.scalars["losses"]["loss"] for obs in found.of(Mode.EVAL)]
    assert losses == pytest.approx(logged, rel=1e-3)


def test_the_run_ends(trained: tuple[Any, Any, Recording]) -> None:
    *_, found = trained
    assert found.end is not None
    assert found.end.reason == "finished"


def test_after_a_checkpoint_steps_go_on(tmp_path: Path) -> None:
    saving = {"save_strategy": "steps", "save_steps": 6, "max_steps": 6}
    trainer(tmp_path, **saving).train()
    store = MemoryObjects()
    resumed = trainer(tmp_path, watching(store, dense_steps=2), max_steps=22)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-6"))
    assert read(store).steps == [6, 7, 10, 20]


def test_metrics_that_are_logged_are_recorded(tmp_path: Path) -> None:
    store = MemoryObjects()
    made = trainer(tmp_path, watching(store))
    made.compute_metrics = lambda _: {"quality": 0.25}
    made.train()
    told = [obs.scalars.get("metrics", {}) for obs in read(store).observations]
    assert any(metrics.get("eval_quality") == 0.25 for metrics in told)


class Failing(transformers.TrainerCallback):  # type: ignore[misc,name-defined]
    """Raises in the training's third step."""

    def on_step_begin(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
        if state.global_step == 2:
            raise ValueError("no more")


@pytest.mark.parametrize("by", ["the same callback", "another of that name"])
def test_a_training_that_failed_is_told_when_the_next_begins(tmp_path: Path, by: str) -> None:
    first, second = MemoryObjects(), MemoryObjects()
    callback = watching(first)
    broken = trainer(tmp_path, callback, Failing())
    with pytest.raises(ValueError, match="no more"):
        broken.train()
    assert callback.hook is not None  # nobody tells callbacks of that
    callback._trainings._options["_store"] = second
    following = callback if by == "the same callback" else watching(second)
    trainer(tmp_path, following, max_steps=3).train()
    ends = [read(store).end for store in (first, second)]
    assert [end and end.reason for end in ends] == ["failed", "finished"]
    assert read(second).steps == [0, 1, 2]


def test_a_training_that_is_asked_to_stop_saves_a_checkpoint_and_ends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = MemoryObjects()
    callback = watching(store, stop="allow")  # which raises in loops that nobody else ends

    class Asking(transformers.TrainerCallback):  # type: ignore[misc,name-defined]
        def on_step_begin(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
            if state.global_step == 4:
                assert callback.hook is not None
                assert callback.hook._session is not None
                callback.hook._session.stopping.ask("enough")

    made = trainer(tmp_path, callback, Asking())
    made.train()
    assert made.state.global_step == 5
    assert (tmp_path / "checkpoint-5").is_dir()
    assert "it ends after this step" in caplog.text
    end = read(store).end
    assert end is not None
    assert end.reason == "stopped"
