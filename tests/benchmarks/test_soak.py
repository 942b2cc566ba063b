from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace

import pytest

from benchmarks import soak, soak_network
from benchmarks.soak_network import ANSWER_LOST, BUSY, RESET, Faults
from trainwarden.embedded import launcher
from trainwarden.embedded.launcher import Server

STEPS = 500


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("soak")
    yield launcher.up(folder)
    launcher.down(folder)


@pytest.fixture(scope="module")
def soaked(server: Server) -> soak.Soaked:
    """A short run, in which more than half of the requests fail."""
    faults = Faults(busy=0.3, reset=0.15, answer_lost=0.15, latency_s=0.02)
    logging.disable(logging.WARNING)
    try:
        return soak.soak(server, STEPS, faults, outage=False, pending_bytes=2**26)
    finally:
        logging.disable(logging.NOTSET)


def test_what_fails_is_tried_again_until_every_step_is_stored(soaked: soak.Soaked) -> None:
    assert soaked.stored == soaked.planned == STEPS // soak.EVERY
    assert soaked.counted == 0
    assert soaked.wrong == 0
    assert soaked.gaps == []
    assert soaked.objects > 1
    assert sum(soaked.requests[fault] for fault in (BUSY, RESET, ANSWER_LOST)) >= soaked.objects


def test_what_must_not_be_is_told() -> None:
    fine = soak.Soaked(10, planned=5, stored=4, counted=1)
    assert fine.failures == []
    assert replace(fine, counted=0).failures == ["1 steps neither stored nor counted"]
    assert replace(fine, wrong=2).failures == ["2 steps without their loss"]
    assert replace(fine, gaps=["object 3 is missing"]).failures == ["object 3 is missing"]
    assert replace(fine, late=2.0 * soak.GROWTH_BYTES).failures == ["memory grew by 8.0 MiB"]
    assert any("dropped and counted" in line for line in fine.lines())


def test_faults_are_those_of_the_seed() -> None:
    faults = Faults()
    drawn = [faults.of(number) for number in range(2000)]
    assert drawn == [faults.of(number) for number in range(2000)]
    assert drawn != [replace(faults, seed=1).of(number) for number in range(2000)]
    for fault, share in ((BUSY, 0.1), (RESET, 0.05), (soak_network.PASSED, 0.7)):
        assert drawn.count(fault) / 2000 == pytest.approx(share, abs=0.03)
