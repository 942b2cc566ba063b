"""What a rule keeps fits the job's record, however many names or tensors there are."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.unit.rules.runs import Script, tensor
from trainwarden.engine import MAX_STATE_BYTES, Engine, RuleSpec
from trainwarden.model import Channels, Json, Layout, Mode, Observation
from trainwarden.rules import build, names
from trainwarden.stats.catalog import INDEX, WIDTH

MANY = 1_000


def size(state: Json) -> int:
    return len(json.dumps(state))


def long(i: int) -> str:
    return f"{i:04d}" + "x" * 900


def ill(count: int, step: int) -> Observation:
    """Everything is ill at once: weights rest, gradients are 0, all channels are dead."""
    if count not in _layouts:
        infos = [tensor(f"w{i}", "weights", depth=i) for i in range(count)]
        infos += [tensor(f"gradient/w{i}", "gradients", depth=i) for i in range(count)]
        infos += [tensor(f"relu{i}", "activations", kind="ReLU", depth=i) for i in range(count)]
        _layouts[count] = Layout(tuple(infos))
    layout = _layouts[count]
    stats = np.zeros((len(layout.tensors), WIDTH))
    stats[:, 0] = 16
    stats[2 * count :, INDEX["ch_n"]] = stats[2 * count :, INDEX["ch_dead"]] = 128
    dead = Channels(np.zeros(128, np.int64), 10)
    channels = {f"relu{i}": dead for i in range(count)}
    losses = {"losses": {"loss": 1.0}}
    return Observation(
        step, Mode.TRAIN, step, 1e9 + step, layout, stats, losses, channels, {"label": {0: 9, 1: 9}}
    )


_layouts: dict[int, Layout] = {}


def states(count: int, specs: list[RuleSpec]) -> dict[str, int]:
    one = Engine(specs)
    state = one.start()
    for step in range(3):
        state = one.advance(state, ill(count, step)).state
    assert one.bounded(state, step=2).changed == ()
    return {key: size(entry["state"]) for key, entry in state["rules"].items()}


def test_the_states_of_all_rules_over_a_thousand_ill_layers_take_less_than_100_kb() -> None:
    sizes = states(MANY, [RuleSpec(name, name) for name in names()])
    assert sizes["UnchangedTensor"] > 1_000
    assert sizes["DeadRelu"] > 1_000
    assert sum(sizes.values()) < 100_000


def test_the_states_over_all_the_tensors_that_a_layout_holds_stay_within_bounds() -> None:
    specs = [RuleSpec(name, name) for name in names()]
    specs.append(RuleSpec("close", "UnchangedTensor", {"tensor_regex": ["."]}))
    sizes = states(16_000, specs)
    assert max(sizes.values()) < MAX_STATE_BYTES
    assert sum(sizes.values()) < 300_000


def test_overfit_follows_64_losses_the_main_one_among_them_in_any_order() -> None:
    rule = build("Overfit")
    names = [long(i) for i in range(900)]
    found: list[Json] = []
    for order in (names, names[::-1]):
        state = rule.start()
        for step in range(3):
            losses = {"losses": {**dict.fromkeys(order, 1.0), "loss": 2.0}}
            state, _ = rule.advance(state, Script().step(step, scalars=losses))
            more = {"losses": {"later": 1.0, "loss": 2.0}}
            state, _ = rule.advance(state, Script().step(step, scalars=more))
        found.append(state)
    assert found[0] == found[1]
    assert sorted(found[0]["start"]) == sorted(found[0]["train"]) == [*names[:63], "loss"]
    assert found[0]["train"]["loss"] == [12.0, 6]
    assert size(found[0]) < 150_000


@pytest.mark.parametrize("classes", [1, 30, 900])
def test_class_imbalance_counts_64_label_tensors_and_2000_classes(classes: int) -> None:
    rule: Any = build("ClassImbalance", {"samples": 10**9})
    state, labels = rule.start(), {long(i): dict.fromkeys(range(classes), 1) for i in range(900)}
    for step in range(3):
        state, _ = rule.advance(state, replace(Script().step(step), labels=labels))
    assert sorted(state) == [long(i) for i in range(64)]
    assert sum(len(one["n"]) for one in state.values() if one) <= 2_000
    assert state[long(0)]["n"]["0"] == 3
    assert size(state) < 150_000


def test_a_dead_layer_is_still_found_among_thousands() -> None:
    rule = build("DeadRelu", {"min_seen": 20, "min_saves": 2})
    state, told = rule.start(), set[str]()
    for step in range(3):
        state, new = rule.advance(state, ill(MANY, step))
        told |= {found.tensor for found in new}
    assert told == {f"relu{i}" for i in range(256)}
