from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from tests.unit.rules.runs import Script, fired, fold, tensor
from trainwarden.model import Mode, Observation
from trainwarden.rules.class_imbalance import ClassImbalance

RULE = ClassImbalance()
NAME = "label/0"


def run_of(
    *batches: Mapping[int, int], shape: tuple[int, ...] = (), mode: Mode = Mode.TRAIN
) -> list[Observation]:
    script = Script(tensor(NAME, "labels", shape))
    return [script.step(i, labels={NAME: batch}, mode=mode) for i, batch in enumerate(batches)]


@pytest.mark.parametrize(
    ("batches", "fired_at"),
    [
        pytest.param([{0: 98, 1: 2}] * 9, [4], id="two-per-cent"),
        pytest.param([{0: 98, 1: 2}] * 4, [], id="too-few-labels"),
        pytest.param([{0: 90, 1: 10}] * 9, [], id="nine-to-one"),
        pytest.param([{0: 92, 1: 8}] * 9, [], id="eleven-to-one-of-few-labels-may-be-chance"),
        pytest.param([{0: 100}] * 9, [], id="a-single-class-is-no-comparison"),
        pytest.param([{0: 98, 1: 2}] * 40, [4], id="judged-once"),
        pytest.param([{0: 50, 1: 50, -100: 900}] * 9, [], id="ignored-labels"),
        pytest.param([{}] * 9, [], id="empty"),
        pytest.param([{0: 98, 1: 2, 2: 0}] * 9, [4], id="a-count-of-zero"),
        pytest.param([dict.fromkeys(range(20), 5)] * 9, [], id="twenty-balanced-classes"),
        pytest.param([{0: 50}] * 6 + [{1: 50}] * 6, [], id="sorted-data"),
    ],
)
def test_fires_at(batches: list[dict[int, int]], fired_at: list[int]) -> None:
    assert fired(RULE, run_of(*batches)) == fired_at


def test_sagemakers_vector_990_zeros_and_10_ones_in_one_step() -> None:
    obs = Script().step(3, labels={NAME: {0: 990, 1: 10}})
    assert fired(RULE, [obs]) == [3]


def test_many_classes_of_few_samples_each_do_not_look_imbalanced() -> None:
    rng = np.random.default_rng(0)
    batches = []
    for _ in range(30):
        labels, counts = np.unique(rng.integers(0, 18, 64), return_counts=True)
        batches.append(dict(zip(labels.tolist(), counts.tolist(), strict=True)))
    assert fired(RULE, run_of(*batches)) == []


def test_a_policy_that_comes_to_prefer_one_action_is_no_data_set() -> None:
    rng = np.random.default_rng(0)
    batches = []
    for i in range(20):
        p = np.full(5, 1.0)
        p[2] += 3 * i
        labels, counts = np.unique(rng.choice(5, 64, p=p / p.sum()), return_counts=True)
        batches.append(dict(zip(labels.tolist(), counts.tolist(), strict=True)))
    assert fired(RULE, run_of(*batches)) == []


