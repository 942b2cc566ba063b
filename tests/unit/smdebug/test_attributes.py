"""Attributes survive JSON as they were."""

from __future__ import annotations

import json
import math
import re
from collections import Counter, OrderedDict, defaultdict, deque

import numpy as np
import pytest

from trainwarden.smdebug.attributes import CannotKeepError, decode, encode


def through(value: object) -> object:
    return decode(json.loads(json.dumps(encode(value), allow_nan=False)))


@pytest.mark.parametrize(
    "value",
    [
        None, True, 3, 0.5, "text", math.inf, [1, [2, "x"]], {"a": {"b": 1}}, {3: "c", (1, 2): "d"},
        {"$": "no kind"}, (1, (2, 3)), {1, 2}, frozenset({"a"}), deque([1, 2], maxlen=2),
        defaultdict(list, {"a": [1]}), Counter("hello"), OrderedDict([("b", 1), ("a", 2)]), {},
    ],
)  # fmt: skip
def test_a_value_comes_back_with_its_type(value: object) -> None:
    found = through(value)
    assert found == value
    assert type(found) is type(value)


def test_numbers_of_numpy_become_pythons_and_arrays_stay() -> None:
    assert through(np.float32(0.5)) == 0.5
    found = through(np.array([[1.0, math.nan]], dtype=np.float32))
    assert isinstance(found, np.ndarray)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, [[1.0, math.nan]])
    factory = through(defaultdict(int))
    assert isinstance(factory, defaultdict)
    assert factory["new"] == 0


@pytest.mark.parametrize(
    "value",
    [re.compile("a"), object(), lambda: 0, [open], defaultdict(lambda: 3), np.zeros(20_000)],
)
def test_what_json_cannot_hold_is_told(value: object) -> None:
    with pytest.raises(CannotKeepError):
        encode(value)


def test_something_that_holds_itself_is_told() -> None:
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(CannotKeepError, match="nested"):
        encode(endless)
