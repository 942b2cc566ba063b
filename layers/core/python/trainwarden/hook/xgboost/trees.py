"""Shape of the trees of a round, and what the features are worth so far."""

from __future__ import annotations

import re

import xgboost

from trainwarden.hook.boosted.rounds import largest_shares

IMPORTANCES = ("weight", "gain", "cover", "total_gain", "total_cover")
_NODE = re.compile(r"^(\t*)(\d+):(leaf=|\[)", re.MULTILINE)


def shape(model: xgboost.Booster, position: int) -> dict[str, float]:
    """Return depth, leaves and largest node number over the trees of one round.

    Depth counts edges from the root: a stump has depth 1. Node numbers are XGBoost's own.
    Linear boosters have no trees: nothing is returned.
    """
    try:
        dumped = model[position : position + 1].get_dump(dump_format="text")
    except (xgboost.core.XGBoostError, IndexError, ValueError):
        return {}  # a linear booster cannot be sliced
    depth = leaves = largest = trees = 0
    for text in dumped:
        nodes = _NODE.findall(text)
        trees += bool(nodes)
        depth = max([depth, *(len(tabs) for tabs, _, _ in nodes)])
        leaves = max(leaves, sum(kind == "leaf=" for _, _, kind in nodes))
        largest = max([largest, *(int(number) for _, number, _ in nodes)])
    if not trees:
        return {}
    return {
        "depth": float(depth),
        "leaves": float(leaves),
        "largest_node": float(largest),
        "trees": float(trees),
    }


def importances(model: xgboost.Booster) -> dict[str, float]:
    """Return each kind's largest importances as shares of their sum: ``gain/age`` → 0 to 1.

    ``KIND/`` followed by nothing is the number of features with any importance.
    """
    found: dict[str, float] = {}
    for kind in IMPORTANCES:
        try:
            scores = model.get_score(importance_type=kind)
        except (xgboost.core.XGBoostError, ValueError):
            return {}  # a linear booster knows weights only
        found.update(
            largest_shares(
                kind, {n: float(v[0] if isinstance(v, list) else v) for n, v in scores.items()}
            )
        )
    return found
