"""Where a NaN began: modules, operations, and the order of what is not finite."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from tests.training.loops import digits, record
from tests.unit.hook.recording import Recording
from trainwarden.hook import Hook
from trainwarden.hook.torch.origin import first_operation
from trainwarden.model import Collection, Mode

AT = 17
X, Y = digits(64)
Change = Callable[[torch.Tensor], torch.Tensor]


class Net(nn.Module):
    """Three layers; ``change`` is applied after the first one."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(64, 32), nn.Linear(32, 16)
        self.last = nn.Linear(16, 10)
        self.act = nn.ReLU()
        self.change: Change | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.act(self.first(x))
        if self.change is not None:
            hidden = self.change(hidden)
        out: torch.Tensor = self.last(torch.tanh(self.second(hidden)))
        return out


def run(
    *,
    model: nn.Module | None = None,
    change: Change | None = None,
    data: Callable[[torch.Tensor], torch.Tensor] = lambda x: x,
    penalty: Callable[[torch.Tensor], torch.Tensor] | None = None,
    after_backward: Callable[[Any], object] = lambda _: None,
    at: int = AT,
    stop: bool = True,
) -> Recording:
    """Train; at step ``at`` something breaks."""
    net: Any = model or Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    loss_fn = nn.CrossEntropyLoss()

    def loop(_: Hook) -> None:
        for step in range(at + 1 if stop else at + 3):
            broken = step == at
            net.change = change if broken else None
            optimizer.zero_grad()
            out = net(data(X.clone()) if broken else X)
            loss = loss_fn(out, Y)
            if broken and penalty is not None:
                loss = loss + penalty(out)
            loss.backward()
            if broken:
                after_backward(net)
            optimizer.step()

    return record(net, loop, optimizer, loss_fn)


def order(recording: Recording, step: int = AT) -> list[str]:
    """What the hook ranked at a step, first one first."""
    (obs,) = [o for o in recording.of(Mode.TRAIN) if o.step == step]
    facts = obs.scalars.get(Collection.HISTORY, {})
    ranks = {k.removeprefix("order@"): v for k, v in facts.items() if k.startswith("order@")}
    names = sorted(ranks, key=lambda name: ranks[name])
    assert [ranks[name] for name in names] == list(range(len(names)))
    return names


def poison(x: torch.Tensor) -> torch.Tensor:
    x[3, 4] = math.nan
    return x


GRADIENTS = [f"gradient/{m}.{p}" for m in ("last", "second", "first") for p in ("weight", "bias")]


@pytest.mark.parametrize(
    ("change", "first"),
    [
        pytest.param(torch.log, "operation/first.log", id="log-of-zero"),
        pytest.param(lambda h: torch.log(h) * 0.5, "operation/first.log", id="log-then-scaled"),
        pytest.param(lambda h: torch.sqrt(h - 1), "operation/first.sqrt", id="root-of-negative"),
        pytest.param(lambda h: h / (h * 0), "operation/first.div", id="division-by-zero"),
        pytest.param(lambda h: torch.exp(h * 1e4), "operation/first.exp", id="exp-overflows"),
        pytest.param(lambda h: h**-1.0, "operation/first.pow", id="power-of-zero"),
        pytest.param(lambda h: (h - 1) ** 0.5, "operation/first.pow", id="root-as-a-power"),
    ],
)
def test_names_the_operation_and_the_module_before_it(change: Change, first: str) -> None:
    found = order(run(change=change))
    assert found[0] == first
    assert found[1] == "loss"
    assert set(found[2:]) == set(GRADIENTS)


def test_gradients_are_ranked_from_the_last_layer_backwards() -> None:
    found = order(run(change=torch.log))
    modules = [name.split("/")[1].split(".")[0] for name in found[2:]]
    assert modules == ["last", "last", "second", "second", "first", "first"]


def test_data_from_outside_is_told_from_what_the_model_made() -> None:
    assert order(run(data=poison))[0] == "data/first.linear"


def test_an_input_is_named_where_it_was_captured() -> None:
    assert order(run(data=poison, at=4), 4)[:2] == ["input/0", "data/first.linear"]


def test_activations_and_outputs_are_ranked_where_they_were_captured() -> None:
    found = order(run(change=torch.log, at=4), 4)
    assert found[:4] == [
        "operation/first.log",
        "activation_input/second.tanh",
        "activation/second.tanh",
        "output/0",
    ]
    assert found[4] == "loss"


def test_an_operation_of_the_loss_is_told_from_those_of_the_model() -> None:
    found = order(run(penalty=lambda out: torch.log(out.sum() * 0)))
    assert found[0] == "loss_operation/last.log"


def test_a_gradient_that_breaks_alone_is_ranked_without_the_loss() -> None:
    def root(h: torch.Tensor) -> torch.Tensor:
        return h + torch.sqrt(h * 0)

    recording = run(change=root, at=4)
    found = order(recording, 4)
    assert set(found) == {"gradient/first.weight", "gradient/first.bias"}


def test_weights_that_were_broken_before_the_step_come_first() -> None:
    def spoil(net: Net) -> None:
        assert net.second.weight.grad is not None
        net.second.weight.grad[0, 0] = math.nan

    recording = run(after_backward=spoil, stop=False)
    assert AT not in recording.steps
    assert order(recording, AT + 1)[0] == "second.weight"


