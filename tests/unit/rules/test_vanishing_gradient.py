from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.unit.rules.runs import INF, NAN, Script, fired, fold, matrices, tensor
from trainwarden.model import Mode, Observation
from trainwarden.rules.vanishing_gradient import VanishingGradient
from trainwarden.stats.catalog import Flag

RULE = VanishingGradient()
TENSORS = matrices("a", "b", "c", "d")
HEALTHY = (1e-3, 1e-3, 2e-3, 1e-2)
DECAYED = (1e-7, 1e-5, 1e-3, 1e-2)


def run_of(
    *gradients: Sequence[float], every: int = 10, loss: float = 2.3, fall: float = 1.0
) -> list[Observation]:
    """One saved step for each tuple of mean |g|, from input to output."""
    script = Script(*TENSORS)
    return [
        script.step(
            i * every,
            {f"gradient/{n}": g for n, g in zip("abcd", values, strict=True)},
            loss=loss * fall**i,
        )
        for i, values in enumerate(gradients)
    ]


@pytest.mark.parametrize(
    ("gradients", "fired_at"),
    [
        pytest.param([HEALTHY] * 9, [], id="healthy"),
        pytest.param([DECAYED] * 2, [], id="streak-too-short"),
        pytest.param([DECAYED] * 9, [30], id="fires-once-per-streak"),
        pytest.param([DECAYED, DECAYED, HEALTHY, *[DECAYED] * 4], [60], id="recovery-resets"),
        pytest.param([(0.0,) * 4] * 5, [30], id="all-zero"),
        pytest.param([(0.0, 0.0, 1e-3, 1e-2)] * 5, [30], id="half-zero-with-the-first"),
        pytest.param([(1e-3, 0.0, 0.0, 1e-2)] * 5, [], id="zero-in-the-middle-only"),
        pytest.param([(1e-7, 1e-1, 1e-3, 1e-2)] * 5, [30], id="two-of-three-fall"),
        pytest.param([(1e-7, 1e-1, 2e-2, 1e-2)] * 5, [], id="no-trend-towards-the-input"),
        pytest.param([(1e-12, 1e-12, 2e-12, 1e-11)] * 5, [], id="small-everywhere-is-a-unit"),
        pytest.param([(NAN, 1e-5, 1e-3, 1e-2)] * 5, [], id="nan-is-not-vanishing"),
        pytest.param([DECAYED, (INF, 1, 1, 1), *[DECAYED] * 4], [50], id="infinity-resets"),
        pytest.param([(1.001e-5, 1e-4, 1e-3, 1e-2)] * 5, [], id="just-under-three-decades"),
    ],
)
def test_fires_at(gradients: list[Sequence[float]], fired_at: list[int]) -> None:
    assert fired(RULE, run_of(*gradients)) == fired_at


def test_a_streak_must_span_enough_steps() -> None:
    assert fired(RULE, run_of(*[DECAYED] * 40, every=1)) == [30]
    assert fired(RULE, run_of(*[DECAYED] * 5, every=50)) == [100]


def test_a_run_that_learns_is_left_alone() -> None:
    assert fired(RULE, run_of(*[DECAYED] * 20, fall=0.8)) == []


def test_the_finding_names_the_first_layer_and_the_first_bad_step() -> None:
    (finding,) = fold(RULE, run_of(HEALTHY, *[DECAYED] * 4))[1]
    assert (finding.tensor, finding.first_step) == ("gradient/a", 10)
    assert finding.value == pytest.approx(1e-7)
    assert finding.limit == pytest.approx(1e-5)
    assert "5.0 decades" in finding.message


def test_steps_that_gradscaler_skipped_are_passed_over() -> None:
    script = Script(*TENSORS)
    zero = {f"gradient/{n}": 0.0 for n in "abcd"}
    run = [script.step(i * 10, zero, loss=2.3, flags=Flag.SKIPPED) for i in range(9)]
    assert fired(RULE, run) == []


def test_frozen_tensors_embeddings_and_vectors_are_not_looked_at() -> None:
    tensors = (
        tensor("gradient/emb", "gradients", kind="Embedding", depth=0),
        tensor("gradient/bias", "gradients", (4,), depth=1),
        tensor("gradient/frozen", "gradients", depth=2, trainable=False),
        *(tensor(f"gradient/{n}", "gradients", depth=3 + i) for i, n in enumerate("abc")),
    )
    script = Script(*tensors)
    quiet = {t.name: 0.0 for t in tensors[:3]}
    run = [
        script.step(i * 10, {**quiet, **{f"gradient/{n}": 1e-3 for n in "abc"}}, loss=2.3)
        for i in range(9)
    ]
    assert fired(RULE, run) == []


