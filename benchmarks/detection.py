"""How well the rules tell ill runs from healthy ones: recall, false alarms and precision, measured.

    python benchmarks/detection.py CASES_DIR --seeds 0 1 2 [--interval N] [--json FILE]

``CASES_DIR`` holds ``core.py`` (``run_program(module, hook, variant, seed=…)``, which calls
``hook.on_start(model, optimizer, loss_fn)``, ``hook.on_step(…)`` and ``hook.on_end()``) and
``manifest.json`` (cases with ``labels``, ``accept`` and ``tolerate``; hard negatives; the
vocabulary of labels); ``xgb/cases.py``, if it is there, holds XGBoost cases. Each program runs
under the real hook; what the hook uploads is decoded and folded through all rules with their
defaults. Only the floor of the stall limit is lowered, since a program that hangs for half an hour
is no benchmark.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import torch

import trainwarden
from trainwarden.engine import RuleSpec, replay
from trainwarden.engine.findings import CRASH_CODE
from trainwarden.model import Finding, Json, Observation, Severity
from trainwarden.rules import names
from trainwarden.store.listing import steps_keys
from trainwarden.store.memory import MemoryObjects
from trainwarden.wire import codec, keys
from trainwarden.wire.manifest import Manifest

LABELS = {
    "AllZero": "all_zero",
    "BadInput": "bad_input",
    "BadLabels": "bad_labels",
    "CheckInputImages": "unnormalized_input",
    "ClassImbalance": "class_imbalance",
    "Collapse": "collapse",
    "Confusion": "confusion",
    "CreateXgboostReport": "create_xgboost_report",
    "DataOrder": "data_order",
    "DeadRelu": "dead_relu",
    "DistributionShift": "data_order",
    "EarlyStopping": "overtraining",
    "ExplodingGradient": "exploding_gradient",
    "ExplodingTensor": "nonfinite",
    "FeatureImportanceOverweight": "feature_importance_overweight",
    "GradientClipping": "gradient_clipping",
    "GradientsNotZeroed": "no_zero_grad",
    "HighLearningRate": "update_ratio_high",
    "InitialLoss": "poor_initialization",
    "LearningRateSchedule": "lr_schedule",
    "LearningRateTooHigh": "update_ratio_high",
    "LearningRateTooLow": "update_ratio_low",
    "LossMisuse": "wrong_loss",
    "LossNotDecreasing": "loss_not_decreasing",
    "LossSpike": "unstable_loss",
    "LowPrecision": "low_precision",
    "MissingGradient": "no_gradient",
    "OptimizerNotStepping": "no_update",
    "OutputRange": "output_range",
    "OverRegularization": "over_regularization",
    "NLPSequenceRatio": "token_imbalance",
    "NotNormalizedData": "unnormalized_input",
    "Overfit": "overfit",
    "Overtraining": "overtraining",
    "PoorWeightInitialization": "poor_initialization",
    "SaturatedActivation": "saturated_activation",
    "SimilarAcrossRuns": "similar_across_runs",
    "StalledTrainingRule": "stalled_training",
    "TensorVariance": "tensor_variance",
    "Threshold": "threshold",
    "TokenImbalance": "token_imbalance",
    "TargetLeakage": "target_leakage",
    "TreeDepth": "tree_depth",
    "UnchangedTensor": "unchanged_tensor",
    "VanishingGradient": "vanishing_gradient",
    "WeightUpdateRatio": "update_ratio_high",
    "WrongMode": "wrong_mode",
}
STALL_FLOOR_S = 2.5
MAX_BYTES = 256 * 1024 * 1024
JOB = "case"


class Adapter:
    """The cases' neutral hook interface over ``trainwarden.watch``."""

    def __init__(self, interval: int | None) -> None:
        self.interval, self.store, self.steps = interval, MemoryObjects(), 0
        self._hook: Any = None

    def on_start(self, model: Any, optimizer: Any, loss_fn: Any) -> None:
        """Watch as a user would: model, optimizer and loss."""
        self._hook = trainwarden.watch(
            model,
            optimizer,
            loss_fn,
            job=JOB,
            out="memory",
            save_interval=self.interval,
            strict=True,
            _store=self.store,
        )

    def on_step(self, step: int, mode: str, *_: Any) -> None:
        """Count the training steps; the hook sees the rest by itself."""
        if mode == "train":
            self.steps = step + 1

    def on_end(self) -> None:
        """End as a finished script does."""
        if self._hook is not None:
            self._hook.close()


@dataclass
class Run:
    """What was told about one run of a program: label → step of its first finding."""

    case: str
    variant: str
    seed: int
    steps: int
    labels: dict[str, int] = field(default_factory=dict)
    crashed: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()


