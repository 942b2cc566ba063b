from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.unit.rules.runs import NAN, Script, fired, fold, matrices, tensor
from trainwarden.model import Channels, Mode, Observation
from trainwarden.rules.all_zero import AllZero
from trainwarden.stats.catalog import Flag

RULE = AllZero()
NAMES = "abcde"
ACTIVATIONS = tuple(tensor(f"activation/{n}", "activations", kind="GELU") for n in "xyz")
TENSORS = (*matrices(*NAMES), *ACTIVATIONS)
SOUND = {f"gradient/{n}": 0.1 for n in NAMES} | {f"activation/{n}": 0.5 for n in "xyz"}


def run_of(saves: int = 20, every: int = 10, fall: float = 1.0, **values: Any) -> list[Observation]:
    script = Script(*TENSORS)
    given = SOUND | {k.replace("_", "/"): v for k, v in values.items()}
    return [script.step(i * every, given, loss=2.3 * fall**i) for i in range(saves)]


@pytest.mark.parametrize(
    ("given", "fired_at"),
    [
        pytest.param({}, [], id="nothing-is-zero"),
        pytest.param({"gradient_c": 0.0}, [100], id="a-gradient"),
        pytest.param({"activation_y": 0.0}, [100], id="an-activation"),
        pytest.param({"gradient_c": 0.0, "every": 50}, [450], id="saves-count-too"),
        pytest.param({"gradient_a": 0.0}, [], id="the-first-is-grd001s"),
        pytest.param({f"gradient_{n}": 0.0 for n in "bcd"}, [], id="most-are-grd001s"),
        pytest.param({f"activation_{n}": 0.0 for n in "xy"}, [], id="most-are-dead"),
        pytest.param({"gradient_c": 0.0, "fall": 0.9}, [], id="it-learns"),
        pytest.param({"gradient_c": NAN}, [], id="nan"),
    ],
)
def test_fires_at(given: dict[str, Any], fired_at: list[int]) -> None:
    assert fired(RULE, run_of(**given)) == fired_at


def test_it_is_information_about_one_tensor() -> None:
    (finding,) = fold(RULE, run_of(gradient_c=0.0))[1]
    assert (finding.tensor, finding.first_step) == ("gradient/c", 0)
    assert RULE.meta.severity.value == "info"


def test_a_tensor_that_recovers_begins_anew() -> None:
    script = Script(*TENSORS)
    run = [
        script.step(i * 10, {**SOUND, "gradient/c": 1.0 if i == 9 else 0.0}, loss=2.3)
        for i in range(30)
    ]
    assert fired(RULE, run) == [200]


def test_a_relu_is_another_rules_business() -> None:
    script = Script(*TENSORS)
    dead = {"activation/y": Channels(np.zeros(4, np.int64), 64)}
    values = {**SOUND, "activation/y": 0.0}
    run = [script.step(i * 10, values, loss=2.3, channels=dead) for i in range(20)]
    assert fired(RULE, run) == []


@pytest.mark.parametrize("more", [{"mode": Mode.EVAL}, {"flags": Flag.SKIPPED}])
def test_other_passes_are_not_looked_at(more: dict[str, Any]) -> None:
    script = Script(*TENSORS)
    values = {**SOUND, "gradient/c": 0.0}
    run = [script.step(i * 10, values, loss=2.3, **more) for i in range(20)]
    assert fired(RULE, run) == []


def share(zeros: int) -> Any:
    values = np.ones(16)
    values[:zeros] = 0
    return values.reshape(4, 4)


@pytest.mark.parametrize(
    ("given", "zeros", "fired_at"),
    [
        ({"threshold": 100.0}, [16, 16, 8, 16], [0, 3]),
        ({"threshold": 50.0}, [7, 8, 9, 7], [1]),
        ({"collection_names": ("weights",)}, [16], []),
        ({"tensor_regex": (".*/a",)}, [16, 15], [0]),
        ({"threshold": 100.0}, [15], []),
    ],
)
def test_given_parameters_have_sagemakers_meaning(
    given: dict[str, Any], zeros: list[int], fired_at: list[int]
) -> None:
    script = Script(*TENSORS)
    run = [script.step(i, {"gradient/a": share(n), "b": 1.0}) for i, n in enumerate(zeros)]
    assert fired(AllZero(**given), run) == fired_at
