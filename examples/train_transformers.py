"""A tiny GPT-2 that reads Python's own help text, with a learning rate far too high.

python examples/train_transformers.py                        # records to .trainwarden/runs
python examples/train_transformers.py --learning-rate 3e-3   # learns
"""

from __future__ import annotations

import argparse
import tempfile
from pydoc_data.topics import topics
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import trainwarden

LENGTH = 32


def text() -> tuple[torch.Tensor, int]:
    """Return character numbers, and how many characters there are."""
    joined = "\n".join(topics[name] for name in sorted(topics))[:20_000]
    alphabet = sorted(set(joined))
    number = {letter: i for i, letter in enumerate(alphabet)}
    return torch.tensor([number[letter] for letter in joined]), len(alphabet)


def rows_of(ids: torch.Tensor) -> list[dict[str, Any]]:
    """Cut a text into rows that are to be continued."""
    rows = ids[: len(ids) // LENGTH * LENGTH].view(-1, LENGTH)
    return [{"input_ids": row, "labels": row} for row in rows]


def main() -> None:
    """Train, and print what was logged last."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--learning-rate", type=float, default=3.0)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    ids, letters = text()
    config = GPT2Config(
        vocab_size=letters,
        n_positions=LENGTH,
        n_embd=32,
        n_layer=2,
        n_head=2,
        bos_token_id=None,
        eos_token_id=None,
    )
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=GPT2LMHeadModel(config),
            args=TrainingArguments(
                folder,
                per_device_train_batch_size=8,
                max_steps=arguments.steps,
                learning_rate=arguments.learning_rate,
                logging_steps=20,
                eval_strategy="steps",
                eval_steps=25,
                save_strategy="no",
                report_to=[],
                use_cpu=True,
                disable_tqdm=True,
            ),
            train_dataset=rows_of(ids[:16_000]),
            eval_dataset=rows_of(ids[16_000:]),
            callbacks=[trainwarden.TransformersCallback()],
        )
        trainer.train()


if __name__ == "__main__":
    main()
