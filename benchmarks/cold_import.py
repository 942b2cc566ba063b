"""What a cold start computes before the first event is handled: imports and first clients.

    python benchmarks/cold_import.py [--rounds N]

Each function is started as it is deployed (its own code, the core layer without what only people
run, the slim SDK, bytecode), in fresh processes with a warm file cache, taking turns with what it
is compared with: numpy, boto3 with clients for S3 and DynamoDB, and Powertools' logger, metrics and
batch. A ratio is the median over rounds of neighbours in time, so that a busy machine slows both.

The row *the least there can be* imports what cannot be left out while botocore makes the clients,
and nothing of ours; *numpy alone* is the part of it that is not about AWS.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import NamedTuple

import botocore

sys.path.insert(0, str(Path(__file__).parents[1]))

from infra import packing

TARGET = 0.6  # of the usual imports, for the evaluator
SITE_PACKAGES = Path(botocore.__file__).parents[1]
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_REGION": "eu-central-1",
    "AWS_DEFAULT_REGION": "eu-central-1",
    "POWERTOOLS_METRICS_NAMESPACE": "Trainwarden",
    "BUCKET_NAME": "bucket",
    "TABLE_NAME": "table",
    "BUS_NAME": "bus",
    "TOPIC_ARN": "arn:aws:sns:eu-central-1:123456789012:topic",
}
USUAL = """
import numpy, boto3
from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType
Logger(), Metrics(), BatchProcessor(EventType.SQS)
boto3.client("s3"), boto3.client("dynamodb")
"""
LEAST = """
import gc
gc.set_threshold(200_000)
import numpy, botocore.session
from aws_lambda_powertools import Logger, Metrics
Logger(), Metrics()
session = botocore.session.Session()
session.create_client("s3"), session.create_client("dynamodb")
"""
# The clients that a function's first event makes.
CLIENTS = {
    "evaluator": "wiring.pipeline()",
    "announcer": "wiring.bus()",
    "jobs": "wiring.pipeline()",
    "sweeper": "wiring.pipeline()",
    "notifier": "wiring.topics()",
    "stopper": "wiring.pipeline(), wiring.training_jobs()",
}
FLOOR = (
    "The least there can be is above the target: no import of ours can be left out that would meet "
    "it\nwhile botocore makes the clients. Only requests that we would sign ourselves cost less."
)
MEASURE = """
import sys, time
sys.path[:] = {paths!r} + [path for path in sys.path if "site-packages" not in path]
cpu, wall = time.process_time(), time.perf_counter()
{code}
print(time.process_time() - cpu, time.perf_counter() - wall, len(sys.modules))
"""


class Start(NamedTuple):
    """One process: seconds of processor and of time, and modules loaded."""

    cpu: float
    wall: float
    modules: int


class Case(NamedTuple):
    """Something to start: what is run, and where it is found."""

    name: str
    code: str
    paths: tuple[Path, ...]

    def start(self) -> Start:
        """Run it in a fresh process."""
        script = MEASURE.format(paths=[str(path) for path in self.paths], code=self.code)
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", script],
            env=ENVIRONMENT | {"PATH": os.defpath, "POWERTOOLS_SERVICE_NAME": self.name},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        cpu, wall, modules = done.stdout.split()
        return Start(float(cpu), float(wall), int(modules))


def pack(folder: Path) -> list[Case]:
    """Lay out the functions as Lambda has them; what they are held against comes first."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    core, sdk = folder / "core", folder / "sdk"
    packing.copy(packing.core(), packing.PACKAGE.parent, core)
    shutil.copytree(SITE_PACKAGES / "botocore", sdk / "botocore")
    packing.slim_sdk(sdk / "botocore")
    shipped = (core, sdk, SITE_PACKAGES)
    cases = [
        Case("the usual imports", USUAL, (SITE_PACKAGES,)),
        Case("numpy alone", "import numpy", (SITE_PACKAGES,)),
        Case("the least there can be", LEAST, shipped),
    ]
    for package, clients in CLIENTS.items():
        packing.copy(packing.function(package), packing.ROOT, folder / package)
        code = f"import lambdas.{package}.handler\nfrom lambdas.shared import wiring\n{clients}"
        cases.append(Case(package, code, (folder / package, *shipped)))
    packing.add_bytecode(folder, version, runs_in="/opt/python")
    return cases


def take_turns(cases: list[Case], rounds: int) -> dict[str, list[Start]]:
    """Start every case once a round; the first round warms the file cache and does not count."""
    found: dict[str, list[Start]] = {case.name: [] for case in cases}
    for turn in range(rounds + 1):
        for case in cases:
            start = case.start()
            if turn:
                found[case.name].append(start)
    return found


def ratio(starts: list[Start], others: list[Start]) -> float:
    """Return how much more of the processor one thing takes than another, between neighbours."""
    return median(one.cpu / other.cpu for one, other in zip(starts, others, strict=True))


def row(name: str, starts: list[Start], usual: list[Start]) -> str:
    """Return one line of the table; only the evaluator has a target."""
    cpu = ratio(starts, usual)
    wall = median(one.wall / other.wall for one, other in zip(starts, usual, strict=True))
    line = f"{name:24} {median(s.cpu for s in starts) * 1e3:8.0f}"
    line += f" {median(s.wall for s in starts) * 1e3:8.0f} {starts[0].modules:8}"
    line += f" {cpu:10.2f} {wall:10.2f}"
    if name == "evaluator":
        line += f"   <= {TARGET}: {'met' if cpu <= TARGET else 'MISSED'}"
    return line


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true", help="print every start instead")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = take_turns(pack(Path(folder)), args.rounds)
    if args.json:
        print(json.dumps(found))
        return 0
    usual = found["the usual imports"]
    print(f"median of {args.rounds} starts, Python {sys.version.split()[0]}")
    print(f"{'':24} {'CPU ms':>8} {'wall ms':>8} {'modules':>8} {'CPU':>10} {'wall':>10}   target")
    for name, starts in found.items():
        print(row(name, starts, usual))
    if ratio(found["the least there can be"], usual) > TARGET:
        print(FLOOR)
    return 0


if __name__ == "__main__":
    sys.exit(main())
