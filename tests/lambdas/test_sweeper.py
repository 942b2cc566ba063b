"""The sweeper: one bad job does not stop the others, and time is kept."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lambdas.shared import wiring
from lambdas.sweeper.handler import handler
from tests.lambdas.conftest import Context, Printed
from tests.unit.pipeline.world import START, World, obs
from trainwarden.pipeline import Swept

SCHEDULE = {"source": "aws.events", "detail-type": "Scheduled Event", "detail": {}}


def test_a_lost_notice_is_made_good(world: World, context: Context) -> None:
    world.pipeline().notice(world.manifest())
    world.steps(0, obs(0))
    world.clock = START + 61
    assert handler(SCHEDULE, context) == {"jobs": 1, "closed": 0, "failed": 0}
    assert world.progress()["steps"] == 1


def test_what_a_sweep_brought_is_measured_and_failures_are_named(
    context: Context, monkeypatch: pytest.MonkeyPatch, printed: Callable[[], Printed]
) -> None:
    class Pipeline:
        def sweep(self, *, until: float) -> Swept:
            assert until > 0
            return Swept(
                jobs=3,
                folded=5,
                findings=1,
                lost=2,
                crashed=1,
                closed=1,
                failed={"bad": "throttled"},
                dropped={"queue full": 4},
            )

    monkeypatch.setattr(wiring, "pipeline", Pipeline)
    assert handler(SCHEDULE, context) == {"jobs": 3, "closed": 1, "failed": 1}
    told = printed()
    assert told.metrics == {
        "ObjectsFolded": [5.0],
        "FindingsRecorded": [1.0],
        "GapsSkipped": [2.0],
        "RuleCrashes": [1.0],
        "UploadsDropped": [4.0],
    }
    assert [row["reason"] for row in told.lines if row["level"] == "WARNING"] == ["throttled"]
