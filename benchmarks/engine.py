"""What folding costs: microseconds a step for each rule and for all of them, and bytes of state.

    python benchmarks/engine.py [--steps N]

A ResNet-50 has 161 weights and biases, as many gradients and 107 activations: 429 rows. The run is
healthy, since nearly all runs are; the second table shows one in which everything is ill.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from statistics import median

import numpy as np

from trainwarden.engine import Engine, RuleSpec
from trainwarden.model import Channels, FloatArray, Json, Layout, Mode, Observation, TensorInfo
from trainwarden.rules import names
from trainwarden.stats.catalog import INDEX

ELEMENTS, CHANGE = 4096.0, 1e-3  # of a tensor; of its size in a step
SIZES = {"weights": 0.1, "gradients": 1e-3, "activations": 1.0}
TARGET_US, TARGET_BYTES = 200.0, 100_000
REPEATS = 5
FACTS = {  # what the hook says of a sound step beside the tensors
    "optimizer": {"lr_0": 0.1, "found_inf": 0.0, "adaptive_0": 0.0, "weight_decay_0": 1e-4,
                  "momentum_0": 0.9, "train_mode": 1.0},
    "loop": {"gradients_carried": 0.0, "gradients_discarded": 0.0, "backward_passes": 1.0,
             "stepped": 1.0, "parameters": 161.0, "parameters_without_optimizer": 0.0,
             "parameters_without_gradient": 0.0, "optimizer_tensors": 161.0,
             "optimizer_tensors_foreign": 0.0, "batchnorms": 53.0, "batchnorms_in_eval": 0.0,
             "dropouts": 0.0, "dropouts_in_eval": 0.0, "validation_in_training_mode": 0.0},
    "objective": {f"cross_entropy.{fact}": value for fact, value in {
        "classes": 10.0, "rows_sum_to_one": 0.0, "log_rows_sum_to_one": 0.0, "inside_unit": 0.1,
        "negative": 0.5, "broadcast": 0.0, "impossible_targets": 0.0, "ignored": 0.0,
        "target_min": 0.0, "target_max": 9.0, "accuracy": 0.7}.items()},
    "batch": {**{f"input/0.{fact}": value for fact, value in {
        "samples": 64.0, "features": 3.0, "mean": 0.0, "std": 1.0, "min": -2.0, "max": 2.0,
        "feature_mean_max": 0.1, "feature_std_max": 1.1, "feature_std_min": 0.9,
        "constant_features": 0.0, "duplicated_features": 0.0, "correlation_max": 0.3,
        "seen": 640.0, "nonfinite": 0.0, "duplicated_samples": 0.0, "shift": 0.1}.items()},
        "output/0.batch_spread": 0.5, "output/0.cosine": 0.2},
    "window": {"steps": 1.0, "loss_mean": 2.0, "loss_min": 2.0, "loss_max": 2.0,
               "nonfinite_losses": 0.0, "clipped": 0.0, "grad_norm_max": 1.0},
}  # fmt: skip


def layout(tensors: int) -> Layout:
    """Three eighths weights, as many gradients, a quarter activations, in forward order."""
    pairs, rest = tensors * 3 // 8, tensors - 2 * (tensors * 3 // 8)
    weights = [
        TensorInfo(f"layer{i}.weight", "weights", (64, 64), module=f"layer{i}", depth=i)
        for i in range(pairs)
    ]
    gradients = [
        TensorInfo(f"gradient/{w.name}", "gradients", w.shape, module=w.module, depth=w.depth)
        for w in weights
    ]
    activations = [
        TensorInfo(f"activation/relu{i}", "activations", (64,), kind="ReLU", depth=i)
        for i in range(rest)
    ]
    return Layout((*weights, *gradients, *activations))


def resting(shape: Layout) -> FloatArray:
    """Statistics of tensors that are all zeros and do not change, (R, 32)."""
    stats = np.zeros((len(shape.tensors), 32))
    stats[:, [INDEX["n"], INDEX["n_zero"], INDEX["u_n"]]] = ELEMENTS
    stats[:, INDEX["ch_n"]] = stats[:, INDEX["ch_dead"]] = 64
    return stats


def moving(shape: Layout, rng: np.random.Generator) -> FloatArray:
    """Statistics of normally distributed tensors, half zero behind a ReLU, (R, 32)."""
    size = np.array([SIZES[t.collection] for t in shape.tensors])
    relu = np.array([t.collection == "activations" for t in shape.tensors])
    noise, rows = rng.uniform(0.9, 1.1, (len(size), 4)).T, len(size)
    stats, change = np.zeros((rows, 32)), size * CHANGE * noise[1]
    shift = np.where(relu, 0.0, rng.normal(size=rows) * size)  # moments are about an element
    ch_n = np.where(relu, 64.0, np.nan)
    for name, values in {
        "n": np.full(rows, ELEMENTS),
        "n_zero": np.where(relu, ELEMENTS / 2, 0.0),
        "n_neg": np.where(relu, 0.0, ELEMENTS / 2),
        "min": np.where(relu, 0.0, -3.5 * size * noise[2]),
        "max": 3.5 * size * noise[3],
        "absmin_nz": 1e-4 * size,
        "shift": shift,
        "sum_d": -ELEMENTS * shift + 64 * size * noise[2],
        "sum_d2": ELEMENTS * (size * size + shift * shift) * noise[0],
        "sum_abs": 0.8 * ELEMENTS * size * noise[0],
        "u_n": np.full(rows, ELEMENTS),
        "u_sum2": ELEMENTS * change * change,
        "u_maxabs": 3.5 * change,
        "u_excess": 3.5 * change,
        "u_w2": ELEMENTS * size * size,
        "ch_n": ch_n,
        "ch_dead": ch_n / 32,
        "ch_low": ch_n / 16,
    }.items():
        stats[:, INDEX[name]] = values
    return stats


def observations(shape: Layout, steps: int, *, ill: bool) -> list[Observation]:
    """A run that learns, or one in which nothing moves, no gradient comes and no channel lives."""
    rng, seen = np.random.default_rng(0), []
    activations = [t.name for t in shape.tensors if t.collection == "activations"]
    for step in range(steps):
        stats = resting(shape) if ill else moving(shape, rng)
        active = np.zeros(64, np.int64) if ill else rng.integers(1, 64, 64)
        loss = 2.3 if ill else 2.3 * 0.99**step
        seen.append(
            Observation(
                step,
                Mode.TRAIN,
                step,
                1e9 + step,
                shape,
                stats,
                {**FACTS, "losses": {"loss": loss}},
                {name: Channels(active, 64) for name in activations},
                {"label/0": dict.fromkeys(range(10), 6)},
            )
        )
    return seen


def fold(rules: Sequence[str], run: Sequence[Observation]) -> tuple[float, Json]:
    """Return CPU microseconds a step (best of some repeats of the median) and the last state."""
    engine, best, state = Engine([RuleSpec(n, n) for n in rules]), float("inf"), None
    for _ in range(REPEATS):
        state, took = engine.start(), []
        for obs in run:
            obs.memo.clear()  # what rules share is worked out anew at each step
            obs.stats.sum()  # as after decoding, it lies in the cache
            began = time.process_time_ns()
            state = engine.advance(state, obs).state
            took.append(time.process_time_ns() - began)
        best = min(best, median(took) / 1e3)
    return best, state


def table(tensors: int, steps: int, *, ill: bool) -> float:
    """Print a row for each rule and for all; return the µs a step of all."""
    run = observations(layout(tensors), steps, ill=ill)
    print(f"\n{'ill' if ill else 'healthy'} run, {tensors} rows, {steps} steps")
    print(f"{'rule':24} {'µs/step':>9} {'µs/row':>8} {'state bytes':>12}   target")
    size: Callable[[Json], int] = lambda state: len(json.dumps(state, separators=(",", ":")))  # noqa: E731 - a short name
    for name in names():
        took, state = fold([name], run)
        print(f"{name:24} {took:9.1f} {took / tensors:8.3f} {size(state):12,}")
    took, state = fold(names(), run)
    target = f"<= {TARGET_US:.0f} µs, <= {TARGET_BYTES:,} bytes" if tensors == 429 else ""
    print(f"{'all':24} {took:9.1f} {took / tensors:8.3f} {size(state):12,}   {target}")
    return took


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=300)
    args = parser.parse_args()
    table(429, args.steps, ill=False)
    table(429, args.steps, ill=True)
    table(1000, args.steps, ill=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
