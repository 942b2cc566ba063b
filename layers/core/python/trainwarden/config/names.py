"""Which rule is meant: registered names, codes, and what SageMaker users may still have in jobs."""

from __future__ import annotations

import re

from trainwarden.config.model import canonical
from trainwarden.config.wishes import Source
from trainwarden.rules import PROFILES, find, registry

PROFILER_RULES = frozenset(
    {
        "BatchSize",
        "CPUBottleneck",
        "Dataloader",
        "GPUMemoryIncrease",
        "IOBottleneck",
        "LoadBalancing",
        "LowGPUUtilization",
        "MaxInitializationTime",
        "OverallFrameworkMetrics",
        "OverallSystemUsage",
        "ProfilerReport",
        "StepOutlier",
    }
)
DEBUGGER_RULES = frozenset(
    {
        "AllZero",
        "CheckInputImages",
        "ClassImbalance",
        "Confusion",
        "CreateXgboostReport",
        "DeadRelu",
        "ExplodingTensor",
        "FeatureImportanceOverweight",
        "LossNotDecreasing",
        "NLPSequenceRatio",
        "Overfit",
        "Overtraining",
        "PoorWeightInitialization",
        "SaturatedActivation",
        "SimilarAcrossRuns",
        "StalledTrainingRule",
        "TensorVariance",
        "TreeDepth",
        "UnchangedTensor",
        "VanishingGradient",
        "WeightUpdateRatio",
    }
)
MAX_KEY_CHARS = 64
_NO_KEY = re.compile(r"[^A-Za-z0-9_.-]+")


class Names:
    """Finds a rule by key, name or code, however it is spelt."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, str]] = {}
        for name, cls in registry().items():
            self._known[canonical(cls.meta.code)] = (name, name)
            self._known[canonical(name)] = (name, name)

    def find(self, word: str) -> tuple[str, str] | None:
        """Return (key, registered name), None if nothing is called so."""
        return self._known.get(canonical(word))

    def add(self, key: str, name: str) -> None:
        """Make the key of a job's own instance of a rule known to stronger sources."""
        self._known.setdefault(canonical(key), (key, name))

    def reject(self, source: Source, where: str, word: str) -> None:
        """Note that no rule is called ``word``, and why, as far as that is known."""
        folded = canonical(word)
        if folded in {canonical(rule) for rule in PROFILER_RULES}:
            expected = "a rule about the model (rules about the machine's load are skipped)"
            source.reject(where, word, expected)
        elif folded in {canonical(rule) for rule in DEBUGGER_RULES}:
            source.reject(where, word, "a rule that trainwarden has (skipped)")
        else:
            keys = sorted({key for key, _ in self._known.values()})
            source.reject(where, word, "the name of a rule", [*keys, *PROFILES])


def profile_of(word: str) -> str | None:
    """Return the profile that a word in a list of rules chooses, None if it is no profile."""
    folded = canonical(word)
    return "default" if folded == "all" else folded if folded in PROFILES else None


def is_sagemakers(name: str) -> bool:
    """True if SageMaker Debugger has a rule of this name."""
    return find(name).meta.sagemaker is not None


def rule_key(written: str, name: str) -> str:
    """Return the key of a rule that a user called ``written``; the rule's name if that is meant."""
    if canonical(written) == canonical(name):
        return name
    return _NO_KEY.sub("-", written).strip("-.")[:MAX_KEY_CHARS] or name