def observations(store: MemoryObjects) -> Iterator[Observation]:
    """Decode everything the hook uploaded, in order."""
    body = store.get(str(keys.ManifestKey(JOB)), max_bytes=MAX_BYTES)
    if body is None:
        return
    layout = Manifest.from_bytes(body).layout
    for key in steps_keys(store, JOB):
        steps = store.get(str(key), max_bytes=MAX_BYTES)
        if steps is not None:
            yield from codec.decode(steps, layout, key=key).observations


def judge(seen: Sequence[Observation]) -> tuple[Finding, ...]:
    """Fold the observations through every rule with its defaults."""
    stall = {"StalledTrainingRule": {"floor": STALL_FLOOR_S}}
    return replay([RuleSpec(n, n, stall.get(n, {})) for n in names()], seen).findings


def run(core: Any, case: Mapping[str, Json], variant: str, seed: int, interval: int | None) -> Run:
    """Run one program under the hook and judge it."""
    adapter = Adapter(interval)
    core.run_program(case["module"], adapter, variant, seed=seed)
    found = judge(list(observations(adapter.store)))
    return summed_up(case["id"], variant, seed, adapter.steps, found)


def summed_up(case: str, variant: str, seed: int, steps: int, findings: Sequence[Finding]) -> Run:
    """Say what a run is accused of: the first warning or error of each label.

    What is merely worth knowing (severity info) is no alarm, and a crashed rule no label.
    """
    labels: dict[str, int] = {}
    for finding in findings:
        if finding.code != CRASH_CODE and finding.severity is not Severity.INFO:
            labels.setdefault(LABELS.get(finding.rule, finding.rule), finding.step)
    crashed = tuple(f.rule for f in findings if f.code == CRASH_CODE)
    return Run(case, variant, seed, steps, labels, crashed, tuple(findings))


class Boosted:
    """The interface of the XGBoost cases over ``trainwarden.XGBoostCallback``."""

    def __init__(self, interval: int | None) -> None:
        self.interval, self.store, self.rounds = interval, MemoryObjects(), 0
        self._callback: Any = None

    def on_start(self, _parameters: Any, train: Any, _validation: Any) -> None:
        """Watch as a user would: the callback with the training matrix."""
        self._callback = trainwarden.XGBoostCallback(
            train,
            job=JOB,
            out="memory",
            save_interval=self.interval,
            strict=True,
            _store=self.store,
        )

    def on_round(self, number: int, booster: Any, evals: Mapping[str, Mapping[str, float]]) -> bool:
        """Pass a round on as XGBoost's own callback protocol does."""
        if number == 0:
            self._callback.before_training(booster)
        self.rounds = number + 1
        log = {name: {metric: [v] for metric, v in one.items()} for name, one in evals.items()}
        return bool(self._callback.after_iteration(booster, number, log))

    def on_end(self, booster: Any) -> None:
        """End as a finished script does."""
        self._callback.after_training(booster)


def boosted(folder: Path, seeds: Sequence[int], interval: int | None) -> list[Run]:
    """Run the XGBoost cases of a folder, if it has any, and print what is told of each."""
    path = folder / "xgb" / "cases.py"
    if not path.is_file():
        return []
    spec = importlib.util.spec_from_file_location("xgb_cases", path)
    if spec is None or spec.loader is None:
        return []
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    runs = []
    print("\nXGBoost cases, not part of the totals")
    for case, about in module.CASES.items():
        accept = set(about["accept"])
        for variant in ("faulty", "healthy") if accept else ("healthy",):
            chosen = []
            for seed in seeds:
                hook = Boosted(interval)
                about["run"](hook, variant=variant, seed=seed)
                found = judge(list(observations(hook.store)))
                chosen.append(summed_up(case, variant, seed, hook.rounds, found))
            right = sum(bool(set(r.labels) & accept) for r in chosen)
            false = sum(bool(r.labels) for r in chosen)
            mark = f"right {right}" if variant == "faulty" else f"false alarms {false}"
            said = sorted({label for one in chosen for label in one.labels})
            print(f"{case:5} {variant:8} {f'{mark}/{len(chosen)}':18} {', '.join(said) or '-'}")
            runs += chosen
    return runs


