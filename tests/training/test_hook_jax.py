"""JAX trainings whose pytrees are observed, judged as the cloud would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")
datasets = pytest.importorskip("sklearn.datasets")

import jax.numpy as jnp  # noqa: E402 - needs jax

from benchmarks.detection import judge, observations  # noqa: E402 - needs torch
from trainwarden import PytreeWatch  # noqa: E402 - needs jax
from trainwarden.errors import NotFoundError  # noqa: E402
from trainwarden.model import Mode, Observation, Severity  # noqa: E402
from trainwarden.stats.derived import STATISTICS  # noqa: E402
from trainwarden.store.memory import MemoryObjects  # noqa: E402

X, Y = datasets.load_wine(return_X_y=True)
SCALED = (X - X.mean(axis=0)) / X.std(axis=0)


def begin(width: int, seed: int = 0, dtype: Any = jnp.float32) -> Any:
    """Two dense layers as Flax calls them."""
    first, second = jax.random.split(jax.random.PRNGKey(seed))

    def dense(key: Any, before: int, after: int) -> Any:
        kernel = jax.random.normal(key, (before, after)) * (2.0 / before) ** 0.5
        return {"kernel": kernel.astype(dtype), "bias": jnp.zeros(after, dtype)}

    return {"Dense_0": dense(first, width, 32), "Dense_1": dense(second, 32, 3)}


def cross_entropy(params: Any, x: Any, y: Any) -> Any:
    hidden = jnp.maximum(x @ params["Dense_0"]["kernel"] + params["Dense_0"]["bias"], 0)
    scores = hidden @ params["Dense_1"]["kernel"] + params["Dense_1"]["bias"]
    return -jnp.take_along_axis(jax.nn.log_softmax(scores), y[:, None], axis=1).mean()


loss_of, slope = jax.jit(cross_entropy), jax.jit(jax.value_and_grad(cross_entropy))


def train(watch: PytreeWatch | None, x: Any, rate: float = 0.1, steps: int = 100) -> Any:
    """Train on three quarters of the rows; the weights at the end."""
    random, params = np.random.RandomState(0), begin(x.shape[1])
    order = random.permutation(len(x))
    x, y = x[order].astype(np.float32), Y[order]
    for step in range(steps):
        rows = random.choice(130, 32, replace=False)
        loss, grads = slope(params, x[rows], y[rows])
        if watch is not None:
            watch.observe(params, grads, loss, inputs=x[rows], learning_rate=rate)
            if step % 20 == 19:
                watch.evaluate(loss_of(params, x[130:], y[130:]))
        params = jax.tree_util.tree_map(lambda w, g: w - rate * g, params, grads)
    return params


def watched(x: Any, rate: float = 0.1) -> tuple[list[Observation], Any]:
    store = MemoryObjects()
    with PytreeWatch(job="case", out="memory", strict=True, _store=store) as watch:
        params = train(watch, x, rate)
    return list(observations(store)), params


def told(seen: list[Observation]) -> set[str]:
    return {finding.rule for finding in judge(seen) if finding.severity is not Severity.INFO}


def value(obs: Observation, name: str, statistic: str) -> float:
    row = obs.layout.row_of[name]
    return float(STATISTICS[statistic].compute(obs.stats[row : row + 1])[0])


def test_the_weights_are_the_same_with_and_without_the_watch() -> None:
    seen, params = watched(SCALED)
    alone = train(None, SCALED)
    pairs = zip(jax.tree_util.tree_leaves(params), jax.tree_util.tree_leaves(alone), strict=True)
    assert all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in pairs)
    assert [o.step for o in seen if o.mode is Mode.TRAIN] == [*range(10), *range(10, 100, 10)]
    assert [o.step for o in seen if o.mode is Mode.EVAL] == [19, 39, 59, 79, 99]


def test_weights_updates_gradients_and_losses_are_those_of_the_step() -> None:
    seen, _ = watched(SCALED)
    first, second = begin(13), seen[1]
    kernel = np.asarray(first["Dense_0"]["kernel"])
    assert value(seen[0], "Dense_0.kernel", "l2") == pytest.approx(np.linalg.norm(kernel))
    info = second.layout.tensors[second.layout.row_of["Dense_0.kernel"]]
    assert (info.shape, info.depth, info.module) == ((32, 13), 0, "Dense_0")
    moved = value(second, "Dense_0.kernel", "update_l2")
    gradient = value(seen[0], "gradient/Dense_0.kernel", "l2")
    assert moved == pytest.approx(0.1 * gradient, rel=1e-4)
    assert second.scalars["optimizer"]["lr_0"] == 0.1
    assert second.scalars["batch"]["input/0.features"] == 13


@pytest.mark.parametrize(
    ("inputs", "rate", "expected"),
    [(SCALED, 0.1, ""), (SCALED, 30.0, "LearningRateTooHigh"), (X, 1e-4, "NotNormalizedData")],
    ids=["healthy", "rate-too-high", "raw-table"],
)
def test_what_is_wrong_is_named(inputs: Any, rate: float, expected: str) -> None:
    found = told(watched(inputs, rate)[0])
    assert (expected in found) if expected else not found


def test_any_pytree_and_any_dtype_is_taken() -> None:
    store = MemoryObjects()
    tree = {
        "layers": [(jnp.ones((2, 3)), jnp.zeros(3)) for _ in range(11)],
        "half": begin(4, dtype=jnp.bfloat16),
        "step": 3,
        "none": None,
        "conv": {"kernel": jnp.ones((3, 5, 2, 8))},
    }
    with PytreeWatch(job="case", out="memory", strict=True, _store=store) as watch:
        watch.observe(tree)
        watch.observe(tree)
    seen = list(observations(store))
    kinds = {t.name: (t.shape, t.dtype) for t in seen[1].layout.tensors}
    assert kinds["conv.kernel"] == ((8, 2, 3, 5), "float32")
    assert kinds["half.Dense_0.kernel"] == ((32, 4), "bfloat16")
    assert kinds["layers.10.0"] == ((3, 2), "float32")
    assert value(seen[1], "half.Dense_0.kernel", "update_l2") == 0
    depths = [t.depth for t in seen[1].layout.tensors if t.name.startswith("layers.")]
    assert depths == sorted(depths)


class Refusing(MemoryObjects):
    """A store that takes nothing."""

    def put(self, *_: Any, **__: Any) -> Any:
        raise NotFoundError("no such bucket")


def test_training_goes_on_whatever_happens(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for options in ({"job": "not a job!"}, {"job": "j", "_store": Refusing()}):
        given: dict[str, Any] = {"out": tmp_path, **options}
        with PytreeWatch(**given) as watch:
            train(watch, SCALED, steps=3)
    with PytreeWatch(job="j", out="memory", _store=MemoryObjects()) as watch:
        watch.observe({"w": jnp.ones(2)}, loss="no number")
        watch.observe({"w": jnp.ones(2)}, loss=1.0)
    assert "expected a job name" in caplog.text
    assert "capture is switched off after an error in it" in caplog.text
