"""Adds our callback to the trainings of Keras models."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from typing import Any

import keras

from trainwarden.hook.exits import reason_of
from trainwarden.hook.keras import KerasCallback
from trainwarden.hook.saying import say
from trainwarden.model import Json


def watch_fits(options: Mapping[str, Json]) -> None:
    """Watch each ``fit`` without a callback of ours."""
    original = keras.Model.fit
    shape = inspect.signature(original)

    @functools.wraps(original)
    def fit(*args: Any, **kwargs: Any) -> Any:
        try:
            call, callback = _with_ours(shape.bind(*args, **kwargs), options)
        except Exception as error:  # noqa: BLE001 - it must not end the training
            say(f"this training is not watched by itself: {type(error).__name__}: {error}")
            return original(*args, **kwargs)
        try:
            return original(*call.args, **call.kwargs)
        except BaseException as error:
            callback.close(reason_of(type(error)))
            raise

    keras.Model.fit = fit


def _with_ours(
    call: inspect.BoundArguments, options: Mapping[str, Json]
) -> tuple[inspect.BoundArguments, KerasCallback]:
    """Return a call of ``fit`` with a callback of ours, and that; one that is there is used."""
    given = call.arguments.get("callbacks") or []
    if isinstance(given, keras.callbacks.CallbackList):
        known = list(given.callbacks)
    else:
        known = list(given) if isinstance(given, list | tuple) else [given]
    for one in known:
        if isinstance(one, KerasCallback):
            return call, one
    if isinstance(given, keras.callbacks.CallbackList):
        raise TypeError("callbacks are a CallbackList: add trainwarden.KerasCallback to it")
    x = call.arguments.get("x")
    table = x if hasattr(x, "__array__") else None
    callback = KerasCallback(inputs=table, **options)
    call.arguments["callbacks"] = [*known, callback]
    return call, callback
