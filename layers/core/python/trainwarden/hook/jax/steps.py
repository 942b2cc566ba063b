"""What is captured of a step whose weights are a pytree."""

from __future__ import annotations

import re
from typing import Any

import jax
import numpy as np

from trainwarden.hook.arrays import ArraySteps, Leaf, leaf

_NUMBER = re.compile(r"(\d+)")


class Steps(ArraySteps):
    """Follows the calls of ``observe``."""

    def observe(self, params: Any, grads: Any, loss: Any, inputs: Any, rate: float | None) -> None:
        """Save the step if it is due; the next call is the next step."""
        draft = self.begin()
        if draft is not None:
            told = None if loss is None else float(loss)
            rate = None if rate is None else float(rate)
            self.fill(draft, leaves(params), leaves(grads), loss=told, rate=rate)
            if inputs is not None:
                self.inputs(draft, np.asarray(inputs))
        self.end(draft)


def leaves(tree: Any) -> dict[str, Leaf]:
    """Copy the arrays of a pytree to the host: path, with dots → array; others are left out."""
    pairs, _ = jax.tree_util.tree_flatten_with_path(tree)
    kept = {
        ".".join(_word(key) for key in path): value
        for path, value in pairs
        if hasattr(value, "dtype")
    }
    found = brought(kept)
    return dict(sorted(found.items(), key=lambda item: _natural(item[0])))


def brought(arrays: dict[str, Any]) -> dict[str, Leaf]:
    """Copy named arrays to the host, all in one go."""
    host = jax.device_get(arrays)
    made = {name: leaf(name, np.asarray(value)) for name, value in host.items()}
    return {name: one for name, one in made.items() if one is not None}


def _natural(name: str) -> list[tuple[int, str]]:
    """Sort ``Dense_2`` before ``Dense_10``."""
    return [(int(word), "") if word.isdigit() else (-1, word) for word in _NUMBER.split(name)]


def _word(key: Any) -> str:
    for attribute in ("key", "idx", "name"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)
