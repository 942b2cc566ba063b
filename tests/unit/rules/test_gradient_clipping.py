from __future__ import annotations

from typing import Any

import pytest

from tests.unit.rules.runs import INF, NAN, Script, fired, fold
from trainwarden.model import Mode, Observation
from trainwarden.rules.gradient_clipping import GradientClipping

RULE = GradientClipping()


def run_of(
    norm: float, *, clipped: float = 1.0, fall: float = 1.0, every: int = 10, saves: int = 20
) -> list[Observation]:
    facts = {"optimizer": {"grad_norm": norm, "clip_limit": 1.0}, "window": {"clipped": clipped}}
    return [Script().step(i * every, loss=2.3 * fall**i, scalars=facts) for i in range(saves)]


@pytest.mark.parametrize(
    ("given", "fired_at"),
    [
        pytest.param({"norm": 500.0}, [100], id="always-to-a-500th"),
        pytest.param({"norm": 500.0, "every": 50}, [200], id="every-50th"),
        pytest.param({"norm": 500.0, "every": 1, "saves": 120}, [100], id="every-step"),
        pytest.param({"norm": 5.0}, [], id="to-a-fifth-is-usual"),
        pytest.param({"norm": 500.0, "clipped": 0.5}, [], id="sometimes"),
        pytest.param({"norm": 500.0, "fall": 0.9}, [], id="it-learns"),
        pytest.param({"norm": 0.5}, [], id="never"),
        pytest.param({"norm": NAN}, [], id="nan"),
        pytest.param({"norm": INF}, [], id="infinity"),
    ],
)
def test_fires_at(given: dict[str, Any], fired_at: list[int]) -> None:
    assert fired(RULE, run_of(**given)) == fired_at


def test_the_finding_names_a_limit_that_would_fit() -> None:
    (finding,) = fold(RULE, run_of(500.0))[1]
    assert finding.evidence == {"limit": 1.0, "usual_norm": 500.0}
    assert RULE.meta.severity.value == "info"


def test_without_clipping_nothing_is_inspected() -> None:
    assert not RULE.inspects(Script().step(0, loss=2.3, scalars={"optimizer": {"lr_0": 0.1}}))
    assert not RULE.inspects(Script().step(0, mode=Mode.EVAL, scalars={"optimizer": {}}))