def test_two_layers_are_no_trend() -> None:
    script = Script(*matrices("a", "b"))
    run = [script.step(i * 10, {"gradient/a": 1e-9, "gradient/b": 1.0}) for i in range(9)]
    assert fired(RULE, run) == []


def test_evaluation_passes_do_not_break_a_streak() -> None:
    run = run_of(*[DECAYED] * 4)
    between = Script(*TENSORS).step(15, loss=2.3, mode=Mode.EVAL)
    assert fired(RULE, [run[0], run[1], between, *run[2:]]) == [30]


@pytest.mark.parametrize(
    ("gradients", "fired_at"),
    [
        pytest.param([(1e-8, 1, 1, 1)], [0], id="any-tensor-at-once"),
        pytest.param([(1e-6, 1, 1, 1)], [], id="above"),
        pytest.param([(1e-8, 1, 1, 1)] * 4, [0], id="once-per-streak"),
        pytest.param([(1e-8, 1, 1, 1), (1, 1, 1, 1), (1e-8, 1, 1, 1)], [0, 20], id="again"),
        pytest.param([(NAN, 1, 1, 1)], [], id="nan-is-not-under"),
    ],
)
def test_an_explicit_threshold_has_sagemakers_meaning(
    gradients: list[Sequence[float]], fired_at: list[int]
) -> None:
    assert fired(VanishingGradient(threshold=1e-7), run_of(*gradients)) == fired_at


@pytest.mark.parametrize(
    ("healthy", "ill", "fired_at"),
    [
        pytest.param(5, DECAYED, [80], id="decay-early"),
        pytest.param(6, DECAYED, [], id="decay-late"),
        pytest.param(1, (0.0,) * 4, [], id="what-passed-gradients-has-died"),
    ],
)
def test_what_vanishes_late_has_another_cause(
    healthy: int, ill: Sequence[float], fired_at: list[int]
) -> None:
    assert fired(RULE, run_of(*[HEALTHY] * healthy, *[ill] * 9)) == fired_at


def game(losses: Sequence[float], gradients: Sequence[float], every: int = 10) -> list[Observation]:
    script = Script(*TENSORS)
    return [
        script.step(i * every, {f"gradient/{n}": g for n in "abcd"}, loss=loss)
        for i, (loss, g) in enumerate(zip(losses, gradients, strict=True))
    ]


class TestALostGame:
    GONE: Sequence[float] = [1e-3] * 3 + [1e-6] * 9

    def test_a_generator_gets_nothing_from_a_sure_discriminator(self) -> None:
        run = game([-0.7, -0.3, -0.1, *[-1e-3] * 9], self.GONE)
        (finding,) = fold(RULE, run)[1]
        assert (finding.step, finding.first_step) == (90, 30)
        assert finding.evidence["kind"] == "game"
        assert finding.tensor == "gradient/a"

    @pytest.mark.parametrize(
        ("losses", "gradients"),
        [
            pytest.param([-0.7, -0.3, -0.1, *[-0.05] * 9], GONE, id="not-so-sure"),
            pytest.param(
                [-0.7, *[-1e-3] * 11], [1e-3, *[1.1e-5] * 11], id="something-comes-through"
            ),
            pytest.param([0.7, 0.3, 0.1, *[1e-3] * 9], GONE, id="a-loss-that-is-learned"),
            pytest.param([-0.7, 0.1, *[-1e-3] * 10], GONE, id="a-loss-of-either-sign"),
            pytest.param([-50.0, *[-1e-3] * 11], GONE, id="another-loss"),
            pytest.param(
                [-0.7, *[-1e-3] * 5, -0.5, *[-1e-3] * 5], GONE, id="the-generator-is-back"
            ),
            pytest.param([-0.7, NAN, *[-0.9] * 10], GONE, id="a-loss-that-falls"),
        ],
    )
    def test_healthy_games(self, losses: list[float], gradients: list[float]) -> None:
        run = game(losses, gradients)
        assert [f for f in fold(RULE, run)[1] if f.evidence.get("kind") == "game"] == []
