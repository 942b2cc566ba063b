"""Adds our callback to the trainings of boosted models."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from trainwarden.hook.saying import say
from trainwarden.model import Json

_WHERE = ("", ".sklearn")  # modules of the package that hold ``train`` by this name


def xgboost(options: Mapping[str, Json]) -> None:
    """Watch each ``xgboost.train`` without a callback of ours, scikit-learn's estimators too."""
    from trainwarden.hook.xgboost import XGBoostCallback

    def watched(dtrain: Any) -> Any:
        return XGBoostCallback(dtrain, **options)

    _patch("xgboost", XGBoostCallback, watched)


def lightgbm(options: Mapping[str, Json]) -> None:
    """Watch each ``lightgbm.train`` without a callback of ours, scikit-learn's estimators too."""
    from trainwarden.hook.lightgbm import LightGBMCallback

    def watched(train_set: Any) -> Any:
        return LightGBMCallback(train_set, **options)

    _patch("lightgbm", LightGBMCallback, watched)


def _patch(package: str, ours: type, watched: Callable[[Any], Any]) -> None:
    original = importlib.import_module(package).train
    shape = inspect.signature(original)

    @functools.wraps(original)
    def train(*args: Any, **kwargs: Any) -> Any:
        given = list(kwargs.get("callbacks") or ())
        callback = None if any(isinstance(one, ours) for one in given) else made(*args, **kwargs)
        if callback is None:
            return original(*args, **kwargs)
        try:
            return original(*args, **{**kwargs, "callbacks": [*given, callback]})
        finally:
            callback.close()

    def made(*args: Any, **kwargs: Any) -> Any:
        try:
            _, data, *_ = shape.bind(*args, **kwargs).arguments.values()
            return watched(data)
        except Exception as error:  # noqa: BLE001 - it must not end the training
            say(f"this training is not watched by itself: {type(error).__name__}: {error}")
            return None

    for where in _WHERE:
        module = importlib.import_module(f"{package}{where}")
        if getattr(module, "train", None) is original:
            module.train = train  # type: ignore[attr-defined]
