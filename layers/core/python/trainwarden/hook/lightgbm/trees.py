"""Shape of the trees of a round, from LightGBM's own text of them."""

from __future__ import annotations

import re

_TREE = re.compile(r"^Tree=", re.MULTILINE)
_FIELD = re.compile(r"^(num_leaves|left_child|right_child|objective)=(\S*)(.*)$", re.MULTILINE)
_LARGEST = 2**1000  # node number: as far as a float goes


def objective(text: str) -> str:
    """Return LightGBM's name of what is minimised; empty if the user's function computes it."""
    return next((first for name, first, _ in _FIELD.findall(text) if name == "objective"), "")


def shape(text: str) -> dict[str, float]:
    """Return depth, leaves and largest node number over the trees of one round.

    Depth counts edges from the root: a stump has depth 1. Nodes are numbered as in XGBoost: those
    below n are 2n + 1 and 2n + 2.
    """
    depth = leaves = largest = trees = 0
    for part in _TREE.split(text)[1:]:
        fields = {name: f"{first}{rest}" for name, first, rest in _FIELD.findall(part)}
        trees += 1
        leaves = max(leaves, int(fields.get("num_leaves", 0)))
        below = zip(
            _numbers(fields.get("left_child", "")),
            _numbers(fields.get("right_child", "")),
            strict=True,
        )
        levels, numbers = {0: 0}, {0: 0}
        for node, children in enumerate(below):  # a node stands before those below it
            for side, child in enumerate(children, 1):
                number = min(2 * numbers[node] + side, _LARGEST)
                depth, largest = max(depth, levels[node] + 1), max(largest, number)
                if child >= 0:  # others are leaves
                    levels[child], numbers[child] = levels[node] + 1, number
    if not trees:
        return {}
    return {
        "depth": float(depth),
        "leaves": float(leaves),
        "largest_node": float(largest),
        "trees": float(trees),
    }


def _numbers(text: str) -> list[int]:
    return [int(word) for word in text.split()]
