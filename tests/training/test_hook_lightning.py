"""Trainings of Lightning under the callback."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

lightning = pytest.importorskip("lightning")

import trainwarden  # noqa: E402 - needs lightning
from tests.training.loops import digits  # noqa: E402 - as above
from tests.unit.hook.recording import Recording, read  # noqa: E402 - as above
from trainwarden.hook import LightningCallback  # noqa: E402 - as above
from trainwarden.model import Mode  # noqa: E402 - as above
from trainwarden.store.folder import FolderObjects  # noqa: E402 - as above
from trainwarden.store.memory import MemoryObjects  # noqa: E402 - as above

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's own, of workers and loggers
DATA = TensorDataset(*digits(256))


@pytest.fixture(autouse=True)
def _quiet() -> None:
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)


class Net(lightning.LightningModule):  # type: ignore[misc,name-defined]
    """Two layers in a part called ``net``."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
        self.loss = nn.CrossEntropyLoss()

    def training_step(self, batch: Any, _: int) -> Any:
        return self.loss(self.net(batch[0]), batch[1])

    def validation_step(self, batch: Any, _: int) -> None:
        self.log("quality", 0.25)
        self.log("val_loss", self.loss(self.net(batch[0]), batch[1]))

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), 0.1)


class Gan(lightning.LightningModule):  # type: ignore[misc,name-defined]
    """Two parts with an optimizer each, stepped by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.generator, self.critic = nn.Linear(8, 64), nn.Linear(64, 1)

    def training_step(self, batch: Any, _: int) -> None:
        noise = torch.randn(len(batch[0]), 8)
        for optimizer, sign in zip(self.optimizers(), (-1, 1), strict=True):
            loss = sign * self.critic(self.generator(noise)).mean()
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()

    def configure_optimizers(self) -> Any:
        return [torch.optim.SGD(part.parameters(), 0.1) for part in (self.generator, self.critic)]


class Own(Net):
    """A module with a parameter of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def training_step(self, batch: Any, _: int) -> Any:
        return self.loss(self.scale * self.net(batch[0]), batch[1])


def fit(
    *callbacks: Any, module: type[Any] = Net, checkpoint: str | None = None, **arguments: Any
) -> tuple[Any, Any]:
    """Train on digits; returns the module and the trainer."""
    torch.manual_seed(0)
    made = module()
    known = {
        "max_steps": 12, "accelerator": "cpu", "logger": False, "enable_checkpointing": False,
        "enable_progress_bar": False, "enable_model_summary": False, "val_check_interval": 4,
        "check_val_every_n_epoch": None,
    }  # fmt: skip
    trainer = lightning.Trainer(callbacks=list(callbacks), **{**known, **arguments})
    trainer.fit(made, DataLoader(DATA, 32), DataLoader(DATA, 128), ckpt_path=checkpoint)
    return made, trainer


def watching(store: MemoryObjects, **options: Any) -> LightningCallback:
    return trainwarden.LightningCallback(job="job", strict=True, _store=store, **options)


@pytest.fixture(
    scope="module",
    params=[{}, {"accumulate_grad_batches": 2, "gradient_clip_val": 0.1},
            {"precision": "bf16-mixed"}],
)  # fmt: skip
def trained(request: pytest.FixtureRequest) -> tuple[Any, Any, Recording]:
    store = MemoryObjects()
    plain, _ = fit(**request.param)
    watched, _ = fit(watching(store), **request.param)
    return plain, watched, read(store)