@dataclass
class Score:
    """Counts over all runs, as in the cases' own table."""

    faulty: int = 0
    alarmed: int = 0
    right: int = 0
    root: int = 0
    twins: int = 0
    false_twins: int = 0
    negatives: int = 0
    false_negatives: int = 0
    good_labels: int = 0
    bad_labels: int = 0
    crashed: int = 0
    passed: list[float] = field(default_factory=list)

    def add(self, case: Mapping[str, Json], one: Run) -> None:
        """Count one run; a healthy one should say nothing."""
        self.crashed += len(one.crashed)
        if one.variant == "healthy":
            self.bad_labels += len(one.labels)
            if "labels" in case:
                self.twins += 1
                self.false_twins += bool(one.labels)
            else:
                self.negatives += 1
                self.false_negatives += bool(one.labels)
            return
        told = set(one.labels) - set(case.get("tolerate", ()))
        good = told & set(case["accept"])
        self.faulty += 1
        self.alarmed += bool(told)
        self.right += bool(good)
        self.root += bool(told & set(case["labels"]))
        self.good_labels += len(good)
        self.bad_labels += len(told - good)
        if good:
            self.passed.append(min(one.labels[label] for label in good) / max(1, one.steps))

    def table(self) -> list[tuple[str, str, str]]:
        """Rows of (what, measured, target)."""
        labels = self.good_labels + self.bad_labels
        healthy = self.twins + self.negatives
        false = self.false_twins + self.false_negatives
        return [
            ("alarms on faults", _share(self.alarmed, self.faulty), ""),
            ("right label", _share(self.right, self.faulty), ">= 0.95"),
            ("root cause", _share(self.root, self.faulty), ">= 0.80"),
            ("false alarms, twins", f"{self.false_twins}/{self.twins}", ""),
            ("false alarms, negatives", f"{self.false_negatives}/{self.negatives}", ""),
            ("false alarms, all healthy", _share(false, healthy), "<= 0.02"),
            ("precision of labels", _share(self.good_labels, labels), ">= 0.90"),
            ("rules that crashed", str(self.crashed), "0"),
            (
                "median share of the run passed at the first right finding",
                f"{median(self.passed):.2f}" if self.passed else "-",
                "<= 0.25",
            ),
        ]


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.3f}  ({part}/{whole})" if whole else "-"


def _show(case: Mapping[str, Json], runs: Sequence[Run]) -> None:
    for variant in ("faulty", "healthy"):
        chosen = [r for r in runs if r.variant == variant]
        if not chosen or (variant == "healthy" and not any(r.labels for r in chosen)):
            continue
        accept = set(case.get("accept", ())) if variant == "faulty" else set()
        right = sum(bool(set(r.labels) & accept) for r in chosen)
        mark = f"{right}/{len(chosen)}" if variant == "faulty" else "FALSE ALARM"
        told: dict[str, list[int]] = {}
        for one in chosen:
            for label, step in one.labels.items():
                told.setdefault(label, []).append(step)
        said = ", ".join(f"{label}@{'/'.join(map(str, at))}" for label, at in told.items())
        print(f"{case['id']:5} {variant:8} {mark:12} {case['title'][:38]:38} {said or '-'}")


def row(one: Run) -> Json:
    """Return a run as a line of the JSON file."""
    known = {"id": one.case, "variant": one.variant, "seed": one.seed}
    return {**known, "labels": one.labels, "steps": one.steps}


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("cases", type=Path, help="folder with core.py and manifest.json")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument(
        "--interval", type=int, help="save interval; the hook's default if left out"
    )
    parser.add_argument("--json", type=Path, help="write a row per case, variant and seed")
    parser.add_argument("--only", nargs="+", default=[], metavar="ID", help="only these cases")
    parser.add_argument("--explain", action="store_true", help="print every finding")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run every case for every seed and print the table."""
    args = _arguments(argv)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    os.environ.pop("TRAINING_JOB_NAME", None)
    sys.path.insert(0, str(args.cases.resolve()))
    core = importlib.import_module("core")
    manifest = json.loads((args.cases / "manifest.json").read_text())
    score, rows = Score(), list[Json]()
    for case in [*manifest["cases"], *manifest.get("hard_negatives", ())]:
        if args.only and case["id"] not in args.only:
            continue
        variants = ("faulty", "healthy") if "labels" in case else ("healthy",)
        runs = [run(core, case, v, s, args.interval) for v in variants for s in args.seeds]
        for one in runs:
            score.add(case, one)
            rows.append(row(one))
            for finding in one.findings if args.explain else ():
                print(f"  {one.case} {one.variant} {one.seed} {finding.rule}: {finding.message}")
        _show(case, runs)
    print()
    for what, measured, target in score.table():
        print(f"{what:58} {measured:18} {target}")
    if not args.only:
        rows += [row(one) for one in boosted(args.cases, args.seeds, args.interval)]
    if args.json:
        args.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
