from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.rules.runs import Script, fired, fold, tensor
from trainwarden.model import Observation
from trainwarden.rules.check_input_images import CheckInputImages

SAGEMAKER = CheckInputImages(threshold_mean=0.2, threshold_samples=500)
FAN_IN = 27


def run_of(
    *, mean: float = 0.0, low: float = -2, high: float = 2, seen: float = 500,
    reaching: float = 1.0, shape: tuple[int, ...] = (3, 8, 8), steps: int = 4,
) -> list[Observation]:  # fmt: skip
    weight = tensor("conv.weight", "weights", (4, 3, 3, 3), kind="Conv2d", depth=0)
    bias = replace(weight, name="conv.bias", collection="biases", shape=(4,))
    infos = [replace(info, module="conv") for info in (weight, bias)]
    infos += [replace(i, name=f"gradient/{i.name}", collection="gradients") for i in infos]
    script = Script(tensor("input/0", "inputs", shape), *infos)
    values = {"gradient/conv.weight": 0.5 * reaching, "gradient/conv.bias": 0.5}
    told = {"mean": mean, "min": low, "max": high, "seen": seen, "samples": 32.0}
    batch = {f"input/0.{name}": value for name, value in told.items()}
    return [script.step(i, values, scalars={"batch": batch}) for i in range(steps)]


@pytest.mark.parametrize(
    ("mean", "seen", "fires"),
    [
        pytest.param(0.25, 500, [0], id="brighter-than-zero"),
        pytest.param(-0.25, 500, [0], id="darker-than-zero"),
        pytest.param(0.2, 500, [], id="the-limit-itself-is-fine"),
        pytest.param(0.25, 499, [], id="too-few-images"),
    ],
)
def test_sagemakers_meaning_is_the_mean_of_500_images(
    mean: float, seen: float, fires: list[int]
) -> None:
    assert fired(SAGEMAKER, run_of(mean=mean, seen=seen)) == fires


def test_its_own_meaning_is_raw_pixels_at_the_first_layer() -> None:
    (finding,) = fold(CheckInputImages(), run_of(low=0, high=255, reaching=120))[1]
    assert (finding.step, finding.evidence["kind"]) == (2, "pixels")
    assert fired(CheckInputImages(), run_of(low=0, high=255, reaching=0.5)) == []
    assert fired(CheckInputImages(), run_of(mean=0.5, low=0, high=1, reaching=0.5)) == []


def test_tables_are_no_images_and_inputs_may_be_chosen() -> None:
    assert fired(SAGEMAKER, run_of(mean=9, shape=(8,))) == []
    chosen = CheckInputImages(threshold_mean=0.2, regex=("other",))
    assert fired(chosen, run_of(mean=9)) == []
