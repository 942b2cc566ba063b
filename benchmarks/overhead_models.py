"""The models that are trained when the hook's cost is measured."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    """Two convolutions with a short cut."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(outside), nn.BatchNorm2d(outside)
        self.act1, self.act2 = nn.ReLU(), nn.ReLU()
        self.short: nn.Module = nn.Identity()
        if stride != 1 or inside != outside:
            self.short = nn.Sequential(
                nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images (N, C, H, W)."""
        y = self.norm2(self.conv2(self.act1(self.norm1(self.conv1(x)))))
        out: torch.Tensor = self.act2(y + self.short(x))
        return out


def resnet18(width: int = 32) -> nn.Module:
    """Return a network of ResNet-18's shape for 32x32 images, 2.8 million parameters."""
    blocks: list[nn.Module] = [
        nn.Conv2d(3, width, 3, 1, 1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
    ]
    inside = width
    for stage in range(4):
        for position in range(2):
            outside = width * 2**stage
            blocks.append(Block(inside, outside, 2 if stage and not position else 1))
            inside = outside
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, 10))


class Layer(nn.Module):
    """Attention and a feed-forward part, each with a short cut."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.act, self.down = (
            nn.Linear(width, 4 * width),
            nn.GELU(),
            nn.Linear(4 * width, width),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Sequences (N, T, F)."""
        batch, length, width = x.shape
        mixed = self.mix(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = mixed.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        out: torch.Tensor = x + self.down(self.act(self.up(self.norm2(x))))
        return out


class Transformer(nn.Module):
    """Four layers, one million parameters."""

    def __init__(self, width: int = 128, layers: int = 4, words: int = 1000) -> None:
        super().__init__()
        self.words, self.place = nn.Embedding(words, width), nn.Parameter(torch.zeros(64, width))
        self.layers = nn.Sequential(*[Layer(width, 4) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Words (N, T) to scores (N T, words)."""
        out: torch.Tensor = self.head(self.norm(self.layers(self.words(x) + self.place)))
        return out.flatten(0, 1)


def data_for(name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return one batch of 8."""
    torch.manual_seed(1)
    if name == "resnet18":
        return torch.randn(8, 3, 32, 32), torch.randint(0, 10, (8,))
    words = torch.randint(0, 1000, (8, 64))
    return words, torch.roll(words, -1, 1).flatten()


def model_for(name: str) -> nn.Module:
    """Return the model of that name, the same each time."""
    torch.manual_seed(0)
    return resnet18() if name == "resnet18" else Transformer()
