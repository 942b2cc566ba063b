"""Trainings of Keras under the callback where steps are compiled: a process for each backend."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.unit.hook.recording import Recording, read
from trainwarden.model import Mode
from trainwarden.store.folder import FolderObjects

SCRIPT = """
import keras, numpy, trainwarden
from trainwarden.hook.exits import EXITS

random = numpy.random.RandomState(0)
x, y = random.normal(size=(250, 8)).astype("float32"), random.randint(0, 3, 250)


class Asking(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        if batch == 4:
            EXITS.sessions[-1].stopping.ask("enough")


def fit(*callbacks, by=1, optimizer="adam"):
    keras.utils.clear_session()
    keras.utils.set_random_seed(0)
    model = keras.Sequential([
        keras.layers.Input((8,)), keras.layers.Dense(16, activation="relu"),
        keras.layers.BatchNormalization(), keras.layers.Dropout(0.2), keras.layers.Dense(3),
    ])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"], steps_per_execution=by)
    history = model.fit(x, y, batch_size=32, epochs=2, verbose=0, validation_data=(x, y),
                        callbacks=list(callbacks))
    found = [*model.get_weights(), *(v.numpy() for v in model.optimizer.variables)]
    return [one.tobytes() for one in found], history.history


def watching(job, **options):
    return trainwarden.KerasCallback(job=job, out="runs", inputs=x, strict=True, **options)


for by in (1, 3):
    assert fit(by=by) == fit(watching(f"by-{by}"), by=by)
assert fit(optimizer="sgd") == fit(watching("slopes", gradients=True), optimizer="sgd")
told = []
fit(watching("stopped", on_stop=told.append), Asking())
assert told == ["enough"]
"""


@pytest.fixture(scope="module", params=["jax", "tensorflow"])
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the script's runs, which trained to the same bit with and without the watch."""
    if find_spec("keras") is None or find_spec(request.param) is None:
        pytest.skip(f"no keras on {request.param} is installed")
    folder = tmp_path_factory.mktemp(request.param)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=folder, capture_output=True, text=True, timeout=120,
        env={**os.environ, "KERAS_BACKEND": request.param, "TF_CPP_MIN_LOG_LEVEL": "3"},
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder / "runs"


def recorded(runs: Path, job: str) -> Recording:
    return read(FolderObjects(runs), job)


def test_steps_have_weights_losses_rates_metrics_and_inputs(runs: Path) -> None:
    found = recorded(runs, "by-1")
    assert found.steps == [*range(10), 10]
    shapes = {info.name: info.shape for info in found.manifest.layout.tensors}
    assert shapes["dense.kernel"] == (16, 8)
    assert found.values("dense.kernel", "update_l2")[1] > 0
    for obs in found.of(Mode.TRAIN):
        assert obs.scalars["losses"]["loss"] > 0
        assert obs.scalars["optimizer"]["lr_0"] == pytest.approx(0.001)
        assert 0 <= obs.scalars["metrics"]["accuracy"] <= 1
        assert obs.scalars["batch"]["input/0.features"] == 8
    assert len(found.of(Mode.EVAL)) == 2


def test_of_several_batches_in_one_go_the_weights_before_and_the_mean_loss_are_saved(
    runs: Path,
) -> None:
    single, several = recorded(runs, "by-1"), recorded(runs, "by-3")
    assert several.steps == [0, 3, 6, 8]  # eight batches an epoch: the last two alone
    assert several.values("dense.kernel", "l2")[:2] == pytest.approx(
        [single.values("dense.kernel", "l2")[step] for step in (0, 3)], rel=1e-4
    )
    first = sum(single.scalars("loss")[:3]) / 3
    assert several.scalars("loss")[0] == pytest.approx(first, rel=1e-4)


def test_gradients_are_computed_beside_the_step_on_jax_if_they_are_asked_for(runs: Path) -> None:
    found = recorded(runs, "slopes")
    assert recorded(runs, "by-1").names("gradients") == []
    if "on jax" not in found.manifest.framework:
        assert found.names("gradients") == []
        return
    rate = found.scalars("lr_0", "optimizer")[0]
    for name in ("dense.kernel", "batch_normalization.gamma", "dense_1.bias"):
        slopes, moved = found.values(f"gradient/{name}", "l2"), found.values(name, "update_l2")
        assert moved[1:10] == pytest.approx([rate * slope for slope in slopes[:9]], rel=1e-3)


def test_a_training_that_is_asked_to_stop_ends(runs: Path) -> None:
    end = recorded(runs, "stopped").end
    assert end is not None
    assert end.reason == "stopped"
    assert recorded(runs, "stopped").steps == [0, 1, 2, 3, 4]
