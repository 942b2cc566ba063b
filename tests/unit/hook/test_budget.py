"""The budget: saved steps stay within their share of the time, whatever they cost."""

from __future__ import annotations

import numpy as np
import pytest

from trainwarden.hook.budget import FREE, MAX_GAP, Budget


class Loop:
    """A training loop on a clock of its own, of which each step may be saved."""

    def __init__(self, share: float | None, *, step_s: float, save_s: float) -> None:
        self.now = 1000.0
        self.budget = Budget(share, lambda: self.now)
        self.step_s, self.save_s = step_s, save_s
        self.saved: list[int] = []
        self.facts: list[dict[str, float]] = []

    def run(self, steps: int) -> Loop:
        budget = self.budget
        for step in range(steps):
            if budget.allows(step):
                self.saved.append(step)
                self.facts.append(budget.begin(step))
                budget.leave()  # back to the training
                self.now += self.step_s
                budget.enter()
                self.now += self.save_s
                budget.end(step)
                budget.leave()
            else:
                self.now += self.step_s
        return self

    @property
    def share(self) -> float:
        """Of the time after the free saves that went into saving."""
        counted = [step for step in self.saved if step >= FREE]
        return len(counted) * self.save_s / (self.now - 1000.0 - FREE * (self.step_s + self.save_s))


def test_saved_steps_take_their_share_and_no_more() -> None:
    loop = Loop(0.02, step_s=0.01, save_s=0.005).run(20_000)
    assert 0.018 < loop.share <= 0.0202


def test_before_steps_are_left_out_they_are_measured_from_samples() -> None:
    budget = Budget(0.02, lambda: now)
    now = 0.0
    for step in range(FREE):
        assert budget.ample
        budget.begin(step)
        budget.end(step)
    told: list[tuple[bool, bool]] = []
    for spent in (0.0, 0.9, 0.2, 1.0):  # of 100 s, of which 2 may be spent
        now = 100.0 if not told else now
        budget.enter()
        now += spent
        budget.leave()
        told.append((budget.ample, budget.allows(FREE)))
    assert told == [(True, True), (True, True), (False, True), (False, False)]


def test_without_a_limit_every_step_is_measured_whole() -> None:
    assert Budget(None).ample


def test_what_is_cheap_enough_is_always_saved() -> None:
    loop = Loop(0.02, step_s=0.01, save_s=0.0001).run(1000)
    assert loop.saved == list(range(1000))
    assert not any(loop.facts)


def test_the_first_saved_steps_are_free() -> None:
    loop = Loop(0.02, step_s=0.001, save_s=1.0).run(FREE)
    assert len(loop.saved) == FREE


def test_they_are_spread_evenly() -> None:
    loop = Loop(0.02, step_s=0.01, save_s=0.005).run(5000)
    counted = [step for step in loop.saved if step > FREE + 1]
    gaps = np.diff(counted)
    assert gaps.max() - gaps.min() <= 1


def test_a_run_is_never_left_alone_for_long() -> None:
    loop = Loop(1e-9, step_s=0.001, save_s=1.0).run(FREE + 3 * MAX_GAP)
    counted = [step for step in loop.saved if step >= FREE]
    assert counted == [FREE, FREE + MAX_GAP, FREE + 2 * MAX_GAP]


def test_without_a_limit_everything_is_saved() -> None:
    assert len(Loop(None, step_s=0.001, save_s=1.0).run(3000).saved) == 3000


def test_what_was_left_out_is_told_with_the_next_saved_step() -> None:
    loop = Loop(0.02, step_s=0.01, save_s=0.005).run(2000)
    told = [facts for facts in loop.facts if facts]
    assert sum(int(facts["left_out"]) for facts in told) == loop.saved[-1] + 1 - len(loop.saved)
    assert told[-1]["share"] == pytest.approx(0.02, abs=0.002)


def test_the_training_between_two_calls_of_the_hook_is_not_counted() -> None:
    now = 0.0
    budget = Budget(0.5, lambda: now)
    for step in range(FREE):
        budget.begin(step)
        budget.end(step)
    budget.begin(FREE)
    now += 1.0  # the hook works
    budget.leave()
    now += 10.0  # the training does
    budget.enter()
    now += 1.0
    budget.end(FREE)
    now += 4.0
    budget.leave()  # nothing of the hook's is open any more
    assert budget.allows(FREE + 1)
    assert budget._spent == pytest.approx(2.0)


def test_a_step_that_began_before_the_last_one_was_submitted_goes_on() -> None:
    budget = Budget(0.02, lambda: 0.0)
    budget.begin(0)
    budget.begin(1)  # the next step is saved too
    budget.end(0)
    assert budget.running
    budget.end(1)
    assert not budget.running
