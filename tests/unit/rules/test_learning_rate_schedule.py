from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import ClassVar

import pytest

from tests.unit.rules.runs import INF, NAN, Script, fired, fold, tensor
from trainwarden.model import Observation
from trainwarden.rules.learning_rate_schedule import LearningRateSchedule

RULE = LearningRateSchedule()
Rate = Callable[[int], float]
NORMALISED = tensor("norm.weight", "weights", (4,), kind="LayerNorm")


def run_of(rates: Sequence[float], losses: Sequence[float], every: int = 1) -> list[Observation]:
    script = Script(NORMALISED)
    return [
        script.step(i * every, loss=loss, scalars={"optimizer": {"lr_0": rate, "adaptive_0": 1.0}})
        for i, (rate, loss) in enumerate(zip(rates, losses, strict=True))
    ]


def kinds(rates: Sequence[float], losses: Sequence[float]) -> list[tuple[int, str]]:
    return [(f.step, f.evidence["kind"]) for f in fold(RULE, run_of(rates, losses))[1]]


def stuck(steps: int) -> list[float]:
    return [2.3 - 0.01 * min(i, 6) for i in range(steps)]


def learning(steps: int) -> list[float]:
    return [2.3 * 0.97**i + 0.1 for i in range(steps)]


class TestSteppedPerBatch:
    @pytest.mark.parametrize(
        ("rate", "fired_at"),
        [
            pytest.param(lambda i: 0.1 * 0.3 ** (i // 8), [40], id="StepLR(8, 0.3)"),
            pytest.param(lambda i: 0.1 * 0.1 ** (i // 30), [78], id="StepLR(30)"),
            pytest.param(lambda i: 0.1 * 0.95**i, [131], id="ExponentialLR(0.95)"),
            pytest.param(lambda i: 0.1 / (1 + i), [149], id="one-over-n"),
            pytest.param(lambda i: 0.1 * max(0.0, 1 - i / 20), [28], id="LinearLR(20)"),
        ],
    )
    def test_the_rate_is_gone_after_a_few_steps(self, rate: Rate, fired_at: list[int]) -> None:
        run = run_of([rate(i) for i in range(300)], stuck(300))
        assert fired(RULE, run) == fired_at

    @pytest.mark.parametrize(
        "rate",
        [
            pytest.param(lambda i: 0.1 + 0 * i, id="constant"),
            pytest.param(lambda i: 0.0 * i, id="frozen"),
            pytest.param(lambda i: 0.1 * 0.3 ** (i // 144), id="per-epoch"),
            pytest.param(lambda i: 0.05 * (1 + math.cos(math.pi * i / 150)), id="cosine-of-150"),
            pytest.param(lambda i: 0.1 * (1 - i / 150), id="linear-of-150"),
            pytest.param(lambda i: 0.1 * 0.001 ** (i / 150), id="exponential-to-a-thousandth"),
            pytest.param(lambda i: 0.05 * (1 + math.cos(math.pi * (i % 50) / 50)), id="restarts"),
            pytest.param(lambda i: 0.1 * min(1, i / 40, (40 / max(i, 1)) ** 0.5), id="transformer"),
        ],
    )
    def test_schedules_as_they_are_meant(self, rate: Rate) -> None:
        assert kinds([rate(i) for i in range(150)], stuck(150)) == []

    def test_what_has_learned_by_then_may_rest(self) -> None:
        assert kinds([0.1 * 0.95**i for i in range(300)], learning(300)) == []

    @pytest.mark.parametrize(("every", "fired_at"), [(1, [40]), (10, [60]), (50, [100])])
    def test_at_any_save_interval(self, every: int, fired_at: list[int]) -> None:
        script, saved = Script(), {*range(10), *range(0, 300, every)}
        run = [
            script.step(i, loss=2.3, scalars={"optimizer": {"lr_0": 0.1 * 0.3 ** (i // 8)}})
            for i in sorted(saved)
        ]
        (finding,) = fold(RULE, run)[1]
        assert abs(finding.step - fired_at[0]) <= every
        assert finding.evidence["full_rate_steps"] < 30

    def test_the_finding_says_what_is_left(self) -> None:
        rates = [0.1 * 0.3 ** (i // 8) for i in range(60)]
        (finding,) = fold(RULE, run_of(rates, stuck(60)))[1]
        assert finding.tensor == "lr_0"
        assert finding.first_step == 0
        assert finding.value == pytest.approx(0.1 * 0.3**5)
        assert finding.limit == pytest.approx(0.001)
        assert finding.evidence["full_rate_steps"] == pytest.approx(11.4, abs=0.1)
        assert "once an epoch" in finding.remedies[0]


def restart(after: float) -> tuple[list[float], list[float]]:
    rates = [0.1 * 0.97**i for i in range(60)] + [0.1] * 60
    return rates, [2.3 * 0.95**i + 0.2 for i in range(60)] + [after] * 60


def test_a_restart_that_loses_everything() -> None:
    assert kinds(*restart(2.4)) == [(100, "restart")]
    assert kinds(*restart(1.0)) == []


def test_a_rate_that_grows_until_the_loss_does() -> None:
    rates = [0.01 * 1.05**i for i in range(100)]
    falling, rising = [2.3 - 0.02 * i for i in range(50)], [1.3 + 0.2 * i for i in range(50)]
    assert kinds(rates, falling + rising) == [(83, "rising")]
    assert kinds(rates, [2.3 - 0.02 * i for i in range(100)]) == []


class TestAWarmupWithoutACap:
    FALLING: Sequence[float] = [4.0 - 0.02 * i for i in range(100)]
    LINEAR: Sequence[float] = [0.001 * (i + 1) for i in range(300)]

    def test_the_loss_rises_slowly_with_the_rate(self) -> None:
        losses = [*self.FALLING, *[2.0 + 0.005 * i for i in range(200)]]
        ((step, kind),) = kinds(self.LINEAR, losses)
        assert (step, kind) == (205, "uncapped")

    def test_the_loss_breaks(self) -> None:
        assert kinds(self.LINEAR, [*self.FALLING, *[4.1] * 200]) == [(139, "uncapped")]

    @pytest.mark.parametrize(
        ("rates", "losses"),
        [
            pytest.param(LINEAR, [*FALLING, *[2.0] * 200], id="no-harm"),
            pytest.param(LINEAR, [*FALLING, *[2.0 + i % 2 for i in range(200)]], id="noise"),
            pytest.param([min(r, 0.15) for r in LINEAR], [*FALLING, *[2.7] * 200], id="capped"),
            pytest.param([0.05 - 0.05 * math.cos(math.pi * i / 300) for i in range(300)],
                         [*FALLING, *[2.7] * 200], id="first-half-of-one-cycle"),
            pytest.param([0.001 * 1.01**i for i in range(300)], [*FALLING, *[2.7] * 200],
                         id="range-test"),
            pytest.param(LINEAR, [2.3] * 100 + [2.4] * 200, id="never-learned"),
        ],
    )  # fmt: skip
    def test_schedules_as_they_are_meant(
        self, rates: Sequence[float], losses: Sequence[float]
    ) -> None:
        assert kinds(rates, losses) == []


class TestWithoutWarmup:
    LOSSES: Sequence[float] = [4.5, 4.0, 6.9, 6.0, *[3.3] * 60]

    def test_a_transformer_whose_loss_rises_at_once(self) -> None:
        assert kinds([0.1] * 64, self.LOSSES) == [(40, "no_warmup")]

    def test_not_where_the_rate_rose_first(self) -> None:
        assert kinds([0.01 * min(10, i + 1) for i in range(64)], self.LOSSES) == []

    def test_not_where_it_learns(self) -> None:
        assert kinds([0.1] * 64, [4.5, 7.0, *[1.5] * 62]) == []

    def test_not_without_normalisation_or_adam(self) -> None:
        script = Script()
        rate = {"optimizer": {"lr_0": 0.1, "adaptive_0": 1.0}}
        assert fired(RULE, [script.step(i, loss=v, scalars=rate)
                            for i, v in enumerate(self.LOSSES)]) == []  # fmt: skip


class TestATransformerThatStartsAtFullRate:
    EMBEDDING = tensor("tokens.weight", "weights", (4,), kind="Embedding")

    def run(self, rate: float, losses: Sequence[float]) -> list[Observation]:
        script = Script(NORMALISED, self.EMBEDDING)
        facts = {"optimizer": {"lr_0": rate, "adaptive_0": 1.0}}
        return [script.step(i, loss=v, scalars=facts) for i, v in enumerate(losses)]

    def test_and_rests_after_a_few_steps(self) -> None:
        rests = [4.8, 4.0, 3.4, *[3.2 + 0.01 * (i % 3) for i in range(80)]]
        assert fired(RULE, self.run(0.03, rests)) == [60]
        assert fired(RULE, self.run(0.001, rests)) == []
        assert kinds([0.03] * 83, rests) == []  # no embedding, no attention

    def test_not_while_it_learns(self) -> None:
        assert fired(RULE, self.run(0.03, [4.8 - 0.01 * i for i in range(90)])) == []


class TestCycles:
    CLASSES: ClassVar = {"objective": {"cross_entropy.classes": 10.0}}

    def run(self, top: float, level: float) -> list[Observation]:
        """A cosine of 10 steps, down and up; ``top`` is the loss at step 5."""
        script, run = Script(), []
        for i in range(90):
            rate = 0.75 * (1 + math.cos(math.pi * i / 10))
            facts = {"optimizer": {"lr_0": rate}, **self.CLASSES}
            run.append(script.step(i, loss=[2.3, top][i == 5] if i < 6 else level, scalars=facts))
        return run

    def test_that_throw_the_loss_up_and_leave_it_there(self) -> None:
        (finding,) = fold(RULE, self.run(6.0, 1.2))[1]
        assert finding.evidence["kind"] == "cycle"
        assert 30 < finding.step < 40
        assert "T_max" in finding.remedies[0]

    def test_not_where_it_learns_or_was_never_thrown_up(self) -> None:
        assert fired(RULE, self.run(6.0, 0.2)) == []
        assert fired(RULE, self.run(3.0, 1.2)) == []


def test_surrogates_of_either_sign_say_nothing() -> None:
    rates = [0.1 * 0.3 ** (i // 8) for i in range(100)]
    assert kinds(rates, [2.3, -1.0, *[2.3] * 98]) == []


def test_what_is_not_finite_is_passed_over() -> None:
    rates = [0.1 * 0.3 ** (i // 8) for i in range(100)]
    rates[50:52] = [NAN, INF]
    losses = [NAN if i % 7 == 5 else v for i, v in enumerate(stuck(100))]
    assert [kind for _, kind in kinds(rates, losses)] == ["per_batch"]


def test_the_largest_rate_of_several_groups_counts() -> None:
    script = Script()
    run = [
        script.step(i, loss=2.3, scalars={"optimizer": {"lr_0": 0.1 * 0.3**i, "lr_1": 0.1}})
        for i in range(100)
    ]
    assert fired(RULE, run) == []


def test_a_resumed_run_keeps_what_was_seen() -> None:
    rates = [0.1 * 0.3 ** (i // 8) for i in range(40)]
    run = run_of(rates, stuck(40))
    assert fired(RULE, [*run, run[20], *run_of(rates, stuck(40))[21:]]) == []
