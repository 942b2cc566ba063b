"""Plain loops under Accelerate, whose model and optimizer are watched as they were prepared."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

accelerate = pytest.importorskip("accelerate")

import trainwarden  # noqa: E402 - needs accelerate
from tests.training.loops import digits  # noqa: E402 - as above
from tests.unit.hook.recording import read  # noqa: E402 - as above
from trainwarden.store.memory import MemoryObjects  # noqa: E402 - as above

pytestmark = pytest.mark.filterwarnings("ignore")  # Accelerate's own
DATA = TensorDataset(*digits(256))


def train(store: MemoryObjects | None, precision: str, accumulated: int) -> list[Any]:
    """Train on digits; the weights at the end."""
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    accelerator = accelerate.Accelerator(
        cpu=True, mixed_precision=precision, gradient_accumulation_steps=accumulated
    )
    torch.manual_seed(0)
    model: Any = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
    optimizer: Any = torch.optim.SGD(model.parameters(), 0.1)
    model, optimizer, batches = accelerator.prepare(model, optimizer, DataLoader(DATA, 32))
    hook = (
        None
        if store is None
        else trainwarden.watch(model, optimizer, job="job", strict=True, _store=store)
    )
    for x, y in batches:
        with accelerator.accumulate(model):
            accelerator.backward(nn.functional.cross_entropy(model(x), y))
            optimizer.step()
            optimizer.zero_grad()
    if hook is not None:
        hook.close()
    return [parameter.detach() for parameter in model.parameters()]


@pytest.mark.parametrize("precision", ["no", "bf16"])
@pytest.mark.parametrize("accumulated", [1, 2])
def test_the_weights_are_the_same_to_the_bit(precision: str, accumulated: int) -> None:
    store = MemoryObjects()
    plain, watched = train(None, precision, accumulated), train(store, precision, accumulated)
    assert all(torch.equal(a, b) for a, b in zip(plain, watched, strict=True))
    found = read(store)
    assert found.steps == [*range(8 // accumulated)]
    assert all(obs.captured("gradients").size for obs in found.observations)
    assert found.observations[0].scalars["losses"]["loss"] == pytest.approx(2.3, rel=0.1)
