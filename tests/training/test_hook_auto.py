"""Scripts that know nothing of trainwarden, watched; they train as if they were not."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.unit.hook.recording import Recording, read
from trainwarden.hook.auto.modules import FirstCall, roots_of
from trainwarden.hook.exits import EXITS
from trainwarden.store.folder import FolderObjects

TORCH = """
import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.ReLU())
        self.head = nn.Linear(self.body(torch.zeros(1, 8)).shape[1], 3)  # a call before training

    def forward(self, x):
        return self.head(self.body(x))


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(30):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(torch.randn(32, 8)), torch.randint(0, 3, (32,)))
    loss.backward()
    optimizer.step()
print(loss.item(), sum(p.double().sum().item() for p in model.parameters()))
"""
BOOSTED = """
import numpy, xgboost, lightgbm

rng = numpy.random.default_rng(0)
x = rng.normal(size=(200, 4))
y = (x[:, 0] > 0).astype(int)
print(xgboost.XGBClassifier(n_estimators=12).fit(x, y).predict(x).sum())
xgboost.train(params={"objective": "binary:logistic"}, dtrain=xgboost.DMatrix(x, label=y))
data = lightgbm.Dataset(x, label=y)
print(lightgbm.train({"objective": "binary", "verbose": -1}, data, 10).predict(x).sum())
"""
KERAS = """
import os
os.environ["KERAS_BACKEND"] = "torch"
import warnings
warnings.simplefilter("ignore")  # Keras' own, of numpy
import keras, numpy

keras.utils.set_random_seed(0)
x = numpy.random.normal(size=(96, 8)).astype("float32")
model = keras.Sequential([keras.layers.Dense(16, activation="relu"), keras.layers.Dense(1)])
model.compile("adam", "mse")
for _ in range(2):
    print(model.fit(x, x[:, :1], batch_size=32, epochs=2, verbose=0).history)
try:
    model.fit(x, x[:, :1], verbose=0, callbacks=keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: 1 / 0))
except ZeroDivisionError:
    print("failed")
"""
OWN = TORCH.replace("for _ in", "import trainwarden\ntrainwarden.watch(model, job='own')\nfor _ in")


def run(folder: Path, code: str, *options: str, auto: bool = True) -> str:
    """Run a script, as ``trainwarden run`` does or as it is; returns what it printed."""
    (folder / "script.py").write_text(code)
    command = [sys.executable, "script.py"]
    if auto:
        command = [sys.executable, "-m", "trainwarden.cli.main", "run", *options, "--", *command]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=True, timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout


def recorded(folder: Path, job: str) -> Recording:
    return read(FolderObjects(folder / ".trainwarden/runs"), job)


def jobs(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / ".trainwarden/runs/jobs").iterdir())


def test_a_torch_script_is_watched_and_trains_to_the_same_bit(tmp_path: Path) -> None:
    watched = run(tmp_path, TORCH, "--job", "first", "--save-interval", "5")
    assert watched == run(tmp_path, TORCH, auto=False)
    assert jobs(tmp_path) == ["first"]
    found = recorded(tmp_path, "first")
    assert found.steps == [*range(10), 10, 15, 20, 25]
    names = {info.name for info in found.manifest.layout.tensors}
    assert {"body.0.weight", "head.weight", "activation/body.1", "input/0", "output/0"} <= names
    first = found.observations[0]
    assert first.scalars["losses"]["loss"] > 0
    assert first.captured("inputs").size == 1


def test_boosted_models_are_watched_whatever_way_they_are_trained(tmp_path: Path) -> None:
    assert run(tmp_path, BOOSTED) == run(tmp_path, BOOSTED, auto=False)
    found = [recorded(tmp_path, job) for job in jobs(tmp_path)]
    assert sorted(one.manifest.framework.split()[0] for one in found) == [
        "lightgbm", "xgboost", "xgboost",
    ]  # fmt: skip
    assert all(one.end is not None and one.end.reason == "finished" for one in found)


def needs_keras() -> None:
    if find_spec("keras") is None:  # not imported: that would choose this process' backend
        pytest.skip("keras is not installed")


def test_keras_models_are_watched_whatever_they_are_given(tmp_path: Path) -> None:
    needs_keras()
    assert run(tmp_path, KERAS, "--job", "fits") == run(tmp_path, KERAS, auto=False)
    found = recorded(tmp_path, "fits")
    assert found.steps == list(range(13))
    assert "gradient/dense.kernel" in found.names("gradients")
    assert found.end is not None
    assert found.end.reason == "failed"


def test_a_script_that_gives_keras_a_callback_has_that_alone(tmp_path: Path) -> None:
    needs_keras()
    own = KERAS.replace("epochs=2,", "epochs=2, callbacks=trainwarden.KerasCallback(job='own'),")
    run(tmp_path, own.replace("import keras,", "import trainwarden, keras,"), "--job", "ours")
    assert jobs(tmp_path) == ["ours", "own"]
    assert len(recorded(tmp_path, "ours").steps) == 1  # of the last one, which it does not watch


def test_a_script_that_watches_by_itself_is_left_alone(tmp_path: Path) -> None:
    run(tmp_path, OWN, "--job", "ours")
    assert jobs(tmp_path) == ["own"]


def test_the_exit_status_is_that_of_the_script(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError) as caught:
        run(tmp_path, "raise SystemExit(7)")
    assert caught.value.returncode == 7


def test_it_lets_go_after_the_first_call_in_training() -> None:
    call, init = nn.Module.__call__, torch.optim.Optimizer.__init__
    first = FirstCall()
    first.wait({})
    try:
        assert nn.Module.__call__ is not call
        model = nn.Linear(2, 2)
        model(torch.ones(1, 2))  # nobody trains it yet
        assert nn.Module.__call__ is not call
        EXITS.sessions.append(object())  # type: ignore[arg-type]
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(torch.ones(1, 2))
        assert optimizer.param_groups
    finally:
        EXITS.sessions.pop()
        first.leave()
    assert (nn.Module.__call__, torch.optim.Optimizer.__init__) == (call, init)
    assert first.hook is None


def test_evaluation_and_calls_without_gradients_are_passed_over() -> None:
    first = FirstCall()
    first.wait({})
    try:
        model = nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with torch.no_grad():
            model(torch.ones(1, 2))
        model.eval()(torch.ones(1, 2))
        assert first.hook is None
        assert optimizer.param_groups
    finally:
        first.leave()


class Wrapper(nn.Module):
    """Holds a model and a teacher that no optimizer trains."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.teacher = model, nn.Linear(3, 3)


def test_the_root_is_the_one_that_is_called_if_it_holds_what_is_trained() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2))
    wrapper = Wrapper(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    assert roots_of([optimizer], model) is model
    assert roots_of([optimizer], model[0]) is model
    assert roots_of([optimizer], wrapper) is wrapper


def test_several_models_are_named_by_their_classes() -> None:
    models = [nn.Linear(3, 3), nn.Linear(3, 1), nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
    found = roots_of(optimizers, models[0])
    assert found == {"linear": models[0], "linear2": models[1], "sequential": models[2]}
