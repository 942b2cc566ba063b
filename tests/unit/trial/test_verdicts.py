"""The profile ``sagemaker`` against firing steps of rules written from SageMaker's documentation.

Ours fire once and fall silent until a tensor recovers; a reference fires at every step. So the
first step is compared as it is, and all steps with a state that begins anew before each of them.
"""

from __future__ import annotations

import json

import pytest

from tests.unit.trial.traces import NAMES, reduced, verdicts
from trainwarden.model import Json
from trainwarden.rules import SAGEMAKER, build

# How many saved steps a rule looks back, itself included; the others need none but the present.
WINDOWS = {"UnchangedTensor": 2, "Overfit": 4}
FROM_THE_START = ("LossNotDecreasing", "ClassImbalance")  # they fire again by themselves, or once
# A fold judges a step when it comes: at step 10 no validation loss is known yet.
EARLIER = {("pt_from_json", 'LossNotDecreasing{"diff_percent": 5.0}'): [10]}
EXPECTED = [
    pytest.param(name, key, found["fired_steps"], id=f"{name}-{key}")
    for name, by_rule in verdicts().items()
    if name in NAMES
    for key, found in by_rule.items()
]


def firing(trace: str, key: str, window: int | None) -> list[int]:
    """Steps at which a rule fires; with a window, begun anew so many saved steps before each."""
    name, brace, rest = key.partition("{")
    rule = build(name, json.loads(brace + rest) if brace else {}, profile=SAGEMAKER)
    run, found = reduced(trace), set[int]()
    for last in range(len(run)) if window else [len(run) - 1]:
        state: Json = rule.start()
        for obs in run[max(0, last + 1 - window) if window else 0 : last + 1]:
            state = json.loads(json.dumps(state, allow_nan=False))
            state, findings = rule.advance(state, obs)
            found |= {f.step for f in findings if window is None or obs is run[last]}
    return sorted(found)


@pytest.mark.parametrize(("trace", "key", "steps"), EXPECTED)
def test_the_first_firing_step_is_the_documented_one(
    trace: str, key: str, steps: list[int]
) -> None:
    assert firing(trace, key, None)[:1] == EARLIER.get((trace, key), steps[:1])


@pytest.mark.parametrize(("trace", "key", "steps"), EXPECTED)
def test_begun_anew_it_fires_at_every_documented_step(
    trace: str, key: str, steps: list[int]
) -> None:
    name = key.partition("{")[0]
    window = None if name in FROM_THE_START else WINDOWS.get(name, 1)
    assert firing(trace, key, window) == EARLIER.get((trace, key), steps)
