"""Numbers about a run of a program, without a verdict: does the fault show, does the twin learn?"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

RELUS = (nn.ReLU, nn.ReLU6)
SQUASHING = (nn.Tanh, nn.Sigmoid)


@dataclass
class Evidence:
    """Watches through the benchmark's hook interface.

    Attributes:
        loss: Training losses, a step each.
        val: Validation losses, a pass each; ``accuracy`` likewise, for class labels.
        grad_first: Mean absolute gradient of the first weight, a step each; ``grad_norm`` of all.
        ratio: Median over the weights of |update| / |weight|, a step each.
        lr: Learning rate of the first group, a step each.
        dead: Share of channels that a ReLU let through nowhere, the worst module's, at the end.
        saturated: Share of tanh or sigmoid outputs at the rim, the worst module's, at the end.
        spread: Standard deviation over the batch / root mean square of the output, at the end.
        gap: Longest time between two training steps, in s.
    """

    loss: list[float] = field(default_factory=list)
    val: list[float] = field(default_factory=list)
    accuracy: list[float] = field(default_factory=list)
    grad_first: list[float] = field(default_factory=list)
    grad_norm: list[float] = field(default_factory=list)
    ratio: list[float] = field(default_factory=list)
    lr: list[float] = field(default_factory=list)
    dead: float = 0.0
    saturated: float = 0.0
    spread: float = float("nan")
    gap: float = 0.0
    no_grad: int = 0
    foreign: int = 0
    x_max: float = 0.0
    x_nonfinite: int = 0
    counts: dict[int, int] = field(default_factory=dict)

    def on_start(self, model: Any, optimizer: Any, _: Any) -> None:
        """Remember how everything was."""
        self.model = model
        self.optimizer = optimizer[0] if isinstance(optimizer, list) else optimizer
        self.named = dict(model.named_parameters())
        self.before = {n: p.detach().clone() for n, p in self.named.items()}
        self.initial = dict(self.before)
        self.buffers = {n: b.detach().clone() for n, b in model.named_buffers()}
        held = {id(p) for g in self.optimizer.param_groups for p in g["params"]}
        self.foreign = len(held - {id(p) for p in self.named.values()})
        self.at = 0.0
        for module in model.modules():
            if isinstance(module, RELUS + SQUASHING):
                module.register_forward_hook(self._activation)
        self._dead: list[float] = []
        self._saturated: list[float] = []

    def _activation(self, module: nn.Module, _: Any, out: Tensor) -> None:
        value = out.detach().float()
        if isinstance(module, RELUS):
            channels = value.transpose(0, 1).reshape(value.shape[1], -1)
            self._dead.append(float((channels <= 0).all(1).float().mean()))
        elif isinstance(module, nn.Tanh):
            self._saturated.append(float((value.abs() > 0.97).float().mean()))
        else:
            self._saturated.append(float(((value < 0.03) | (value > 0.97)).float().mean()))

    def on_step(self, _: int, mode: str, loss: Any, x: Any, out: Any, y: Any) -> None:
        """Note a training step or a validation pass."""
        dead, self._dead = self._dead, []
        saturated, self._saturated = self._saturated, []
        if mode == "eval":
            self.at = 0.0
            self.val.append(float(loss.detach()))
            if y.dtype == torch.long and out.dim() == 2 and y.dim() == 1:
                guess = out.argmax(1) if out.shape[1] > 1 else (out[:, 0] > 0).long()
                self.accuracy.append(float((guess == y).float().mean()))
            return
        now = time.perf_counter()
        self.gap, self.at = max(self.gap, now - self.at if self.at else 0.0), now
        self.loss.append(float(loss.detach()))
        self.dead, self.saturated = max(dead, default=0.0), max(saturated, default=0.0)
        self._batch(x, out, y)
        self._parameters()

    def _batch(self, x: Any, out: Any, y: Any) -> None:
        if torch.is_tensor(x) and x.is_floating_point():
            self.x_nonfinite += int((~x.isfinite()).sum())
            self.x_max = max(self.x_max, float(x.nan_to_num().abs().max()))
        if torch.is_tensor(y) and y.dtype == torch.long:
            for label in y.reshape(-1).tolist():
                self.counts[label] = self.counts.get(label, 0) + 1
        if torch.is_tensor(out) and len(out) > 1:
            flat = out.detach().float().reshape(len(out), -1)
            variance = flat.var(0, correction=0).mean()
            self.spread = float((variance / flat.square().mean()).sqrt())

    def _parameters(self) -> None:
        self.lr.append(self.optimizer.param_groups[0]["lr"])
        grads = [p.grad.float() for p in self.named.values() if p.grad is not None]
        self.no_grad = len(self.named) - len(grads)
        weights = [p for p in self.named.values() if p.dim() > 1]
        first = weights[0].grad
        self.grad_first.append(0.0 if first is None else float(first.to_dense().abs().mean()))
        squares = [g.to_dense().square().sum() for g in grads]
        self.grad_norm.append(float(sum(squares, torch.zeros(())) ** 0.5))
        ratios = []
        for name, value in self.named.items():
            if value.dim() > 1:
                size = self.before[name].float().norm().clamp_min(1e-30)
                ratios.append((value.detach() - self.before[name]).float().norm() / size)
            self.before[name] = value.detach().clone()
        self.ratio.append(float(torch.stack(ratios).median()))

    def on_end(self) -> None:
        """Nothing to do."""

    def numbers(self) -> dict[str, float]:
        """What a condition about the run may name."""
        tail = max(1, len(self.loss) // 10)
        finite = [v for v in self.loss if v == v and abs(v) != float("inf")]  # noqa: PLR0124
        moved = {n: not bool((p == self.initial[n]).all()) for n, p in self.named.items()}
        end = len(self.loss) // 2
        found = {
            "steps": len(self.loss),
            "loss_first": sum(self.loss[:5]) / len(self.loss[:5]),
            "loss_0": self.loss[0],
            "loss_last": sum(self.loss[-tail:]) / tail,
            "loss_min": min(finite, default=float("nan")),
            "loss_max": max(finite, default=float("nan")),
            "nonfinite": len(self.loss) - len(finite),
            "weights_nonfinite": sum(not bool(p.isfinite().all()) for p in self.named.values()),
            "grad_first": sorted(self.grad_first[end:])[len(self.grad_first[end:]) // 2],
            "grad_start": sum(self.grad_first[:5]) / 5,
            "grad_norm_max": max(self.grad_norm),
            "ratio": sorted(self.ratio[end:])[len(self.ratio[end:]) // 2],
            "ratio_start": sorted(self.ratio[:20])[10],
            "lr_first": self.lr[0],
            "lr_last": self.lr[-1],
            "dead": self.dead,
            "saturated": self.saturated,
            "spread": self.spread,
            "gap": self.gap,
            "no_grad": self.no_grad,
            "foreign": self.foreign,
            "unmoved": sum(not m for m in moved.values()),
            "tensors": len(moved),
            "x_max": self.x_max,
            "x_nonfinite": self.x_nonfinite,
            "label_share": max(self.counts.values(), default=0) / max(1, sum(self.counts.values())),
            "weight_rms": _rms(p for p in self.named.values() if p.dim() > 1),
            "weight_rms_start": _rms(p for p in self.initial.values() if p.dim() > 1),
            "buffers_moved": sum(
                not bool((b == self.buffers[n]).all())
                for n, b in self.model.named_buffers()
                if n in self.buffers and b.is_floating_point()
            ),
        }
        if self.val:
            found |= {"val_first": self.val[0], "val_last": self.val[-1], "val_min": min(self.val)}
            found["accuracy"] = self.accuracy[-1] if self.accuracy else float("nan")
        return found


def _rms(tensors: Any) -> float:
    flat = torch.cat([t.detach().float().reshape(-1) for t in tensors])
    return float(flat.square().mean().sqrt())
