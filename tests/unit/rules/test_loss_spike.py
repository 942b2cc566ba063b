from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.unit.rules.runs import INF, NAN, Script, fired, fold, losses
from trainwarden.model import Observation, Severity
from trainwarden.rules.loss_spike import LossSpike

RULE = LossSpike()
RNG = np.random.default_rng(0)
LEARNED = [2.3 * 0.95**i + 0.3 * (1 + 0.05 * v) for i, v in enumerate(RNG.standard_normal(100))]
CLASSES = {"objective": {"cross_entropy.classes": 10.0}}


def kinds(run: Sequence[Observation]) -> list[tuple[int, str]]:
    return [(f.step, f.evidence["kind"]) for f in fold(RULE, run)[1]]


def jumping(*steps: int, to: float = 9.0, total: int = 100) -> list[float]:
    return [to if i in steps else LEARNED[i] for i in range(total)]


@pytest.mark.parametrize(
    ("values", "told"),
    [
        pytest.param(LEARNED, [], id="learning"),
        pytest.param([2.3] * 100, [], id="stuck"),
        pytest.param([2.3] * 40 + [30.0] * 50, [(72, "diverging")], id="diverges"),
        pytest.param([2.3] + [30.0 * 0.97**i for i in range(90)], [], id="comes-back"),
        pytest.param([2.3] * 40 + [4.0] * 50, [], id="worse-is-another-matter"),
        pytest.param(LEARNED + [2.2] * 50, [(137, "not_recovered")], id="never-recovers"),
        pytest.param(LEARNED + [1.0] * 50, [], id="lost-a-little"),
        pytest.param(LEARNED + [2.2] * 20 + LEARNED[60:], [], id="recovers-in-time"),
        pytest.param(jumping(70, 80, 90), [(75, "recovered"), (90, "repeated")], id="repeated"),
        pytest.param(jumping(70, 71, 72), [(76, "recovered")], id="one-spike-of-three-steps"),
        pytest.param(jumping(70, 80, 90, to=2.0), [], id="small-jumps"),
        pytest.param([], [], id="empty"),
        pytest.param([NAN, INF] * 50, [], id="nothing-finite"),
        pytest.param([1.0, -1.0, *[500.0] * 60], [], id="either-sign"),
        pytest.param([0.0, *[500.0] * 60], [], id="zero"),
    ],
)
def test_tells(values: Sequence[float], told: list[tuple[int, str]]) -> None:
    assert kinds(losses(values)) == told


def test_a_spike_that_is_gone_is_only_information() -> None:
    (finding,) = fold(RULE, losses(jumping(70)))[1]
    assert finding.severity is Severity.INFO
    assert finding.first_step == 70
    assert finding.evidence["spike_steps"] == [70]
    assert "at step 70 and was back at step 75" in finding.message


def test_the_step_of_the_batch_is_named_though_it_was_not_saved() -> None:
    script, run = Script(), []
    for step in range(0, 400, 10):
        value = LEARNED[step // 4] if step <= 200 else 2.2
        spike = {"loss_max": 90.0 if step == 210 else value, "loss_max_step": max(0, step - 7)}
        run.append(script.step(step, loss=value, scalars={"window": spike}))
    (finding,) = fold(RULE, run)[1]
    assert finding.evidence["kind"] == "not_recovered"
    assert finding.evidence["spike_step"] == 203
    assert "jumped to 90 at step 203" in finding.message


def swinging(**more: object) -> list[Observation]:
    values = [2.3, *[1.0 if i % 2 else 5.0 for i in range(60)]]
    script = Script()
    return [script.step(i, loss=v, **more) for i, v in enumerate(values)]  # type: ignore[arg-type]


def test_a_classification_loss_that_swings_about_its_start() -> None:
    assert kinds(swinging(scalars=CLASSES)) == [(40, "oscillating")]
    assert kinds(swinging()) == []


@pytest.mark.parametrize(
    ("values", "told"),
    [
        pytest.param([2.3, 180.0, 165.0], [(1, "blow_up")], id="by-far"),
        pytest.param([2.3, 17.0, 15.0, 9.9], [(2, "blow_up")], id="twice"),
        pytest.param([2.3, 17.0, *LEARNED], [], id="once-and-it-learns"),
    ],
)
def test_a_classification_loss_that_blows_up(
    values: Sequence[float], told: list[tuple[int, str]]
) -> None:
    script = Script()
    run = [script.step(i, loss=v, scalars=CLASSES) for i, v in enumerate(values)]
    assert kinds(run) == told
    assert kinds(losses(values)) == []


def test_a_lucky_first_batch_is_no_start_to_hold_against() -> None:
    script = Script()
    values = [0.01, *[2.3] * 60]
    assert kinds([script.step(i, loss=v, scalars=CLASSES) for i, v in enumerate(values)]) == []


def test_targets_that_move_take_the_loss_with_them() -> None:
    script = Script()

    def run(spread: float) -> list[Observation]:
        return [
            script.step(
                i,
                loss=0.2 if i < 40 else 0.9,
                scalars={"objective": {"mse_loss.target_std": 1.0 if i < 40 else spread}},
            )
            for i in range(100)
        ]

    assert kinds(run(1.0)) == [(72, "diverging")]
    assert kinds(run(6.0)) == []


def test_adversaries_may_throw_each_other_back() -> None:
    script = Script()
    two = {"optimizer": {"lr_0": 0.1, "1.lr_0": 0.1}}
    assert kinds([script.step(i, loss=v, scalars=two) for i, v in enumerate([2.3] + [99.0] * 60)]) \
        == []  # fmt: skip


@pytest.mark.parametrize("every", [1, 10, 50])
def test_what_is_lost_is_found_at_any_save_interval(every: int) -> None:
    assert [k for _, k in kinds(losses(LEARNED + [2.2] * 50, every=every))] == ["not_recovered"]


def test_nothing_is_told_twice_and_the_state_stays_small() -> None:
    state, found = fold(RULE, losses([2.3] * 40 + [30.0] * 2000))
    assert len(found) == 1
    assert len(str(state)) < 1000


def test_a_resumed_run_starts_no_new_count() -> None:
    run = losses([2.3] * 40 + [30.0] * 20)
    assert fired(RULE, run + run[45:]) == []
