"""``torch.compile`` before, after and amid the watch: what cannot be seen is said, once.

Nothing is compiled a second time for a saved step, and the training stays the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

from tests.training.loops import digits, train, watched
from tests.unit.hook.recording import Recording, read
from trainwarden.store.memory import MemoryObjects

# torch's own, where it compiles a block that is given a tensor with a graph.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
LOSS = nn.CrossEntropyLoss()
STEPS = 14
WRAPPED = "watch what torch.compile returned"
INSIDE = "torch.compile does not call the hooks of the modules inside"
Watch = Callable[[nn.Module], object]


class Net(nn.Module):
    """An activation of its own, and one in a block."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.tanh = nn.Linear(64, 32), nn.Tanh()
        self.block: Any = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.block(self.tanh(self.first(x)))  # type: ignore[no-any-return]


def compiled(module: Any) -> Any:
    return torch.compile(module, backend="eager")


def wrapped_later(model: Net, watch: Watch) -> Any:
    watch(model)
    return compiled(model)


def wrapped_before(model: Net, watch: Watch) -> Any:
    model_: Any = compiled(model)
    watch(model_)
    return model_


def wrapped_and_run_before(model: Net, watch: Watch) -> Any:
    model_: Any = compiled(model)
    model_(digits(64)[0])
    watch(model_)
    return model_


def in_place_later(model: Net, watch: Watch) -> Any:
    watch(model)
    model.compile(backend="eager")
    return model


def in_place_before(model: Net, watch: Watch) -> Any:
    model.compile(backend="eager")
    watch(model)
    return model


def a_function_later(model: Net, watch: Watch) -> Any:
    watch(model)
    return compiled(lambda x: model(x).clone())


def a_block_later(model: Net, watch: Watch) -> Any:
    watch(model)
    model.block = compiled(model.block)
    return model


def a_block_before(model: Net, watch: Watch) -> Any:
    model.block = compiled(model.block)
    watch(model)
    return model


def amid(model: Net, watch: Watch) -> Any:
    """Not compiled for the first steps, as where that is what should be looked at first."""
    watch(model)
    calls = 0
    later: Any = compiled(model)

    def call(x: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        return (model if calls <= 2 else later)(x)  # type: ignore[no-any-return]

    return call


@pytest.fixture(autouse=True)
def _afresh() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def run(
    make: Callable[[Net, Watch], Any], store: MemoryObjects | None
) -> tuple[list[float], int, int]:
    """Train; returns the losses, how many graphs were compiled, and how often one broke."""
    torch.compiler.reset()
    counters.clear()
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hooks = []

    def watch(module: nn.Module) -> None:
        if store is not None:
            options: dict[str, Any] = {"save_interval": 3, "dense_steps": 2}
            hooks.append(watched(store, module, optimizer, LOSS, **options))

    losses = train(make(model, watch), optimizer, LOSS, digits(128), steps=STEPS)
    for hook in hooks:
        hook.close()
    return losses, counters["stats"]["unique_graphs"], len(counters["graph_break"])


ALL = ["activation/block.1", "activation/tanh"]


@pytest.mark.parametrize(
    ("make", "message", "activations", "inputs"),
    [
        (wrapped_later, WRAPPED, [], 0),
        (wrapped_before, INSIDE, [], 1),
        (wrapped_and_run_before, INSIDE, [], 1),
        (in_place_later, WRAPPED, [], 0),
        (in_place_before, WRAPPED, [], 0),
        (a_function_later, WRAPPED, [], 0),
        (a_block_later, INSIDE, ["activation/tanh"], 1),
        (a_block_before, INSIDE, ["activation/tanh"], 1),
        (amid, WRAPPED, ALL, 1),
    ],
)
def test_what_cannot_be_seen_is_said_and_nothing_is_compiled_for_it(
    make: Callable[[Net, Watch], Any],
    message: str,
    activations: list[str],
    inputs: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = MemoryObjects()
    alone = run(make, None)
    assert run(make, store) == alone
    said = [record.message for record in caplog.records if record.name == "trainwarden"]
    assert len(said) == 1, said
    assert "activations are not captured" in said[0]
    assert message in said[0]
    found: Recording = read(store)
    assert sorted(found.names("activations")) == activations
    assert len(found.names("inputs")) == inputs
    assert found.steps == [0, 1, 3, 6, 9, 12]
    assert len(found.scalars("loss")) == len(found.steps)
    assert not any(math.isnan(value) for value in found.values("gradient/block.0.weight", "l2"))
