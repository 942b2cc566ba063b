from __future__ import annotations

import pytest

from tests.unit.rules.runs import NAN, Script, fired, fold, tensor
from trainwarden.model import Mode, Observation
from trainwarden.rules import build

RULE = build("TreeDepth")
SAGEMAKER = build("TreeDepth", {"depth": "2"})


def run_of(*rounds: tuple[float, float, float, float]) -> list[Observation]:
    """(depth, leaves, training loss, validation loss) of each saved round; 320 rows."""
    script, run = Script(), []
    for i, (depth, leaves, training, validation) in enumerate(rounds):
        shape = {"depth": depth, "leaves": leaves, "largest_node": 2 * leaves, "samples": 320.0}
        run.append(script.step(i, loss=training, scalars={"trees": shape}))
        run.append(script.step(i, loss=validation, mode=Mode.EVAL))
    return run


DEEP = (14.0, 130.0, 2.0, 60.0)


@pytest.mark.parametrize(
    ("rounds", "expected"),
    [
        pytest.param([DEEP] * 4, [2], id="third-ill-round"),
        pytest.param([DEEP] * 2, [], id="two-are-not-enough"),
        pytest.param([(8.0, 130.0, 2.0, 60.0)] * 9, [], id="not-so-deep"),
        pytest.param([(14.0, 40.0, 2.0, 60.0)] * 9, [], id="enough-rows-in-each-leaf"),
        pytest.param([(14.0, 130.0, 50.0, 60.0)] * 9, [], id="validation-is-as-good"),
        pytest.param([DEEP, DEEP, (3.0, 8.0, 2.0, 60.0), DEEP, DEEP], [], id="streak-broken"),
        pytest.param([(NAN, 130.0, 2.0, 60.0)] * 9, [], id="unknown-depth"),
        pytest.param([(14.0, 130.0, NAN, 60.0)] * 9, [], id="unknown-loss"),
        pytest.param([(14.0, 130.0, 0.0, 60.0)] * 3, [2], id="training-loss-is-gone"),
    ],
)
def test_deep_trees_that_remember_rows(
    rounds: list[tuple[float, float, float, float]], expected: list[int]
) -> None:
    assert fired(RULE, run_of(*rounds)) == expected


def test_the_finding_says_how_deep_and_for_how_many_rows() -> None:
    (finding,) = fold(RULE, run_of(*[DEEP] * 3))[1]
    assert finding.evidence == {
        "depth": 14.0,
        "leaves": 130.0,
        "rows": 320.0,
        "training_loss": 2.0,
        "validation_loss": 60.0,
    }
    assert "14 deep" in finding.message
    assert finding.first_step == 0


@pytest.mark.parametrize(
    ("largest", "expected"), [(4.0, []), (7.0, []), (8.0, [0]), (0.0, []), (NAN, [])]
)
def test_sagemaker_measures_the_whole_part_of_the_largest_nodes_logarithm(
    largest: float, expected: list[int]
) -> None:
    script = Script()
    run = [script.step(i, scalars={"trees": {"largest_node": largest}}) for i in range(2)]
    assert fired(SAGEMAKER, run) == expected


def test_recorded_node_numbers_are_read_too() -> None:
    script = Script(tensor("trees/Node", "trees", (9,)))
    run = [script.step(0, {"trees/Node": range(9)})]
    assert fired(SAGEMAKER, run) == [0]
    assert SAGEMAKER.inspects(run[0])
    assert fired(build("TreeDepth", {"depth": 3}), run) == []