def test_frequencies_of_tokens_differ_by_nature() -> None:
    zipf = {i: max(1, 400 // (i + 1)) for i in range(80)}
    assert fired(RULE, run_of(*[zipf] * 9)) == []


def test_padding_that_dominates_the_tokens_is_found() -> None:
    tokens = {0: 3000, **dict.fromkeys(range(1, 80), 10)}
    (finding,) = fold(RULE, run_of(*[tokens] * 3, shape=(95,)))[1]
    assert finding.value == pytest.approx(3000 / 3790)
    assert "class 0 makes up 79% of" in finding.message


def test_pixel_labels_are_judged_by_dominance() -> None:
    assert fired(RULE, run_of(*[{0: 550, 1: 40, 2: 410}] * 9, shape=(8, 8))) == []
    assert fired(RULE, run_of(*[{0: 950, 1: 50}] * 9, shape=(8, 8))) == []
    assert fired(RULE, run_of(*[{0: 990, 1: 10}] * 9, shape=(8, 8))) == [0]


def test_one_number_a_row_in_a_column_of_its_own_is_one_label() -> None:
    assert fired(RULE, run_of(*[{0: 98, 1: 2}] * 9, shape=(1,))) == [4]


def test_evaluation_labels_and_a_loss_with_class_weights_are_left_alone() -> None:
    assert fired(RULE, run_of(*[{0: 98, 1: 2}] * 9, mode=Mode.EVAL)) == []
    script = Script()
    weighted = {"labels": {"weighted": 1.0}}
    run = [script.step(i, labels={NAME: {0: 98, 1: 2}}, scalars=weighted) for i in range(9)]
    assert fired(RULE, run) == []


def test_ids_are_no_classes_and_leave_the_state_small() -> None:
    batches = [dict.fromkeys(range(k * 400, (k + 1) * 400), 1) for k in range(10)]
    state, found = fold(RULE, run_of(*batches))
    assert found == []
    assert state == {NAME: {}}


def test_only_matching_labels_are_looked_at() -> None:
    assert fired(ClassImbalance(labels_regex=("other",)), run_of(*[{0: 98, 1: 2}] * 9)) == []


def test_the_finding_carries_the_counts() -> None:
    (finding,) = fold(RULE, run_of(*[{0: 98, 1: 2}] * 9))[1]
    assert (finding.tensor, finding.value, finding.limit) == (NAME, 49.0, 10.0)
    assert finding.evidence["counts"] == {"0": 490, "1": 10}
    assert finding.first_step == 0


def judged(recognised: Callable[[int], bool], steps: int = 120) -> list[Observation]:
    """Two per cent of class 1, with what the model says of them."""
    run = []
    for i in range(steps):
        right = {0: 98, 1: 2} if recognised(i) else {0: 98}
        said = right if recognised(i) else {0: 100}
        tables = {NAME: {0: 98, 1: 2}, "predicted/0": said, "correct/0": right}
        run.append(Script().step(i, labels=tables))
    return run


@pytest.mark.parametrize(
    ("recognised", "fires"),
    [
        pytest.param(lambda _: False, [32], id="never-recognised"),
        pytest.param(lambda i: i >= 30, [], id="learned-by-step-30"),
        pytest.param(lambda _: True, [], id="recognised-at-once"),
        pytest.param(lambda i: i < 40, [44], id="chance-at-first"),
    ],
)
def test_where_predictions_are_known_the_rare_class_has_its_chance(
    recognised: Callable[[int], bool], fires: list[int]
) -> None:
    assert fired(RULE, judged(recognised)) == fires


def evaluated(right: Callable[[int], Mapping[int, int]], *, rare: int = 50) -> list[Observation]:
    """Training hardly ever has class 1; each tenth step an evaluation that has both."""
    run = []
    for i in range(80):
        frequent = {NAME: {0: 100}, "predicted/0": {0: 100}, "correct/0": {0: 100}}
        some = {NAME: {0: 98, 1: 2}, "predicted/0": {0: 98, 1: 2}, "correct/0": {0: 98, 1: 2}}
        run.append(Script().step(i, labels=some if i < 2 else frequent))
        if i % 10 == 9:
            tables = {NAME: {0: 50, 1: rare}, "predicted/0": {0: 100}, "correct/0": right(i)}
            run.append(Script().step(i, labels=tables, mode=Mode.EVAL))
    return run


@pytest.mark.parametrize(
    ("run", "fires"),
    [
        pytest.param(evaluated(lambda _: {0: 50, 1: 5}), [49], id="two-in-a-row-after-step-30"),
        pytest.param(evaluated(lambda i: {0: 50, 1: i // 20 * 20}), [], id="learned-in-between"),
        pytest.param(evaluated(lambda _: {0: 20}), [], id="nothing-is-recognised"),
        pytest.param(evaluated(lambda _: {0: 50}, rare=4), [], id="too-few-to-tell"),
    ],
)
def test_an_evaluation_tells_what_a_sampler_hardly_shows(
    run: list[Observation], fires: list[int]
) -> None:
    assert fired(RULE, run) == fires


@pytest.mark.parametrize(
    ("labels", "right", "fires"),
    [
        pytest.param({0: 990, 1: 10}, {0: 990, 1: 10}, ["imbalance"], id="99-to-1"),
        pytest.param({0: 500, 1: 500}, {0: 500, 1: 100}, ["misprediction"], id="80-per-cent"),
        pytest.param({0: 500, 1: 500}, {0: 500, 1: 200}, [], id="60-per-cent"),
        pytest.param({0: 200, 1: 200}, {0: 200}, [], id="too-few-labels"),
    ],
)
def test_sagemakers_meaning_is_the_plain_ratio_or_the_share_of_mispredictions(
    labels: dict[int, int], right: dict[int, int], fires: list[str]
) -> None:
    rule = ClassImbalance(threshold_misprediction=0.7)
    obs = Script().step(0, labels={NAME: labels, "correct/0": right, "predicted/0": labels})
    assert [f.evidence["kind"] for f in fold(rule, [obs])[1]] == fires


def test_labels_of_each_token_in_flat_sequences_are_dense() -> None:
    script = Script(tensor("input/0", "inputs", (20,)), tensor(NAME, "labels", ()))
    batch = {"input/0.samples": 32.0}
    tags = {0: 550, **dict.fromkeys(range(1, 9), 8)}
    run = [script.step(i, labels={NAME: tags}, scalars={"batch": batch}) for i in range(9)]
    assert fired(RULE, run) == []
