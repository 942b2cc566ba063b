"""What statistics cost: CPU time an element for each dtype, and a tensor as their number grows.

    python benchmarks/reductions.py [--elements N]

Naive is what one writes first, eight passes over the array: mean, std, min, max, mean |x|, zeros,
NaN, infinities. Ours are the 32 columns; with updates it also reads the previous value.
CPU time of one thread, best of some repeats.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

import numpy as np

from trainwarden.stats.catalog import WIDTH
from trainwarden.stats.dtypes import KINDS, Array
from trainwarden.stats.reductions import Tensor, table

TARGET_GROWTH = 1.25
REPEATS = 7
DTYPES = ("float32", "float64", "bfloat16", "float16", "float8_e4m3fn", "int64", "uint8", "bool")
COUNTS = (10, 100, 1000, 5000)


def cpu(work: Callable[[], object], repeats: int = REPEATS) -> float:
    """Return the CPU seconds of this thread that one call takes, best of some."""
    best = float("inf")
    for _ in range(repeats):
        began = time.thread_time()
        work()
        best = min(best, time.thread_time() - began)
    return best


def naive(x: Array) -> tuple[float, ...]:
    """Reduce the obvious way."""
    return (
        *(x.mean(), x.std(), x.min(), x.max(), np.abs(x).mean()),
        *((x == 0).sum(), np.isnan(x).sum(), np.isinf(x).sum()),
    )


def array(dtype: str, size: int) -> Array:
    """Return numbers around zero as ``dtype`` stores them."""
    x = np.random.default_rng(0).normal(size=size).astype(np.float32)
    if dtype == "bfloat16":
        return (x.view(np.uint32) >> 16).astype(np.uint16)
    if dtype.startswith("float8"):
        return np.random.default_rng(0).integers(0, 0x7E, size).astype(np.uint8)
    scale = 1 if dtype.startswith("float") or dtype == "bool" else 50
    return (np.abs(x) * scale if dtype == "uint8" else x * scale).astype(KINDS[dtype].storage)


def elements(size: int) -> None:
    """Print nanoseconds an element by dtype."""
    out = np.empty((1, WIDTH))
    single = array("float32", size)
    base = cpu(lambda: naive(single), 3)
    print(f"{size:,} elements                  ns/element      GB/s   against naive")
    print(f"{'naive, float32':28} {base / size * 1e9:12.2f} {single.nbytes / base / 1e9:9.2f}")

    def line(name: str, tensor: Tensor) -> None:
        took = cpu(lambda: table([tensor], out))
        speed = tensor.x.nbytes / took / 1e9
        print(f"{name:28} {took / size * 1e9:12.2f} {speed:9.2f} {base / took:14.1f}x")

    for dtype in DTYPES:
        line(dtype, Tensor(array(dtype, size), dtype))
    line("float32 with updates", Tensor(single, "float32", single * np.float32(1.001)))
    line("float32 with 1 % NaN", Tensor(np.where(np.arange(size) % 100, single, np.nan), "float32"))
    line("float32, half zeros", Tensor(np.maximum(single, 0), "float32"))
    line("float32 around 1e-20", Tensor(single * np.float32(1e-20), "float32"))


def growth(size: int, *, updates: bool) -> None:
    """Print microseconds a tensor for a growing number of tensors."""
    print(f"\ntensors of {size:,} float32{' with updates' if updates else ''}: µs a tensor")
    first = 0.0
    for count in COUNTS:
        x = np.random.default_rng(0).normal(size=(count, size)).astype(np.float32)
        previous = x * np.float32(1.001) if updates else None
        tensors = [
            Tensor(x[i], "float32", None if previous is None else previous[i]) for i in range(count)
        ]
        out = np.empty((count, WIDTH))
        took = cpu(lambda t=tensors, o=out: table(t, o), 30 if count <= 100 else 3) / count * 1e6  # type: ignore[misc]
        first = first or took
        target = f"<= {TARGET_GROWTH}x" if count == COUNTS[-1] else ""
        print(f"{count:28,} {took:12.2f} {'':9} {took / first:14.2f}x   {target}")


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--elements", type=int, default=4_000_000)
    args = parser.parse_args()
    elements(args.elements)
    for size in (64, 1024, 4096):
        growth(size, updates=False)
    growth(4096, updates=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
