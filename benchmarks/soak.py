"""A long training against an S3 that fails: nothing lost but what is counted, memory flat.

    python benchmarks/soak.py [--steps 20000] [--seed 0]

Every fifth step of a tiny network is saved into the embedded AWS, through a proxy that answers
some requests with 503, resets connections (some after the S3 stored the object), is slow, and once
resets all of them for longer than what waits for upload may take: the oldest steps are dropped
then, and must be counted. At the end each saved step has the very loss of the loop, or is one of
those that were counted; object numbers have no gaps; and the process is no larger than it was
after its first fifth. Exits with 1 if one of these is not so.
"""

from __future__ import annotations

import argparse
import logging
import os
import resource
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

import trainwarden
from trainwarden.embedded import launcher
from trainwarden.embedded.launcher import Server
from trainwarden.hook.uploader import Limits
from trainwarden.model import FloatArray
from trainwarden.store.s3 import S3Objects
from trainwarden.wire.codec import MAX_OBJECT_BYTES, decode
from trainwarden.wire.keys import EndKey, ManifestKey, StepsKey, parse, steps_prefix
from trainwarden.wire.manifest import MAX_END_BYTES, MAX_MANIFEST_BYTES, End, Manifest

sys.path.append(str(Path(__file__).resolve().parents[1]))  # where the script is run by its path
from benchmarks.soak_network import Faults, Network

JOB, BUCKET, EVERY = "soak", "soak", 5
COLLECTIONS = ("weights", "biases", "gradients", "activations", "losses", "optimizer")
PENDING_BYTES = 2 * 1024 * 1024
LIMITS = Limits(flush_steps=25, flush_s=1.0, retry_s=0.02, max_retry_s=0.5)
GROWTH_BYTES = 4 * 1024 * 1024  # the allocator's and the S3 client's own noise
WARM, OUT, BACK = 0.2, 0.5, 0.6  # parts of the run: memory counts from, S3 is away from and until
CLOSE_S = 120.0
RSS_EVERY = 50
_PAGE = resource.getpagesize()


@dataclass
class Soaked:
    """What a run came to.

    Attributes:
        steps: Made.
        planned: Steps that were to be saved.
        stored: Steps that lie in the bucket.
        wrong: Of these, without the loss of the loop.
        counted: Steps that the objects say were dropped.
        objects: How many.
        gaps: Numbers without an object, and an end that says otherwise.
        requests: By what happened to them.
        early: Bytes of the process after the warm-up, the median of a fifth of the run.
        late: The same of its last fifth.
        slowest_s: The longest step.
        usual_s: The median one.
    """

    steps: int
    planned: int = 0
    stored: int = 0
    wrong: int = 0
    counted: int = 0
    objects: int = 0
    gaps: list[str] = field(default_factory=list)
    requests: Counter[str] = field(default_factory=Counter)
    early: float = 0.0
    late: float = 0.0
    slowest_s: float = 0.0
    usual_s: float = 0.0

    @property
    def failures(self) -> list[str]:
        """What must not be."""
        uncounted = self.planned - self.stored - self.counted
        found = [f"{uncounted} steps neither stored nor counted"] if uncounted else []
        found += [f"{self.wrong} steps without their loss"] if self.wrong else []
        found += self.gaps
        if self.late - self.early > GROWTH_BYTES:
            found.append(f"memory grew by {(self.late - self.early) / 2**20:.1f} MiB")
        return found

    def lines(self) -> Iterator[str]:
        """Yield the table."""
        told = ", ".join(f"{name} {count}" for name, count in sorted(self.requests.items()))
        growth = (self.late - self.early) / 2**20
        yield f"{'steps made':32}{self.steps:>12,}"
        yield f"{'requests':32}{self.requests.total():>12,}  {told}"
        yield f"{'objects, without gaps':32}{self.objects:>12,}"
        yield f"{'steps to be saved':32}{self.planned:>12,}"
        yield f"{'stored, each with its loss':32}{self.stored:>12,}"
        yield f"{'dropped and counted':32}{self.counted:>12,}"
        yield f"{'memory':32}{self.late / 2**20:>8.0f} MiB  {growth:+.1f} MiB since the first fifth"
        yield f"{'step':32}{self.usual_s * 1e6:>9.0f} µs  longest {self.slowest_s * 1e3:.0f} ms"


