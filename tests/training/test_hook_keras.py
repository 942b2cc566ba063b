"""Trainings of Keras under the callback, on PyTorch: a process has one backend."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

os.environ["KERAS_BACKEND"] = "torch"
keras = pytest.importorskip("keras")

import trainwarden  # noqa: E402 - needs keras
from tests.training.loops import digits  # noqa: E402 - as above
from tests.unit.hook.recording import Recording, read  # noqa: E402 - as above
from trainwarden.hook import KerasCallback  # noqa: E402 - as above
from trainwarden.hook.exits import EXITS  # noqa: E402 - as above
from trainwarden.model import Mode  # noqa: E402 - as above
from trainwarden.store.folder import FolderObjects  # noqa: E402 - as above
from trainwarden.store.memory import MemoryObjects  # noqa: E402 - as above
from trainwarden.wire.control import Control, DetailRequest  # noqa: E402 - as above

pytestmark = [
    pytest.mark.skipif(keras.backend.backend() != "torch", reason="of another backend"),
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),  # Keras' own
]
X, Y = (np.asarray(values) for values in digits(250))
SCALED = {"loss_scale_factor": 8.0}  # the true gradients are seen by nobody
HOOKS = ("_forward_pre_hooks", "_forward_hooks")


def layers() -> Any:
    """A model with layers in layers, dropout and a batch norm."""
    block = keras.Sequential([keras.layers.Dense(16), keras.layers.BatchNormalization()])
    return keras.Sequential(
        [
            keras.layers.Input((64,)),
            block,
            keras.layers.ReLU(),
            keras.layers.Dropout(0.2),
            keras.layers.Dense(16, activation="tanh"),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )


def fit(
    *callbacks: Any,
    made: Callable[[], Any] = layers,
    optimizer: dict[str, Any] | None = None,
    **arguments: Any,
) -> Any:
    """Train on digits; returns the model."""
    keras.utils.clear_session()
    keras.utils.set_random_seed(0)
    model = made()
    rule = keras.optimizers.Adam(0.01, **(optimizer or {}))
    model.compile(rule, "sparse_categorical_crossentropy", metrics=["accuracy"])
    return again(model, *callbacks, **arguments)


def again(model: Any, *callbacks: Any, **arguments: Any) -> Any:
    """Train on, two epochs of 8 batches unless it is said."""
    known = {"batch_size": 32, "epochs": 2, "verbose": 0, "validation_data": (X[:50], Y[:50])}
    model.fit(X, Y, callbacks=list(callbacks), **{**known, **arguments})
    return model


def watching(store: MemoryObjects, **options: Any) -> KerasCallback:
    return trainwarden.KerasCallback(job="job", strict=True, _store=store, **options)


def same(one: Any, other: Any) -> bool:
    pairs = [*zip(one.get_weights(), other.get_weights(), strict=True)]
    pairs += zip(one.optimizer.variables, other.optimizer.variables, strict=True)
    return all(raw(a) == raw(b) for a, b in pairs)


def raw(values: Any) -> bytes:
    return bytes(keras.ops.convert_to_numpy(getattr(values, "value", values)).tobytes())


Trained = tuple[Any, Any, Recording]


def trained(**arguments: Any) -> Trained:
    store = MemoryObjects()
    plain = fit(**copy.deepcopy(arguments))
    return plain, fit(watching(store, inputs=X), **arguments), read(store)


@pytest.fixture(scope="module")
def seen() -> Trained:
    """Watched by the hook of PyTorch."""
    return trained()


@pytest.fixture(scope="module")
def looked() -> Trained:
    """Watched by what variables show, as on JAX and TensorFlow."""
    return trained(optimizer=SCALED)


@pytest.fixture(params=["seen", "looked"])
def either(request: pytest.FixtureRequest) -> Trained:
    found: Trained = request.getfixturevalue(request.param)
    return found


def test_the_model_and_its_optimizer_are_the_same_to_the_bit(either: Trained) -> None:
    plain, watched, _ = either
    assert same(plain, watched)
    assert plain.history.history == watched.history.history


def test_nothing_of_the_watch_is_left_in_the_model(either: Trained) -> None:
    _, watched, _ = either
    assert "apply" not in watched.optimizer.__dict__
    parts = watched._flatten_layers()
    assert not any(getattr(part, hooks) for part in parts for hooks in HOOKS)


def test_steps_are_batches_and_have_losses_rates_and_metrics(either: Trained) -> None:
    *_, found = either
    assert found.steps == [*range(10), 10]
    assert found.end is not None
    assert found.end.reason == "finished"
    for obs in found.of(Mode.TRAIN):
        assert obs.scalars["losses"]["loss"] > 0
        assert obs.scalars["optimizer"]["lr_0"] == pytest.approx(0.01)
        assert 0 <= obs.scalars["metrics"]["accuracy"] <= 1


def test_validations_have_what_keras_reports(either: Trained) -> None:
    _, watched, found = either
    history = watched.history.history
    assert found.scalars("loss", mode=Mode.EVAL) == pytest.approx(history["val_loss"])
    accuracies = found.scalars("accuracy", "metrics", mode=Mode.EVAL)
    assert accuracies == pytest.approx(history["val_accuracy"])


def test_losses_are_those_of_the_batch_and_not_of_the_epoch(either: Trained) -> None:
    totals = [0.0]

    class Noting(keras.callbacks.Callback):  # type: ignore[misc,name-defined]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            totals.append(logs["loss"] * min(32 * (batch + 1), len(X)))

    fit(Noting(), epochs=1)
    sizes = [32.0] * 7 + [len(X) - 7 * 32.0]
    losses = [
        (after - before) / size
        for before, after, size in zip(totals, totals[1:], sizes, strict=False)
    ]
    assert either[2].scalars("loss")[:8] == pytest.approx(losses, rel=1e-4)


def test_weights_have_the_names_of_the_layers_and_their_outputs_first(either: Trained) -> None:
    _, watched, found = either
    kernels = {
        info.name: info.shape for info in found.manifest.layout.tensors if "kernel" in info.name
    }
    [block] = [layer.name for layer in watched.layers if isinstance(layer, keras.Sequential)]
    names = [f"{block}.dense.kernel", "dense_1.kernel", "dense_2.kernel"]
    wanted = dict(zip(names, [(16, 64), (16, 16), (10, 16)], strict=True))
    assert {n: s for n, s in kernels.items() if not n.startswith("gradient/")} == wanted
    assert np.isfinite(found.values("dense_1.kernel", "update_l2")[1:]).all()


def test_weights_are_those_before_the_update(either: Trained) -> None:
    *_, found = either
    keras.utils.clear_session()
    keras.utils.set_random_seed(0)
    first = layers().layers[-1].get_weights()[0]
    assert found.values("dense_2.kernel", "l2")[0] == pytest.approx(np.linalg.norm(first))


def test_pytorch_shows_gradients_activations_inputs_outputs_and_labels(seen: Trained) -> None:
    *_, found = seen
    assert "gradient/dense_1.kernel" in found.names("gradients")
    assert {"activation/dense_1.tanh", "input/0", "output/0", "label/0"} <= {
        info.name for info in found.manifest.layout.tensors
    }
    assert len(found.names("buffers")) == 2
    for obs in found.of(Mode.TRAIN):
        for collection in ("gradients", "activations", "inputs", "outputs"):
            assert obs.captured(collection).size
    kinds = {info.module: info.kind for info in found.manifest.layout.tensors}
    assert kinds["dense_1"] == "Linear"
    first = found.observations[0].scalars
    assert first["optimizer"]["adaptive_0"] == 1.0
    assert first["optimizer"]["momentum_0"] == pytest.approx(0.9)
    assert first["loop"]["parameters_without_optimizer"] == 0


def test_gradients_are_those_that_the_optimizer_is_given() -> None:
    store, norms = MemoryObjects(), list[float]()

    class Noting(keras.optimizers.SGD):  # type: ignore[misc,name-defined]
        def apply(self, grads: Any, trainable_variables: Any = None) -> None:
            norms.append(float(grads[-2].norm()))
            super().apply(grads, trainable_variables)

    keras.utils.clear_session()
    model = layers()
    model.compile(Noting(0.1), "sparse_categorical_crossentropy")
    again(model, watching(store), epochs=1)
    assert read(store).values("gradient/dense_2.kernel", "l2") == pytest.approx(norms, rel=1e-5)


def test_without_the_layers_the_inputs_given_are_looked_at(looked: Trained) -> None:
    *_, found = looked
    assert found.names("gradients") == []
    assert found.observations[0].scalars["batch"]["input/0.features"] == 64
    assert found.manifest.framework.startswith("keras ")


def test_a_model_that_was_trained_before_goes_on_counting(tmp_path: Path) -> None:
    model = fit(epochs=1)
    model.save(tmp_path / "model.keras")
    for loaded, start in ((keras.models.load_model(tmp_path / "model.keras"), 8), (layers(), 16)):
        store = MemoryObjects()
        if not getattr(loaded, "compiled", False):
            loaded.compile("sgd", "sparse_categorical_crossentropy")
        again(
            loaded, watching(store, dense_steps=2), initial_epoch=start // 8, epochs=start // 8 + 1
        )
        assert read(store).steps[:2] == [start, start + 1]


@pytest.mark.parametrize("optimizer", [{}, SCALED], ids=["seen", "looked"])
def test_each_fit_is_a_run_whose_steps_go_on(tmp_path: Path, optimizer: Any) -> None:
    callback = KerasCallback(job="job", strict=True, out=tmp_path, dense_steps=2)
    model = fit(callback, optimizer=optimizer, epochs=1)
    again(model, callback, epochs=2, initial_epoch=1)
    assert read(FolderObjects(tmp_path)).steps == [0, 1, 8, 9, 10]


@pytest.mark.parametrize("optimizer", [{}, SCALED], ids=["seen", "looked"])
def test_a_training_that_is_asked_to_stop_ends(
    optimizer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    store, told = MemoryObjects(), list[str]()
    callback = watching(store, stop="allow", on_stop=told.append)

    class Asking(keras.callbacks.Callback):  # type: ignore[misc,name-defined]
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            del logs
            if batch == 4:
                [session] = [one for one in EXITS.sessions if one.active]
                session.stopping.ask("enough")

    model = fit(callback, Asking(), optimizer=optimizer)
    assert int(model.optimizer.iterations.value) == 5
    assert told == ["enough"]
    assert "it ends after this step" in caplog.text
    end = read(store).end
    assert end is not None
    assert end.reason == "stopped"


@pytest.mark.parametrize("optimizer", [{}, SCALED], ids=["seen", "looked"])
def test_steps_are_denser_for_a_while_if_somebody_asks_for_detail(optimizer: Any) -> None:
    store = MemoryObjects()

    class Asking(keras.callbacks.Callback):  # type: ignore[misc,name-defined]
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            del logs
            if batch == 4:
                [session] = [one for one in EXITS.sessions if one.active]
                session._control(Control(1, details=(DetailRequest("Overfit", steps=2),)))

    rare = {"dense_steps": 1, "save_interval": 100}
    fit(Asking(), watching(store, **rare), optimizer=optimizer, epochs=1)
    found = read(store)
    assert found.scalars("request_left", "capture") == [1.0, 0.0]
    assert len(found.steps) == 3


@pytest.mark.parametrize("optimizer", [{}, SCALED], ids=["seen", "looked"])
def test_a_training_that_fails_is_told_when_the_next_one_begins(
    tmp_path: Path, optimizer: Any
) -> None:
    callback = KerasCallback(job="job", strict=True, out=tmp_path)

    class Failing(keras.callbacks.Callback):  # type: ignore[misc,name-defined]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            del logs
            if batch == 3:
                raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        fit(callback, Failing(), optimizer=optimizer)
    callback.on_train_begin()
    end = read(FolderObjects(tmp_path)).end
    assert end is not None
    assert end.reason == "failed"


def test_layers_of_any_kind_are_named_once() -> None:
    store = MemoryObjects()

    def images() -> Any:
        given = keras.layers.Input((64,))
        image = keras.layers.Reshape((8, 8, 1))(given)
        image = keras.layers.Conv2D(4, 3, activation="relu", name="look")(image)
        frozen = keras.layers.Dense(8, name="frozen", trainable=False)
        words = keras.layers.Flatten()(keras.layers.Embedding(17, 2)(given))
        both = [keras.layers.Flatten()(image), words, frozen(frozen_input(given))]
        return keras.Model(given, keras.layers.Dense(10, activation="softmax")(
            keras.layers.Concatenate()(both)
        ))  # fmt: skip

    def frozen_input(given: Any) -> Any:
        return keras.layers.Rescaling(0.5)(given)

    fit(watching(store), made=images, epochs=1)
    infos = {info.name: info for info in read(store).manifest.layout.tensors}
    assert infos["look.kernel"].shape == (4, 1, 3, 3)
    assert infos["look.kernel"].kind == "Conv2D"
    assert infos["embedding.embeddings"].shape == (17, 2)
    assert infos["embedding.embeddings"].kind == "Embedding"
    assert not infos["frozen.kernel"].trainable
    assert "gradient/frozen.kernel" not in infos


class Gan(keras.Model):  # type: ignore[misc,name-defined]
    """Two parts, each with an optimizer of its own; that of ``compile`` never steps."""

    def __init__(self) -> None:
        super().__init__()
        self.critic, self.generator = keras.layers.Dense(1), keras.layers.Dense(64)
        self.critic.build((None, 64))
        self.generator.build((None, 8))
        self.optimizers = [keras.optimizers.SGD(rate) for rate in (0.01, 0.02)]
        self.first, self.second = self.optimizers
        self.built = True

    def train_step(self, data: Any) -> dict[str, Any]:
        losses = []
        for part, rule, sign in (
            (self.critic, self.first, 1),
            (self.generator, self.second, -1),
        ):
            self.zero_grad()
            made = self.generator(keras.random.normal((len(data), 8)))
            losses.append(sign * (self.critic(made).mean() - self.critic(data).mean()))
            losses[-1].backward()
            trained = part.trainable_variables
            rule.apply([one.value.grad for one in trained], trained)
        return {"distance": losses[0].detach()}


@pytest.mark.filterwarnings("ignore")
def test_several_optimizers_make_one_step_and_have_their_own_rates() -> None:
    def trained(*callbacks: Any) -> Any:
        keras.utils.set_random_seed(0)
        model = Gan()
        model.compile()
        model.fit(X, batch_size=32, verbose=0, callbacks=list(callbacks))
        return model

    store = MemoryObjects()
    assert same(trained(), trained(watching(store)))
    found = read(store)
    assert found.steps == [*range(8)]
    assert found.scalars("lr_0", "optimizer") == pytest.approx([0.01] * 8)
    assert found.scalars("1.lr_0", "optimizer") == pytest.approx([0.02] * 7)  # first known by then
    assert len(found.names("gradients")) == 4


def test_training_goes_on_whatever_happens(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Odd(keras.optimizers.SGD):  # type: ignore[misc,name-defined]
        def get_config(self) -> Any:
            raise ValueError("none")

    fit(KerasCallback(out=tmp_path, job="one", nonsense=1), epochs=1)
    assert "training is not watched: TypeError" in caplog.text
    model = layers()
    model.compile(Odd(0.1), "sparse_categorical_crossentropy")
    again(model, KerasCallback(out=tmp_path, job="two"), epochs=1)
    assert "steps of this optimizer are not seen: ValueError: none" in caplog.text
    assert int(model.optimizer.iterations.value) == 8
    fit(KerasCallback(out=tmp_path, job="not a job!"), optimizer=SCALED, epochs=1)
    assert "expected a job name" in caplog.text
