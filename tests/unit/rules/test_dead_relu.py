from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.rules.runs import NAN, Script, fired, fold, tensor
from trainwarden.model import Channels, Mode, Observation
from trainwarden.rules.dead_relu import DeadRelu

NAME = "activation/relu"
RULE = DeadRelu()
TENSORS = (tensor(NAME, "activations", (4,), kind="ReLU"),)
DEAD, ALIVE = [0, 0, 0, 9], [5, 5, 0, 9]


def run_of(*active: list[int], seen: int = 100, mode: Mode = Mode.TRAIN) -> list[Observation]:
    script = Script(*TENSORS)
    return [
        script.step(i, mode=mode, channels={NAME: Channels(np.array(a), seen)})
        for i, a in enumerate(active)
    ]


@pytest.mark.parametrize(
    ("active", "fired_at"),
    [
        pytest.param([DEAD] * 2, [], id="window-not-full"),
        pytest.param([DEAD] * 9, [2], id="fires-once"),
        pytest.param([ALIVE] * 9, [], id="half-is-not-more-than-half"),
        pytest.param([DEAD, DEAD, ALIVE, *[DEAD] * 3], [5], id="recovery-resets"),
        pytest.param([[0, 0, 0, 9], [0, 9, 9, 0]] * 9, [], id="not-the-same-channels"),
        pytest.param([*[DEAD] * 3, ALIVE, *[DEAD] * 3], [2, 6], id="fires-again-after-recovery"),
    ],
)
def test_fires_at(active: list[list[int]], fired_at: list[int]) -> None:
    assert fired(RULE, run_of(*active)) == fired_at


def test_tiny_batches_need_more_steps() -> None:
    assert fired(RULE, run_of(*[DEAD] * 299, seen=1)) == []
    assert fired(RULE, run_of(*[DEAD] * 300, seen=1)) == [299]


def test_a_large_batch_still_needs_three_saved_steps() -> None:
    assert fired(RULE, run_of(*[DEAD] * 5, seen=10**6)) == [2]


def test_with_inactivity_a_rarely_active_channel_is_dead() -> None:
    rare = [1, 1, 1, 500]  # of 1000: 0.1 %
    assert fired(RULE, run_of(*[rare] * 5, seen=1000)) == []
    assert fired(DeadRelu(threshold_inactivity=1.0), run_of(*[rare] * 5, seen=1000)) == [2]


def test_the_finding_tells_how_many_and_since_when() -> None:
    (finding,) = fold(RULE, run_of(ALIVE, *[DEAD] * 3))[1]
    assert (finding.tensor, finding.value, finding.limit) == (NAME, 75.0, 70.0)
    assert finding.first_step == 1
    assert finding.evidence == {"channels": 4, "dead": 3, "positions": 300}


def test_activations_with_nan_belong_to_another_rule() -> None:
    script = Script(*TENSORS)
    dead = {NAME: Channels(np.array(DEAD), 100)}
    run = [script.step(i, {NAME: [NAN, 0, 0, 0]}, channels=dead) for i in range(9)]
    assert fired(RULE, run) == []


def test_evaluation_and_steps_without_activations_are_not_looked_at() -> None:
    train = run_of(*[DEAD] * 3)
    empty = Script(*TENSORS).step(1)
    evaluation = run_of(ALIVE, mode=Mode.EVAL)[0]
    assert fired(RULE, [train[0], empty, train[1], evaluation, train[2]]) == [2]


def test_a_layer_that_one_step_did_not_capture_keeps_its_window() -> None:
    other = tensor("activation/other", "activations", (4,), kind="ReLU")
    script = Script(*TENSORS, other)
    dead = Channels(np.array(DEAD), 100)
    both = {NAME: dead, other.name: dead}
    run = [script.step(i, channels={other.name: dead} if i == 1 else both) for i in range(4)]
    found = fold(RULE, run)[1]
    assert [(f.step, f.tensor) for f in found] == [(2, other.name), (3, NAME)]


def test_only_matching_layers_are_looked_at() -> None:
    assert fired(DeadRelu(tensor_regex=("activation/gelu",)), run_of(*[DEAD] * 5)) == []
    assert fired(DeadRelu(tensor_regex=(".*relu",)), run_of(*[DEAD] * 5)) == [2]


def oracle(run: list[list[int]], seen: int) -> list[int]:
    """From the definition: the longest suffix in which each step and all steps are mostly dead."""
    found, start, told = [], 0, False
    for end in range(len(run)):
        window = np.array(run[start : end + 1])
        if (window[-1] == 0).mean() <= 0.5:
            start, told = end + 1, False
        elif told:
            continue
        elif (window.sum(0) == 0).mean() <= 0.5:
            start = end + 1
        elif len(window) >= 3 and len(window) * seen >= 300:
            found.append(end)
            told = True
    return found


@settings(deadline=None)
@given(
    st.lists(st.sampled_from([DEAD, ALIVE, [0, 0, 7, 0], [0, 0, 0, 0]]), max_size=30),
    st.sampled_from([50, 100, 400]),
)
def test_agrees_with_the_definition(run: list[list[int]], seen: int) -> None:
    assert fired(RULE, run_of(*run, seen=seen)) == oracle(run, seen)


@pytest.mark.parametrize(("alive", "fired_at"), [(3, []), (0, [20])])
def test_a_run_that_learns_can_do_without_half_of_a_layer(alive: int, fired_at: list[int]) -> None:
    script = Script(tensor("activation/relu", "activations", (8,), kind="ReLU"))
    active = np.array([9] * alive + [0] * (8 - alive))
    run = [
        script.step(i * 10, loss=0.5**i, channels={"activation/relu": Channels(active, 400)})
        for i in range(9)
    ]
    assert fired(RULE, run) == fired_at
