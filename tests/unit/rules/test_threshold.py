from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.unit.rules.runs import INF, NAN, Script, fired, fold, losses, matrices
from trainwarden.errors import ConfigError
from trainwarden.model import Observation
from trainwarden.rules import build


@pytest.mark.parametrize(
    ("given", "values", "expected"),
    [
        pytest.param({"above": 2}, [1, 2, 3, 3], [2], id="above"),
        pytest.param({"below": "2"}, [3, 2, 1], [2], id="below-as-text"),
        pytest.param({"above": 2, "below": 0}, [1, -1, 3], [1], id="either-side-one-streak"),
        pytest.param({"above": 2, "patience": 3}, [3, 3, 1, 3, 3, 3], [5], id="patience"),
        pytest.param({"above": 2, "window": 2}, [1, 4, 1, 4], [1], id="mean-of-the-last-two"),
        pytest.param({"above": 2, "relative_to": "first"}, [10, 20, 21], [2], id="of-the-first"),
        pytest.param({"above": 2, "relative_to": "best"}, [10, 4, 9], [2], id="of-the-best"),
        pytest.param({"above": 2, "relative_to": "median"}, [1, 5, 1, 11], [1, 3], id="median"),
        pytest.param({"above": 2, "relative_to": "first"}, [0, 0, 0], [], id="nothing-but-zeros"),
        pytest.param({"below": 2, "relative_to": "first"}, [0], [], id="no-reference-no-alarm"),
        pytest.param({"above": 2, "relative_to": "first"}, [0, 3, 7], [2], id="first-not-zero"),
        pytest.param({"above": 2, "relative_to": "best"}, [4, 0, 3, 7], [3], id="best-not-zero"),
        pytest.param(
            {"above": 2, "relative_to": "median"}, [0, 0, 3, 7], [3], id="median-not-zero"
        ),
        pytest.param({"below": 0.5, "relative_to": "first"}, [3, 0], [1], id="zero-of-the-first"),
        pytest.param({"below": 0.5, "relative_to": "median"}, [3, 0], [1], id="zero-of-the-median"),
        pytest.param(
            {"above": 2, "relative_to": "first"}, [5e-324, 9], [], id="beyond-what-a-float-holds"
        ),
        pytest.param({"above": 2, "window": 2}, [1.7e308, 1.7e308], [0], id="huge-averages"),
        pytest.param({"above": 2}, [NAN, INF], [], id="not-finite"),
        pytest.param({"above": 2, "tensors": "other"}, [3], [], id="no-such-name"),
        pytest.param({"above": 2, "collection": "metrics"}, [3], [], id="no-such-collection"),
    ],
)
def test_scalars(given: dict[str, Any], values: list[float], expected: list[int]) -> None:
    assert fired(build("Threshold", given), losses(values)) == expected


def tensors(*pairs: tuple[float, float]) -> list[Observation]:
    script = Script(*matrices("a", "b"))
    return [script.step(i, {"a": one, "b": two}) for i, (one, two) in enumerate(pairs)]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({"above": 10}, [1], id="max"),
        pytest.param({"above": 10, "aggregate": "min"}, [2], id="min"),
        pytest.param({"above": 10, "aggregate": "sum", "tensors": ["a"]}, [1], id="only-a"),
        pytest.param({"above": 10, "share": 1}, [2], id="all"),
        pytest.param({"above": 10, "share": 0.5}, [1], id="half"),
    ],
)
def test_tensors(given: dict[str, Any], expected: list[int]) -> None:
    rule = build("Threshold", {"collection": "weights", "statistic": "l2", **given})
    run = tensors((1, 1), (3, 1), (3, 3))  # 16 elements each: norms of 4 and 12
    assert fired(rule, run) == expected
    assert all(rule.inspects(obs) for obs in run)


def test_the_aggregate_is_numpys() -> None:
    values = np.array([1.0, 5.0, 2.0]) * 4
    for name in ("max", "min", "mean", "median", "sum"):
        script = Script(*matrices("a", "b", "c"))
        run = [script.step(0, dict(zip("abc", values / 4, strict=True)))]
        given = {"collection": "weights", "statistic": "l2", "aggregate": name, "above": 0}
        (finding,) = fold(build("Threshold", given), run)[1]
        assert finding.value == pytest.approx(getattr(np, name)(values))


def test_the_finding_names_the_tensor_and_the_limit() -> None:
    given = {"collection": "weights", "statistic": "l2", "above": 10}
    (finding,) = fold(build("Threshold", given), tensors((1, 1), (3, 1)))[1]
    assert finding.tensor == "a"
    assert finding.limit == 10
    assert "l2 of weights is 12, above 10" in finding.message


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"statistic": "abs_meen", "above": 1}, "abs_mean"),
        ({"aggregate": "most", "above": 1}, "max"),
        ({"above": 1, "below": 2}, "below smaller than above"),
        ({"share": 0}, "> 0"),
        ({}, "expected a limit in above, below or both, found neither; give above=NUMBER"),
        ({"above": None, "below": "none", "window": 3}, "found neither"),
        ({"tensors": "("}, "regular expression"),
    ],
)
def test_wrong_parameters_say_what_is_right(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        build("Threshold", given)


def test_a_sum_beyond_the_range_of_a_float_neither_adds_to_a_streak_nor_ends_it() -> None:
    given = {"collection": "metrics", "aggregate": "sum", "above": 1, "patience": 2}
    run = [
        Script().step(step, scalars={"metrics": dict.fromkeys("ab", value)})
        for step, value in enumerate([1.7e308, 1.0, 1.7e308, 1.0])
    ]
    assert fired(build("Threshold", given), run) == [3]
