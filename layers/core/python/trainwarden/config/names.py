"""Which rule is meant: registered names, codes, and what SageMaker users may still have in jobs."""

from __future__ import annotations

import re
from collections.abc import Sequence

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
MAX_KEY_CHARS = 64
LESS = "-"  # before a name in a list: all but this rule
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
        return None if word.startswith(LESS) else self._known.get(canonical(word))

    def own(self, source: Source, where: str, written: str, name: str) -> str:
        """Return the key of a job's own instance of the rule ``name``, known from now on.

        A key that means another rule is noted, and gets the rule's name behind it.
        """
        key = rule_key(written, name)
        known = self.find(key)
        if canonical(key) == "nodata" or (known is not None and known[1] != name):
            source.reject(where, written, "a key that no other rule has")
            key = rule_key(f"{key}-{name}", name)
        self._known.setdefault(canonical(key), (key, name))
        return key

    def reject(self, source: Source, where: str, word: str, also: Sequence[str] = ()) -> None:
        """Note that no rule is called ``word``, and why, as far as that is known.

        ``also`` are other names that would have been right.
        """
        folded = canonical(word)
        if folded in {canonical(rule) for rule in PROFILER_RULES}:
            expected = "a rule about the model (rules about the machine's load are skipped)"
            source.reject(where, word, expected)
        else:
            keys = sorted({key for key, _ in self._known.values()})
            source.reject(where, word, "the name of a rule", [*keys, *PROFILES, *also])


def profile_of(word: str) -> str | None:
    """Return the profile that a word in a list of rules chooses, None if it is no profile."""
    folded = "" if word.startswith(LESS) else canonical(word)
    return "default" if folded == "all" else folded if folded in PROFILES else None


def is_sagemakers(name: str) -> bool:
    """True if SageMaker Debugger has a rule of this name."""
    return find(name).meta.sagemaker is not None


def rule_key(written: str, name: str) -> str:
    """Return the key of a rule that a user called ``written``; the rule's name if that is meant."""
    if canonical(written) == canonical(name):
        return name
    return _NO_KEY.sub("-", written).strip("-.")[:MAX_KEY_CHARS] or name