def soak(
    server: Server,
    steps: int,
    faults: Faults,
    *,
    outage: bool = True,
    pending_bytes: int = PENDING_BYTES,
) -> Soaked:
    """Train, and read back what arrived.

    Args:
        server: The embedded AWS.
        steps: Of the training.
        faults: Of the network.
        outage: The network fails altogether for a tenth of the run.
        pending_bytes: That may wait for upload.
    """
    server.client("s3").create_bucket(Bucket=BUCKET)
    soaked = Soaked(steps)
    with Network(server.endpoint, faults) as network, _environment(server, network):
        limits = replace(LIMITS, pending_bytes=pending_bytes)
        losses = _train(soaked, network, limits, outage=outage)
        soaked.requests = network.counts()
    _read(soaked, S3Objects(BUCKET, server.client("s3")), losses)
    return soaked


@contextmanager
def _environment(server: Server, network: Network) -> Iterator[None]:
    """Let the hook's S3 client find the proxy."""
    wanted = {
        "AWS_ENDPOINT_URL_S3": network.endpoint,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": server.region,
    }
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def _train(soaked: Soaked, network: Network, limits: Limits, *, outage: bool) -> FloatArray:
    """Train under a hook; returns the loss of each step."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer, loss_fn = torch.optim.SGD(model.parameters(), lr=1e-3), nn.MSELoss()
    batches = torch.randn(64, 16, 8)
    losses, took = np.zeros(soaked.steps), np.zeros(soaked.steps)
    sizes = np.zeros(soaked.steps // RSS_EVERY + 1)
    hook = trainwarden.watch(
        model,
        optimizer,
        loss_fn,
        job=JOB,
        out=f"s3://{BUCKET}",
        save_interval=EVERY,
        dense_steps=0,
        max_overhead=float("inf"),
        collections=COLLECTIONS,
        close_timeout_s=CLOSE_S,
        _limits=limits,
    )
    out, back = int(OUT * soaked.steps), int(BACK * soaked.steps)
    for step in range(soaked.steps):
        if outage and step in {out, back}:
            network.outage(on=step == out)
        begun = time.perf_counter()
        x = batches[step % len(batches)]
        optimizer.zero_grad()
        loss = loss_fn(model(x), x.sum(1, keepdim=True))
        loss.backward()
        optimizer.step()
        took[step] = time.perf_counter() - begun
        losses[step] = loss.item()
        if step % RSS_EVERY == 0:
            sizes[step // RSS_EVERY] = _rss()
    hook.close()
    fifth = max(int(len(sizes) * WARM), 1)
    soaked.early = statistics.median(sizes[fifth : 2 * fifth])
    soaked.late = statistics.median(sizes[-fifth - 1 : -1])
    soaked.usual_s, soaked.slowest_s = float(np.median(took)), float(took[10:].max())
    return losses


def _rss() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * _PAGE


def _read(soaked: Soaked, store: S3Objects, losses: FloatArray) -> None:
    """Compare what lies in the bucket with what was made."""
    manifest = Manifest.from_bytes(_get(store, str(ManifestKey(JOB)), MAX_MANIFEST_BYTES))
    wanted = set(range(0, soaked.steps, EVERY))
    soaked.planned = len(wanted)
    for number, key in enumerate(store.keys(steps_prefix(JOB, 0))):
        found = parse(key)
        assert isinstance(found, StepsKey)  # noqa: S101 - of that prefix
        if found.seq != number:
            soaked.gaps.append(f"object {number} is missing")
        obj = decode(_get(store, key, MAX_OBJECT_BYTES), manifest.layout, key=found)
        soaked.objects += 1
        soaked.counted += obj.dropped.get("steps", 0)
        for obs in obj.observations:
            there = obs.step in wanted
            wanted.discard(obs.step)
            soaked.stored += there
            right = obs.scalars.get("losses", {}).get("loss") == losses[obs.step]
            soaked.wrong += not (there and right)
    end = End.from_bytes(_get(store, str(EndKey(JOB, 0)), MAX_END_BYTES))
    if end.last_seq != soaked.objects - 1:
        soaked.gaps.append(f"the end says {end.last_seq + 1} objects, there are {soaked.objects}")


def _get(store: S3Objects, key: str, most: int) -> bytes:
    return store.get(key, max_bytes=most) or b""


def main() -> int:
    """Run it and print the table; 1 if something must not be."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        server = launcher.up(Path(folder))
        try:
            soaked = soak(server, given.steps, Faults(seed=given.seed))
        finally:
            launcher.down(Path(folder))
    for line in soaked.lines():
        print(line)
    for failure in soaked.failures:
        print(f"FAILED: {failure}")
    return 1 if soaked.failures else 0


if __name__ == "__main__":
    sys.exit(main())
