from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.unit.rules.runs import NAN, Script, fired, fold, matrices, tensor
from trainwarden.model import Finding, Mode, Observation
from trainwarden.rules.optimizer_not_stepping import OptimizerNotStepping

RULE = OptimizerNotStepping()
TENSORS = matrices("a", "b", "c")
SOUND = {
    "stepped": 1.0, "gradients_discarded": 0.0, "parameters": 3.0,
    "parameters_without_optimizer": 0.0, "parameters_without_gradient": 0.0,
    "optimizer_tensors": 3.0, "optimizer_tensors_foreign": 0.0,
}  # fmt: skip
FOREIGN = {"optimizer_tensors_foreign": 3.0, "parameters_without_optimizer": 3.0}
PUSHED = dict.fromkeys("abc", 0.1)


def run_of(
    moves: Sequence[str],
    loop: Mapping[str, float],
    *,
    every: int = 1,
    gradients: Mapping[str, float] = PUSHED,
    rates: Sequence[float] | float = 0.1,
    **optimizer: float,
) -> list[Observation]:
    """``moves[i]`` names the matrices that differ from the step before."""
    script, now, run = Script(*TENSORS), dict.fromkeys("abc", 1.0), []
    for i, moved in enumerate(moves):
        now = {n: v + 0.5 * (n in moved) for n, v in now.items()}
        rate = rates if isinstance(rates, float) else rates[i]
        facts = {"loop": {**SOUND, **loop}, "optimizer": {"lr_0": rate, **optimizer}}
        values = {**now, **{f"gradient/{n}": g for n, g in gradients.items()}}
        run.append(script.step(i * every, values, scalars=facts))
    return run


def told(run: Sequence[Observation]) -> list[tuple[int, str]]:
    return [(f.step, f.evidence["kind"]) for f in fold(RULE, run)[1]]


@pytest.mark.parametrize(
    ("moves", "loop", "more", "expected"),
    [
        pytest.param(["abc"] * 40, {}, {}, [], id="sound"),
        pytest.param([""] * 9, {"stepped": 0.0}, {}, [(2, "step_missing")], id="step-missing"),
        pytest.param(["abc"] * 9, {"stepped": 0.0}, {}, [], id="moved-by-an-optimizer-of-his-own"),
        pytest.param([""] * 9, FOREIGN, {}, [(2, "foreign_tensors")], id="foreign"),
        pytest.param(["abc"] * 9, FOREIGN, {}, [], id="foreign-master-copies-move-the-model"),
        pytest.param([""] * 9, FOREIGN, {"gradients": {}}, [], id="the-other-player-s-turn"),
        pytest.param(
            [""] * 9, {"gradients_discarded": 1.0, "parameters_without_gradient": 3.0},
            {"gradients": {}}, [(2, "zeroed_before_step")], id="gradients-gone-before-the-step",
        ),
        pytest.param(
            [""] * 9, {"gradients_discarded": 1.0}, {"gradients": dict.fromkeys("abc", 0.0)},
            [(2, "zeroed_before_step")], id="gradients-zero-before-the-step",
        ),
        pytest.param(["abc"] * 9, {"gradients_discarded": 1.0}, {}, [], id="a-pass-for-nothing"),
        pytest.param(
            ["ab"] * 9, {"parameters_without_optimizer": 1.0}, {},
            [(3, "output_layer_left_out")], id="the-last-layer-is-left-out",
        ),
        pytest.param(["c"] * 9, {"parameters_without_optimizer": 2.0}, {}, [], id="head-only"),
        pytest.param(["ab"] * 9, {}, {}, [], id="held-but-at-rest-is-UPD001-s-business"),
        pytest.param(
            [""] * 40, {}, {"rates": 0.0}, [(20, "zero_learning_rate")], id="no-learning-rate"
        ),
        pytest.param(
            [*[""] * 11, *["abc"] * 30], {}, {"rates": [0.0] * 10 + [0.1] * 31}, [],
            id="warm-up-from-0",
        ),
        pytest.param(
            [*["abc"] * 10, *[""] * 31], {}, {"rates": [0.1] * 10 + [0.0] * 31}, [],
            id="the-end-of-a-schedule-is-OPT004-s-business",
        ),
        pytest.param([""] * 40, {}, {}, [(21, "no_change")], id="no-change"),
        pytest.param([""] * 40, {}, {"rates": 1e-9}, [], id="a-tiny-rate-is-OPT003-s-business"),
        pytest.param([""] * 40, {}, {"gradients": {}}, [], id="without-gradients"),
        pytest.param([""] * 40, {}, {"rates": 1e-4, "gradients": dict.fromkeys("abc", 1e-5)}, [],
                     id="an-update-that-rounds-away"),
        pytest.param(
            [""] * 40, {}, {"rates": 1e-4, "gradients": dict.fromkeys("abc", 1e-5),
                            "adaptive_0": 1.0},
            [(21, "no_change")], id="adam-divides-by-the-gradient",
        ),
        pytest.param([""] * 40, {}, {"found_inf": 1.0}, [], id="skipped-by-gradscaler"),
        pytest.param([""] * 40, dict.fromkeys(SOUND, NAN), {"rates": NAN}, [], id="unknown"),
    ],
)  # fmt: skip
def test_kinds(
    moves: list[str], loop: dict[str, float], more: dict[str, Any], expected: list[Any]
) -> None:
    assert told(run_of(moves, loop, **more)) == expected