def test_the_order_is_told_once_while_it_lasts() -> None:
    recording = run(change=torch.log, stop=False)
    ill = [
        o.step
        for o in recording.of(Mode.TRAIN)
        if any("order@" in n for n in o.scalars.get("history", {}))
    ]
    assert ill == [AT]


def test_modules_that_return_nan_are_captured_in_the_steps_after() -> None:
    model = Net()

    def loop(_: Hook) -> None:
        for step in range(AT + 3):
            model.change = torch.log if step >= AT else None
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(X), Y)
            loss.backward()  # type: ignore[no-untyped-call]
            if step >= AT:
                optimizer.zero_grad()  # the user skips such a step
            optimizer.step()

    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    recording = record(model, loop, optimizer)
    assert recording.names("module_outputs") == ["module/second", "module/last"]
    assert recording.steps[-3:] == [AT, AT + 1, AT + 2]
    assert recording.values("module/second", "nonfinite")[-1] > 0


def test_inputs_of_activations_are_captured_at_first() -> None:
    recording = run(at=30)
    assert recording.names("activation_inputs") == [
        "activation_input/act",
        "activation_input/second.tanh",
    ]
    known = [not math.isnan(n) for n in recording.values("activation_input/act", "n")]
    assert known == [step < 10 for step in recording.steps]


def test_a_tanh_by_function_has_its_bounds() -> None:
    recording = run(change=lambda h: h, at=12)
    low, high = (recording.values("activation/second.tanh", c)[0] for c in ("n_sat_lo", "n_sat_hi"))
    with torch.no_grad():
        net = Net()
        out = torch.tanh(net.second(net.act(net.first(X))))
    assert (low, high) == ((out <= -0.96).sum().item(), (out >= 0.96).sum().item())
    (info,) = [t for t in recording.manifest.layout.tensors if t.name == "activation/second.tanh"]
    assert info.kind == "Tanh"


def by_name(owner: Any, name: str) -> Change:
    """A function that is looked up when it is called, as users do."""

    def call(x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = getattr(owner, name)(x)
        return found

    return call


@pytest.mark.parametrize(
    ("function", "kind", "low", "high"),
    [
        (by_name(functional, "hardtanh"), "Hardtanh", -1.0, 1.0),
        (by_name(functional, "relu6"), "ReLU6", -math.inf, 6.0),
        (by_name(functional, "hardsigmoid"), "Hardsigmoid", 0.0, 1.0),
        (by_name(functional, "softsign"), "Softsign", -0.72, 0.72),
        (by_name(torch, "sigmoid"), "Sigmoid", 0.02, 0.98),
        (nn.Hardtanh(-2.0, 2.0), "Hardtanh", -2.0, 2.0),
        (nn.ReLU6(), "ReLU6", -math.inf, 6.0),
        (nn.Softsign(), "Softsign", -0.72, 0.72),
    ],
)
def test_functions_and_modules_saturate_at_their_bounds(
    function: Callable[[torch.Tensor], torch.Tensor], kind: str, low: float, high: float
) -> None:
    class Wide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.body, self.function = nn.Linear(64, 10), function

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.function(self.body(x * 50))

    model = Wide()
    with torch.no_grad():
        out = model(X)
    recording = run(model=model, at=1)
    (name,) = recording.names("activations")
    (info,) = [t for t in recording.manifest.layout.tensors if t.name == name]
    assert info.kind == kind
    assert recording.values(name, "n_sat_lo")[0] == (out <= low).sum().item()
    assert recording.values(name, "n_sat_hi")[0] == (out >= high).sum().item()


def test_nothing_is_computed_again_to_find_the_operation() -> None:
    calls = []

    def part(h: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return torch.log(h)

    layer = nn.Linear(4, 4)
    hidden = checkpoint(part, layer(torch.zeros(2, 4)) * 0, use_reentrant=False)
    assert isinstance(hidden, torch.Tensor)
    loss = hidden.sum()
    assert first_operation(loss, {id(layer.weight): (0, "layer")})
    assert len(calls) == 1


@pytest.mark.parametrize("function", [torch.relu, functional.gelu, functional.leaky_relu])
def test_an_overflow_is_the_layers_not_that_of_the_function_behind_it(function: Change) -> None:
    layer = nn.Linear(4, 4)
    with torch.no_grad():
        layer.weight.fill_(1e38)
    loss = function(layer(torch.full((2, 4), 1e3, requires_grad=True))).sum()
    assert first_operation(loss, {id(layer.weight): (0, "layer")}) == "operation/layer.linear"


def test_a_loss_without_a_graph_has_no_operation() -> None:
    assert first_operation(torch.tensor(math.nan), {}) == ""


def test_a_graph_that_was_freed_has_an_operation_of_some_kind() -> None:
    layer = nn.Linear(4, 4)
    loss = torch.log(layer(torch.zeros(2, 4)) * 0).sum()
    loss.backward()  # type: ignore[no-untyped-call]
    assert first_operation(loss, {}).startswith(("operation/", "loss_operation/"))