def test_the_weights_are_the_same_to_the_bit(trained: tuple[Any, Any, Recording]) -> None:
    plain, watched, _ = trained
    pairs = zip(plain.parameters(), watched.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def test_steps_have_everything_under_the_names_of_the_parts(
    trained: tuple[Any, Any, Recording],
) -> None:
    *_, found = trained
    assert found.steps == [*range(10), 10]
    assert found.names("weights") == ["net.0.weight", "net.2.weight"]
    for obs in found.of(Mode.TRAIN):
        for collection in ("gradients", "activations", "inputs", "outputs"):
            assert obs.captured(collection).size
        assert obs.scalars["losses"]["loss"] > 0
    assert found.end is not None
    assert found.end.reason == "finished"


def test_validations_are_recorded_and_the_sanity_check_is_not(
    trained: tuple[Any, Any, Recording],
) -> None:
    *_, found = trained
    passes = found.of(Mode.EVAL)
    assert passes[0].step > 0
    assert all(min(obs.scalars["losses"].values()) > 0 for obs in passes)


def test_gradients_are_those_that_the_step_uses() -> None:
    store, norms = MemoryObjects(), list[float]()

    class Noting(lightning.Callback):  # type: ignore[misc,name-defined]
        def on_before_optimizer_step(self, _: Any, module: Any, _optimizer: Any) -> None:
            norms.append(float(module.net[0].weight.grad.norm()))

    fit(watching(store), Noting())
    assert read(store).values("gradient/net.0.weight", "l2") == pytest.approx(norms[:11], rel=1e-4)


def test_several_optimizers_have_their_own_parameters() -> None:
    store = MemoryObjects()
    fit(watching(store), module=Gan, max_steps=8, limit_val_batches=0)
    found = read(store)
    assert found.names("weights") == ["generator.weight", "critic.weight"]
    assert {"gradient/generator.weight", "gradient/critic.weight"} <= set(found.names("gradients"))


def test_a_module_with_parameters_of_its_own_is_watched_as_a_whole() -> None:
    store = MemoryObjects()
    fit(watching(store), module=Own)
    names = {info.name for info in read(store).manifest.layout.tensors}
    assert {"scale", "net.0.weight"} <= names


def test_metrics_that_are_logged_are_recorded() -> None:
    store = MemoryObjects()
    fit(watching(store))
    told = [obs.scalars.get("metrics", {}) for obs in read(store).observations]
    assert any(metrics.get("quality") == 0.25 for metrics in told)


def test_after_a_checkpoint_steps_go_on(tmp_path: Path) -> None:
    _, before = fit(max_steps=6)
    before.save_checkpoint(tmp_path / "last.ckpt")
    store = MemoryObjects()
    fit(watching(store, dense_steps=2), max_steps=12, checkpoint=str(tmp_path / "last.ckpt"))
    assert read(store).steps == [6, 7, 10]


def test_after_a_checkpoint_several_optimizers_leave_no_gap(tmp_path: Path) -> None:
    first, then = MemoryObjects(), MemoryObjects()
    gan: dict[str, Any] = {"module": Gan, "limit_val_batches": 0}
    _, before = fit(watching(first), max_steps=12, **gan)  # of both optimizers: six rounds
    before.save_checkpoint(tmp_path / "last.ckpt")
    fit(watching(then), max_steps=20, checkpoint=str(tmp_path / "last.ckpt"), **gan)
    assert read(first).steps == [*range(6)]
    assert read(then).steps == [*range(6, 10)]


def test_a_checkpoint_in_the_midst_of_a_training_knows_its_step(tmp_path: Path) -> None:
    kept = lightning.pytorch.callbacks.ModelCheckpoint(tmp_path, "{step}", every_n_train_steps=4)
    gan: dict[str, Any] = {"module": Gan, "limit_val_batches": 0}
    fit(watching(MemoryObjects()), kept, max_steps=6, enable_checkpointing=True, **gan)
    store = MemoryObjects()
    fit(watching(store), max_steps=8, checkpoint=str(tmp_path / "step=4.ckpt"), **gan)
    assert read(store).steps == [2, 3]


def test_a_callback_counts_each_training_as_the_trainer_does(tmp_path: Path) -> None:
    _, before = fit(max_steps=6)
    before.save_checkpoint(tmp_path / "last.ckpt")
    callback = trainwarden.LightningCallback(out=tmp_path, job="job", strict=True)
    fit(callback, max_steps=3)
    fit(callback, max_steps=8, checkpoint=str(tmp_path / "last.ckpt"))
    found = read(FolderObjects(tmp_path))
    assert found.steps == [0, 1, 2, 6, 7]


def test_a_training_that_is_asked_to_stop_ends(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryObjects()
    callback = watching(store, stop="allow")  # which raises in loops that nobody else ends

    class Asking(lightning.Callback):  # type: ignore[misc,name-defined]
        def on_train_batch_start(self, _: Any, _module: Any, _batch: Any, number: int) -> None:
            if number == 4:
                assert callback.hook is not None
                assert callback.hook._session is not None
                callback.hook._session.stopping.ask("enough")

    _, trainer = fit(callback, Asking(), val_check_interval=None)
    assert trainer.global_step < 12
    assert "it ends after this step" in caplog.text
    end = read(store).end
    assert end is not None
    assert end.reason == "stopped"


def test_a_training_that_fails_says_so() -> None:
    store = MemoryObjects()

    class Failing(Net):
        def training_step(self, batch: Any, number: int) -> Any:
            if number == 3:
                raise ValueError("no more")
            return super().training_step(batch, number)

    with pytest.raises(ValueError, match="no more"):
        fit(watching(store), module=Failing)
    end = read(store).end
    assert end is not None
    assert end.reason == "failed"