def test_the_same_verdict_at_wider_intervals() -> None:
    assert told(run_of([""] * 9, {"stepped": 0.0}, every=50)) == [(100, "step_missing")]
    assert told(run_of([""] * 9, {}, every=50)) == [(150, "no_change")]


def test_weights_that_round_updates_away_are_another_rule_s_business() -> None:
    run = run_of([""] * 40, {})
    low = tuple(replace(t, dtype="bfloat16") for t in TENSORS)
    layout = replace(run[0].layout, tensors=low)
    assert told([replace(obs, layout=layout) for obs in run]) == []


def test_evaluation_passes_before_any_step_fire_at_the_third() -> None:
    passes = [Script().step(0, loss=2.3, mode=Mode.EVAL) for _ in range(5)]
    (finding,) = fold(RULE, passes)[1]
    assert finding.evidence == {"kind": "step_missing", "passes": 3}
    trained = Script().step(1, scalars={"loop": SOUND})
    assert fired(RULE, [trained, *passes]) == []


def first(run: Sequence[Observation]) -> Finding:
    (finding,) = fold(RULE, run)[1]
    return finding


def test_the_message_counts_what_is_foreign() -> None:
    finding = first(run_of([""] * 9, FOREIGN))
    assert "3 of its 3 are foreign" in finding.message
    assert finding.evidence["parameters_without_optimizer"] == 3


def test_the_last_layer_is_named() -> None:
    finding = first(run_of(["ab"] * 9, {"parameters_without_optimizer": 1.0}))
    assert finding.tensor == "c"
    assert finding.first_step == 1


class TestLayersLeftOut:
    """Matrices in no optimizer, in front of those that move; torch draws within 1 / sqrt(16)."""

    DRAWN = np.random.default_rng(0).uniform(-0.25, 0.25, (32, 16))

    def run(
        self, left: npt.NDArray[Any], *, moved: float = 0.0, pushed: float = 0.1, body: float = 0.1
    ) -> Any:
        names, shape = ("weights/a", "gradient/weights/a"), (32, 16)
        weights = (tensor(names[0], "weights", shape, depth=0), *matrices("b", "c")[:2])
        gradients = (tensor(names[1], "gradients", shape, depth=0), *matrices("b", "c")[2:])
        script = Script(*weights, *gradients)
        facts = {"loop": {**SOUND, "parameters_without_optimizer": 2.0, "parameters": 4.0}}
        facts["optimizer"] = {"lr_0": 0.1}
        values: list[dict[str, npt.ArrayLike]] = [
            {names[0]: left + moved * i, "b": 1 + body * i, "c": 1 + 0.1 * i,
             names[1]: pushed, "gradient/b": 0.1, "gradient/c": 0.1}
            for i in range(9)
        ]  # fmt: skip
        return [script.step(i, now, scalars=facts) for i, now in enumerate(values)]

    def test_is_told_with_its_name(self) -> None:
        finding = first(self.run(self.DRAWN))
        assert (finding.step, finding.evidence["kind"]) == (3, "layers_left_out")
        assert finding.tensor == "weights/a"
        assert "2 of the model's 4 tensors are in no optimizer; weights/a" in finding.message

    def test_what_was_trained_before_is_meant(self) -> None:
        trained = self.DRAWN + np.random.default_rng(1).normal(0, 0.05, self.DRAWN.shape)
        assert told(self.run(trained)) == []
        assert told(self.run(0.5 * self.DRAWN)) == []
        assert told(self.run(np.random.default_rng(2).normal(0, 0.1, self.DRAWN.shape))) == []

    def test_a_head_alone_is_meant(self) -> None:
        assert told(self.run(self.DRAWN, body=0.0)) == []

    def test_what_moves_or_gets_no_gradient_is_not_left_out(self) -> None:
        assert told(self.run(self.DRAWN, moved=1e-3)) == []
        assert told(self.run(self.DRAWN, pushed=0.0)) == []


def test_a_model_without_matrices_is_judged_by_its_loop_alone() -> None:
    script = Script(tensor("scale", "weights", (4,)))
    run = [script.step(i, {"scale": 1.0}, scalars={"loop": {"stepped": 0.0}}) for i in range(5)]
    assert told(run) == [(2, "step_missing")]
