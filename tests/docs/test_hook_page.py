"""The page on the hook names every option with its default, and its code runs."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
import torch
from torch import nn

import trainwarden
from trainwarden.hook import Hook
from trainwarden.hook.budget import FREE, MAX_GAP
from trainwarden.hook.options import COLLECTIONS, Options
from trainwarden.hook.torch import batches
from trainwarden.hook.torch.outputs import CHANNEL_ELEMENTS
from trainwarden.hook.uploader import Limits

PAGE = (Path(__file__).parents[2] / "docs" / "hook.md").read_text()
ROW = re.compile(r"^\| (`[^|]+) \|([^|]*)\|([^|]+)\|$", re.MULTILINE)


def table(heading: str) -> dict[str, str]:
    """Names in the first column → the second, below a heading."""
    part = PAGE.split(f"## {heading}")[1].split("\n## ")[0]
    return {
        name: second.strip()
        for first, second, _ in ROW.findall(part)
        for name in re.findall(r"`(\w+)`", first)
    }


def test_every_option_is_on_the_page_and_no_other() -> None:
    given = set(inspect.signature(trainwarden.watch).parameters)
    assert set(table("Options")) == {name for name in given if not name.startswith("_")}


def test_the_defaults_on_the_page_are_those_of_the_code() -> None:
    defaults, options = table("Options"), Options()
    assert defaults["save_interval"] == str(options.schedule.interval)
    assert defaults["dense_steps"] == str(options.schedule.dense)
    assert defaults["max_overhead"] == str(options.max_overhead)
    assert f"The first {FREE} are free" in PAGE
    assert f"at least one step in {MAX_GAP:,}" in PAGE
    assert defaults["updates"] == f"`{options.updates}`"
    assert defaults["evaluation"] == f"`{options.evaluation}`"
    assert defaults["strict"] == f"`{options.strict}`"
    assert defaults["close_timeout_s"] == f"{options.close_timeout_s:g}"
    assert defaults["max_pending_bytes"] == f"{options.max_pending_bytes // 2**20} MiB"
    assert f"{batches.MAX_ELEMENTS:,} elements" in PAGE
    assert f"up to {CHANNEL_ELEMENTS:,}" in PAGE
    limits = Limits()
    assert (limits.first_flush_s, limits.flush_s, limits.flush_steps) == (1.0, 10.0, 50)
    assert "after 1, 2, 4, 8, then 10 seconds, or after 50 saved steps" in PAGE


def test_every_collection_is_on_the_page() -> None:
    assert {str(name) for name in COLLECTIONS} <= set(table("What is captured"))


@pytest.mark.parametrize("block", [1, 2, 3, 4])
def test_the_code_on_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.chdir(tmp_path)
    model = nn.Linear(2, 2)
    known: dict[str, object] = {
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        "loss_fn": nn.MSELoss(),
        "accuracy": 0.5,
        "loss": torch.tensor(1.0),
        "weights": torch.ones(3),
        "save_checkpoint": lambda _: None,
        "train": lambda *_: None,
    }
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 5
    names = {**known, "trainwarden": trainwarden}
    exec(blocks[block], names)  # noqa: S102 - our own page
    hook = names["hook"]
    assert isinstance(hook, Hook)
    hook.close()
    assert len(list(tmp_path.glob(".trainwarden/runs/jobs/*/end/0000.tw"))) == 1
