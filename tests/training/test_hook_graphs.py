"""Scripts, traces, exports and fake tensors: graphs are made of watched models as of any other."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional

from tests.training.loops import digits, mlp, train, watched
from tests.unit.hook.recording import read
from trainwarden.hook.torch.callbacks import Patch
from trainwarden.store.memory import MemoryObjects

LOSS = nn.CrossEntropyLoss()
X, Y = digits(64)
# torch.jit is deprecated in the newest torch, and still what many models are served with.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.jit:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
]


class Functional(nn.Module):
    """A model whose functions are patched while its step is saved."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two = nn.Linear(64, 32), nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.two(functional.relu(self.one(x)))  # type: ignore[no-any-return]


def script(model: nn.Module) -> Any:
    return torch.jit.script(model)


def trace(model: nn.Module) -> Any:
    return torch.jit.trace(model, X)  # type: ignore[no-untyped-call]


def symbolic(model: nn.Module) -> Any:
    return fx.symbolic_trace(model)


def export(model: nn.Module) -> Any:
    return torch.export.export(model, (X,)).module()


@pytest.mark.parametrize("make", [script, trace, symbolic, export])
@pytest.mark.parametrize("build", [mlp, Functional])
@pytest.mark.parametrize("copied", [False, True], ids=["itself", "copy"])
def test_a_graph_can_be_made_of_a_watched_model_and_of_its_copy(
    make: Callable[[nn.Module], Any], build: Callable[[], nn.Module], *, copied: bool
) -> None:
    model, store = build(), MemoryObjects()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watched(store, model, optimizer, None) as hook:
        for _ in range(4):
            optimizer.zero_grad()
            out = model(X)
            graph = make(copy.deepcopy(model) if copied else model)  # amid a saved step
            torch.testing.assert_close(graph(X), out)
            loss = functional.cross_entropy(out, Y)
            torch.autograd.backward(loss)
            optimizer.step()
        assert hook.active
    found = read(store)
    assert found.steps == [0, 1, 2, 3]
    assert len(found.scalars("loss")) == 4


def test_a_copy_of_a_watched_model_has_no_hooks_and_can_be_scripted_after_the_run() -> None:
    model, store = mlp(), MemoryObjects()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watched(store, model, optimizer, LOSS):
        train(model, optimizer, LOSS, (X, Y), steps=1)
        model(X)  # hooks are on the activations too
        copies = [copy.deepcopy(model), copy.deepcopy({"in": [model]})["in"][0]]
    for twin in copies:
        assert not any(m._forward_hooks or m._forward_pre_hooks for m in twin.modules())
        torch.testing.assert_close(script(twin)(X), model(X))


def test_a_hook_of_the_users_stays_in_the_copy_and_in_its_order() -> None:
    model, calls = mlp(), list[str]()
    model.register_forward_pre_hook(_noted(calls, "before"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watched(MemoryObjects(), model, optimizer, LOSS):
        model.register_forward_pre_hook(_noted(calls, "after"))
        before = list(model._forward_pre_hooks.values())
        with pytest.raises(Exception, match=r"hook|Unknown|annot"):
            script(model)  # theirs cannot be scripted
        assert list(model._forward_pre_hooks.values()) == before
        twin = copy.deepcopy(model)
    assert len(twin._forward_pre_hooks) == 2


def _noted(calls: list[str], name: str) -> Callable[..., None]:
    def note(*_: Any) -> None:
        calls.append(name)

    return note


def test_a_pickled_model_is_without_us() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watched(MemoryObjects(), model, optimizer, LOSS):
        body = pickle.dumps(model)
    assert b"trainwarden" not in body
    twin = pickle.loads(body)  # noqa: S301 - ours
    torch.testing.assert_close(twin(X), model(X))


def test_a_forward_pass_without_values_is_passed_over() -> None:
    model, store = mlp(), MemoryObjects()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watched(store, model, optimizer, None) as hook:
        train(model, optimizer, LOSS, (X, Y), steps=1)
        with FakeTensorMode(allow_non_fake_inputs=True):
            functional.cross_entropy(model(torch.randn(8, 64)), torch.zeros(8, dtype=torch.long))
        losses = train(model, optimizer, LOSS, (X, Y), steps=2)
        assert hook.active
    assert read(store).steps == [0, 1, 2]
    assert read(store).scalars("loss")[1:] == pytest.approx(losses)


def test_patches_of_several_runs_in_any_order_leave_nothing_behind() -> None:
    class Owner:
        @staticmethod
        def call() -> list[str]:
            return []

    original = Owner.call

    def around(name: str) -> Callable[..., Any]:
        return lambda inner: [*inner(), name]

    first, second = Patch(Owner, "call", around("a")), Patch(Owner, "call", around("b"))
    for _ in range(2000):
        first.install()
        second.install()
        assert Owner.call() == ["a", "b"]
        first.remove()
        assert Owner.call() == ["b"]
        first.install()
        assert sorted(Owner.call()) == ["a", "b"]
        first.remove()
        second.remove()
        assert Owner.call is original


class OwnLoss(nn.Module):
    """A model that computes its loss itself, by a function that is watched."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(self.body(x), y)


@pytest.mark.parametrize("early", [False, True], ids=["compiled later", "compiled before"])
def test_a_compiled_model_with_a_watched_function_is_one_graph(*, early: bool) -> None:
    made = list[int]()

    def backend(graph: Any, _inputs: Any) -> Any:
        made.append(len(graph.graph.nodes))
        return graph.forward

    torch._dynamo.reset()
    model, store = OwnLoss(), MemoryObjects()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    compiled: Any = torch.compile(model, backend=backend, fullgraph=True)
    if early:
        compiled(X, Y)
    losses = list[float]()
    with watched(store, compiled, optimizer, save_interval=3, dense_steps=0) as hook:
        for _ in range(8):
            optimizer.zero_grad()
            loss = compiled(X, Y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert hook.active
    assert read(store).scalars("loss") == pytest.approx(losses[::3])
    assert len(made) == 1 + early  # at most once again, when the function is first watched
