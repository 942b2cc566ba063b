from __future__ import annotations

from typing import Any

import pytest

from tests.unit.rules.runs import Script, fired, fold
from trainwarden.errors import ConfigError
from trainwarden.rules import build
from trainwarden.rules.nlp_sequence_ratio import NLPSequenceRatio


@pytest.mark.parametrize(
    ("given", "zeros", "fires"),
    [
        pytest.param({}, 51, [0], id="over-half"),
        pytest.param({}, 50, [], id="half-itself-is-fine"),
        pytest.param({"token_thresholds_percent": "20"}, 25, [0], id="another-limit"),
        pytest.param({"token_values": "1,2"}, 90, [], id="another-token"),
        pytest.param({"token_values": "0,1", "token_thresholds_percent": "99,5"}, 90, [0],
                     id="a-limit-each"),
    ],
)  # fmt: skip
def test_fires_at(given: dict[str, Any], zeros: int, fires: list[int]) -> None:
    tokens = {0: zeros, 1: 100 - zeros}
    run = [Script().step(i, labels={"input/0": tokens}) for i in range(3)]
    assert fired(build("NLPSequenceRatio", given), run) == fires


def test_each_token_is_told_once_with_its_share() -> None:
    rule = NLPSequenceRatio(token_values=("0", "1"), token_thresholds_percent=("50", "20"))
    run = [Script().step(i, labels={"input/0": {0: 60, 1: 30, 2: 10}}) for i in range(4)]
    found = fold(rule, run)[1]
    assert [(f.step, f.value, f.limit) for f in found] == [(0, 60.0, 50.0), (0, 30.0, 20.0)]


@pytest.mark.parametrize(
    "given",
    [{"token_values": "a"}, {"token_thresholds_percent": "50,50"},
     {"token_thresholds_percent": "101"}],
)  # fmt: skip
def test_tokens_and_limits_that_do_not_fit_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        build("NLPSequenceRatio", given)
