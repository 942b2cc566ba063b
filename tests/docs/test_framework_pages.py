"""The code on the pages of other frameworks runs; their commands: tests/examples."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
X, Y = np.random.RandomState(0).normal(size=(200, 4)), np.arange(200) % 2


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / "docs" / page).read_text()
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def run(page: str, names: dict[str, Any]) -> None:
    """Run the page's Python in the current folder, one block after the other."""
    for block in blocks(page, "python"):
        exec(block, names)  # noqa: S102 - our own page


def ended(folder: Path) -> int:
    return len(list(folder.glob(".trainwarden/runs/jobs/*/end/0000.tw")))


def test_the_code_for_lightgbm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    monkeypatch.chdir(tmp_path)
    names = {"X": X[:150], "y": Y[:150], "X_valid": X[150:], "y_valid": Y[150:]}
    quiet = {"objective": "binary", "num_threads": 1, "verbosity": -1}
    valid = lightgbm.Dataset(X[150:], Y[150:])
    run("lightgbm.md", {**names, "parameters": quiet, "valid": valid})
    assert ended(tmp_path) == 2


def test_the_code_for_scikit_learn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sklearn")
    monkeypatch.chdir(tmp_path)
    batches = [(X[begin : begin + 50], Y[begin : begin + 50]) for begin in (0, 50, 100)]
    names = {"batches": batches, "classes": [0, 1], "X_valid": X[150:], "y_valid": Y[150:]}
    run("sklearn.md", names)
    assert ended(tmp_path) == 1


def test_the_code_for_jax(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    given = """
import jax, numpy as np
x = np.random.RandomState(0).normal(size=(50, 4)).astype(np.float32)
batches, params, rate = [(x, x[:, 0])] * 2, {"w": jax.numpy.zeros(4)}, 0.1
x_valid, y_valid = batches[0]
def loss_of(params, x, y):
    return ((x @ params["w"] - y) ** 2).mean()
"""
    code = given + "".join(blocks("jax.md", "python"))
    finished([sys.executable, "-c", code], tmp_path)  # once loaded, JAX warns of every fork
    assert ended(tmp_path) == 1


def test_the_code_for_keras(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    if find_spec("keras") is None:
        pytest.skip("keras is not installed")
    given = """
import os
os.environ["KERAS_BACKEND"] = "torch"
import keras, numpy as np
x = x_valid = np.random.RandomState(0).normal(size=(50, 4)).astype("float32")
y = y_valid = x[:, 0]
model = keras.Sequential([keras.layers.Dense(1)])
model.compile("sgd", "mse")
"""
    code = given + "".join(blocks("keras.md", "python"))
    finished([sys.executable, "-c", code], tmp_path)  # a backend is chosen once for a process
    assert ended(tmp_path) == 1


@pytest.mark.filterwarnings("ignore")
def test_the_code_for_transformers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    config = transformers.GPT2Config(
        vocab_size=8, n_positions=6, n_embd=8, n_layer=1, n_head=1, bos_token_id=None,
        eos_token_id=None,
    )  # fmt: skip
    model = transformers.GPT2LMHeadModel(config)
    rows = [{"input_ids": torch.arange(6), "labels": torch.arange(6)}] * 8
    arguments = transformers.TrainingArguments(
        "checkpoints", max_steps=2, report_to=[], use_cpu=True, disable_tqdm=True
    )
    names = {"model": model, "arguments": arguments, "rows": rows, "other_rows": rows,
             "optimizer": torch.optim.SGD(model.parameters(), 0.1),
             "batches": torch.utils.data.DataLoader(rows, 4)}  # fmt: skip
    run("transformers.md", names)
    assert ended(tmp_path) == 2


@pytest.mark.filterwarnings("ignore")
def test_the_code_for_lightning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lightning = pytest.importorskip("lightning")
    torch = pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)

    class Module(lightning.LightningModule):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Linear(4, 1)

        def training_step(self, batch: Any, _: int) -> Any:
            return self.net(batch[0]).square().mean()

        def validation_step(self, batch: Any, _: int) -> None:
            self.log("val_loss", self.net(batch[0]).square().mean())

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1)

    data = torch.utils.data.TensorDataset(torch.tensor(X, dtype=torch.float32))
    batches = torch.utils.data.DataLoader(data, 50)
    run("lightning.md", {"module": Module(), "batches": batches, "other_batches": batches})
    assert ended(tmp_path) == 1


def finished(command: list[str], folder: Path) -> None:
    """Run a command in a folder."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("TRAINWARDEN", "SM_"))}
    done = subprocess.run(
        command, cwd=folder, env=clean, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
