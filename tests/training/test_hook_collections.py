"""Real loops whose collections have steps and members of their own, and raw tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load
from torch import nn

from tests.training.loops import digits, mlp, train, watched, weight
from tests.unit.hook.recording import Recording, read
from trainwarden import CollectionConfig, RawConfig, ReductionConfig, SaveConfig
from trainwarden.engine import RuleSpec, replay
from trainwarden.model import Collection
from trainwarden.rules import registry
from trainwarden.smdebug.adapter import as_rule
from trainwarden.smdebug.rules import Rule
from trainwarden.store.memory import MemoryObjects
from trainwarden.trial.own import OwnSource
from trainwarden.trial.trial import Trial
from trainwarden.wire.keys import tensors_key

DATA = digits(256)
DENSE: Any = {"save_interval": 2, "dense_steps": 0, "max_overhead": float("inf")}


def run(
    steps: int = 13, model: nn.Module | None = None, **options: Any
) -> tuple[Recording, MemoryObjects, nn.Module]:
    store, model, loss_fn = MemoryObjects(), model or mlp(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watched(store, model, optimizer, loss_fn, **{**DENSE, **options}):
        train(model, optimizer, loss_fn, DATA, steps=steps)
    return read(store), store, model


def at(recording: Recording, tensor: str) -> list[int]:
    """Steps at which a tensor was saved."""
    found = zip(recording.steps, recording.values(tensor, "l2"), strict=True)
    return [step for step, value in found if not np.isnan(value)]


THIN = [
    CollectionConfig("gradients", {"save_interval": "6"}),
    CollectionConfig("weights", save_config=SaveConfig(4)),
    CollectionConfig("activations", save_config=SaveConfig(5)),
]


def test_each_collection_is_saved_at_its_own_steps() -> None:
    found, _, _ = run(collection_configs=THIN)
    assert found.steps == [0, 2, 4, 5, 6, 8, 10, 12]
    assert at(found, "gradient/0.weight") == [0, 6, 12]
    assert at(found, "0.weight") == [0, 4, 8, 12]
    assert at(found, "activation/1") == [0, 5, 10]
    assert at(found, "0.bias") == [0, 2, 4, 6, 8, 10, 12]
    assert len(found.scalars("loss")) == len(found.steps)
    told = found.observations[1].scalars[Collection.CAPTURE]
    assert {name for name in told if name.startswith("resting.")} == {
        "resting.gradients",
        "resting.weights",
        "resting.activations",
    }
    assert "activation/1" not in found.observations[1].channels


def test_updates_are_those_since_the_saved_step_before_whoever_was_saved_then() -> None:
    thin, full = run(collection_configs=THIN[1:2])[0], run()[0]
    kept = dict(zip(full.steps, full.values("0.weight", "update_l2"), strict=True))
    found = dict(zip(thin.steps, thin.values("0.weight", "update_l2"), strict=True))
    assert [found[step] for step in (4, 8, 12)] == [kept[step] for step in (4, 8, 12)]


def test_training_is_the_same_bit_by_bit() -> None:
    raw = RawConfig(["weights", "outputs", "mine"], save_interval=3)
    mine = CollectionConfig("mine", include_regex="^0")
    thin = run(collection_configs=[*THIN, mine], raw=raw)[2].state_dict()
    model, loss_fn = mlp(), nn.CrossEntropyLoss()
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), loss_fn, DATA, steps=13)
    assert all(torch.equal(thin[name], value) for name, value in model.state_dict().items())


def findings(recording: Recording, *rules: str) -> list[str]:
    """What rules find, all default ones if none is named."""
    known = rules or [name for name, rule in registry().items() if rule.meta.default]
    specs = [RuleSpec(name, name) for name in known]
    return [finding.message for finding in replay(specs, recording.observations).findings]


@pytest.mark.parametrize(
    "thinned",
    [("gradients",), ("weights", "biases"), ("activations", "outputs"), ("all",)],
    ids=str,
)
def test_no_rule_takes_what_rests_for_nothing(thinned: Sequence[str]) -> None:
    torch.manual_seed(0)
    configs = [CollectionConfig(name, {"save_interval": "10"}) for name in thinned]
    options: Any = {"save_interval": 1, "collection_configs": configs}
    assert findings(run(80, **options)[0]) == []


def test_gradients_that_rest_are_not_taken_for_cleared_ones() -> None:
    def loop(thin: Sequence[CollectionConfig]) -> Recording:
        store, model, loss_fn = MemoryObjects(), mlp(), nn.CrossEntropyLoss()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-12)  # moves nothing
        with watched(
            store,
            model,
            optimizer,
            loss_fn,
            **{**DENSE, "save_interval": 1},
            collection_configs=thin,
        ):
            for _ in range(30):
                for part in (slice(64), slice(64, 128)):  # the first one's gradients are cleared
                    optimizer.zero_grad()
                    loss_fn(model(DATA[0][part]), DATA[1][part]).backward()
                optimizer.step()
        return read(store)

    thin = loop([CollectionConfig("gradients", {"save_interval": "20"})])
    assert (
        findings(thin, "OptimizerNotStepping") == findings(loop([]), "OptimizerNotStepping") == []
    )


def test_a_rule_whose_gradients_rest_has_inspected_nothing_of_that_step() -> None:
    found, _, _ = run(20, save_interval=1, collection_configs=[THIN[0]])
    rule = registry()["MissingGradient"]()
    assert [obs.step for obs in found.observations if rule.inspects(obs)] == [0, 6, 12, 18]


def test_tensors_are_kept_as_they_are_where_a_collection_asks_for_it() -> None:
    raw = ReductionConfig(save_raw_tensor=True)
    configs = [CollectionConfig("gradients", save_config=SaveConfig(6), reduction_config=raw)]
    found, store, _ = run(collection_configs=configs)
    kept = {step: store.get(tensors_key("job", step, 0), max_bytes=2**20) for step in found.steps}
    assert [step for step, body in kept.items() if body is not None] == [0, 6, 12]
    body = kept[6]
    assert body is not None
    tensors = load(body)
    assert set(tensors) == {
        f"gradient/{layer}.{kind}" for layer in "02" for kind in ("weight", "bias")
    }
    row = found.steps.index(6)
    assert float(tensors["gradient/0.weight"].norm()) == pytest.approx(
        found.values("gradient/0.weight", "l2")[row], rel=1e-6
    )


def test_raw_tensors_keep_their_type_and_their_step_is_saved_for_them() -> None:
    model = mlp()
    model.to(torch.bfloat16)
    store, loss_fn = MemoryObjects(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    raw = RawConfig(include="weight$", modules="^0$", save_steps=[3])
    x, y = DATA
    before = torch.empty(0)
    with watched(store, model, optimizer, loss_fn, raw=raw, **DENSE):
        for step in range(6):
            optimizer.zero_grad()
            loss_fn(model(x[:32].bfloat16()).float(), y[:32]).backward()
            if step == 3:
                before = weight(model, 0).detach().clone()
            optimizer.step()
    assert read(store).steps == [0, 2, 3, 4]
    body = store.get(tensors_key("job", 3, 0), max_bytes=2**20)
    assert body is not None
    tensors = load(body)
    assert set(tensors) == {"0.weight", "gradient/0.weight"}
    assert tensors["0.weight"].dtype is torch.bfloat16
    assert torch.equal(tensors["0.weight"], before)
    assert read(store).scalars("raw", Collection.CAPTURE) == [2.0]


def test_raw_tensors_without_room_are_counted_and_statistics_go_on() -> None:
    wide = nn.Sequential(nn.Linear(64, 4000), nn.ReLU(), nn.Linear(4000, 10))
    found, store, _ = run(3, wide, raw=RawConfig("weights"), max_pending_bytes=900_000)
    body = store.get(tensors_key("job", 0, 0), max_bytes=2**20)
    assert body is not None
    assert set(load(body)) == {"2.weight"}
    assert found.dropped["raw_tensors"] == 2
    assert at(found, "0.weight") == [0, 2]


def test_a_tensor_is_in_a_collection_of_the_users_own_too() -> None:
    mine = CollectionConfig("mine", include_regex=r"0\.weight", tensor_names=["2.bias"])
    found, _, _ = run(collection_configs=[mine])
    layout = found.manifest.layout
    names = ["0.weight", "2.bias", "gradient/0.weight"]
    assert sorted(layout.names_by_collection["mine"]) == names
    assert "0.weight" in layout.names_by_collection["weights"]
    assert "mine" in found.observations[0].present_tensors


def test_rules_see_a_collection_of_the_users_own() -> None:
    mine = CollectionConfig("mine", include_regex="^0")
    found, _, _ = run(collection_configs=[mine])
    parameters = {"collection": "mine", "statistic": "l2", "above": 0.0}
    fold = replay([RuleSpec("Threshold", "Threshold", parameters)], found.observations)
    assert {finding.tensor for finding in fold.findings} <= {"0.weight", "0.bias"}
    assert fold.findings


def test_rules_of_the_predecessors_shape_see_it_and_its_steps() -> None:
    mine = CollectionConfig("mine", include_regex=r"relu_output|^gradient/2\.")
    model = nn.Sequential()
    model.add_module("body", nn.Linear(64, 32))
    model.add_module("relu", nn.ReLU())
    model.add_module("head", nn.Linear(32, 10))
    _, store, _ = run(model=model, collection_configs=[mine, THIN[2]])
    trial = Trial(OwnSource(store, "job"))
    assert trial.tensor_names(collection="mine") == ["activation/relu"]
    assert trial.tensor("activation/relu").steps() == [0, 2, 4, 5, 6, 8, 10, 12]


class Seen(Rule):
    """Fires where the user's own collection has a tensor."""

    def invoke_at_step(self, step: int) -> bool:
        return bool(self.base_trial.tensor_names(step=step, collection="mine"))


def test_such_rules_see_it_in_a_fold_too() -> None:
    mine = CollectionConfig("mine", include_regex="^0")
    found, _, _ = run(collection_configs=[mine])
    rule = as_rule(Seen, code="CUS901")()
    _, told = rule.advance(rule.start(), found.observations[0])
    assert [finding.step for finding in told] == [0]
