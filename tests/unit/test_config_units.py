"""Durations and percentages are numbers only where the parameter has that unit."""

from __future__ import annotations

import pytest

from trainwarden.config.units import Unit, read, unit_of
from trainwarden.errors import ConfigError
from trainwarden.rules import parameters, registry


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("30m", 1800.0),
        ("30 min", 1800.0),
        ("1h30m", 5400.0),
        ("90s", 90.0),
        ("0.5h", 1800.0),
        ("1d", 86_400.0),
    ],
)
def test_a_duration_is_read_in_seconds(written: str, seconds: float) -> None:
    assert read(written, Unit.SECONDS) == seconds


@pytest.mark.parametrize(
    ("written", "unit", "number"),
    [
        ("50%", Unit.PERCENT, 50.0),
        ("0.5 %", Unit.PERCENT, 0.5),
        ("50percent", Unit.PERCENT, 50.0),
        ("50%", Unit.SHARE, 0.5),
        ("-3%", Unit.SHARE, -0.03),
    ],
)
def test_a_percentage_is_read_in_the_unit_of_the_parameter(
    written: str, unit: Unit, number: float
) -> None:
    assert read(written, unit) == number


@pytest.mark.parametrize(
    ("written", "unit"),
    [
        ("30m", Unit.NONE),
        ("30m", Unit.PERCENT),
        ("50%", Unit.NONE),
        ("50%", Unit.SECONDS),
    ],
)
def test_a_unit_that_the_parameter_does_not_have_is_refused(written: str, unit: Unit) -> None:
    with pytest.raises(ConfigError) as caught:
        read(written, unit)
    assert caught.value.expected == unit.value
    assert caught.value.found == repr(written)


@pytest.mark.parametrize("raw", ["1e-7", "true", "", "1 2", "m", "%", 3, 0.5, True, None, ["30m"]])
def test_anything_without_a_unit_comes_back_as_it_was(raw: object) -> None:
    assert read(raw, Unit.SECONDS) == raw


@pytest.mark.parametrize(
    ("rule", "parameter", "unit"),
    [
        ("StalledTrainingRule", "threshold", Unit.SECONDS),
        ("DeadRelu", "threshold_layer", Unit.PERCENT),
        ("LossNotDecreasing", "diff_percent", Unit.PERCENT),
        ("Overfit", "ratio_threshold", Unit.SHARE),
        ("UnchangedTensor", "share", Unit.SHARE),
        ("VanishingGradient", "threshold", Unit.NONE),
        ("Overfit", "patience", Unit.NONE),
    ],
)
def test_a_parameter_says_its_unit(rule: str, parameter: str, unit: Unit) -> None:
    found = {p.name: p for p in parameters(registry()[rule])}[parameter]
    assert unit_of(found) is unit
