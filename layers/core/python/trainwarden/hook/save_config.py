"""``SaveConfig`` and ``SaveConfigMode``: which steps are saved, in SageMaker Debugger's words.

A step is saved if it is one of ``save_steps``, or if ``start_step <= step < end_step`` and
``save_interval`` divides it. Source: the API page of smdebug, ``SaveConfig``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from trainwarden.errors import ConfigError
from trainwarden.hook.schedule import Schedule
from trainwarden.model import TRAIN, Json, Mode

INTERVAL = 500  # smdebug's default
FIELDS = ("save_interval", "start_step", "end_step", "save_steps")


@dataclass(frozen=True)
class SaveConfigMode:
    """Which steps of one mode are saved.

    Attributes:
        save_interval: Steps from one saved step to the next.
        start_step: First step that is saved.
        end_step: First step that is not saved any more; None for no end.
        save_steps: Saved in any case.

    Raises:
        ConfigError: a value that is no whole number in its range.
    """

    save_interval: int = INTERVAL
    start_step: int = 0
    end_step: int | None = None
    save_steps: Iterable[int] | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be a schedule, where it is written."""
        self.schedule()

    def schedule(self, *, dense: int = 0) -> Schedule:
        """Return the schedule, with ``dense`` steps before it that are saved in any case."""
        return Schedule(
            interval=self.save_interval,
            dense=dense,
            first=self.start_step,
            end=self.end_step,
            steps=frozenset(self.save_steps or ()),
        )


class SaveConfig:
    """Which steps are saved, of training alone or mode by mode.

    Steps of TRAIN are optimizer steps; of EVAL whole evaluation passes are counted, and without a
    word on them each is saved. Other modes are not saved.

    Args:
        save_interval: Steps from one saved step to the next, or a mapping of modes to their
            ``SaveConfigMode``; modes that it lacks keep the defaults of ``watch``.
        start_step: First step that is saved.
        end_step: First step that is not saved any more; None for no end.
        save_steps: Saved in any case.

    Raises:
        ConfigError: a value that is no whole number in its range; a mode that does not exist.
    """

    def __init__(
        self,
        save_interval: int | Mapping[Mode | str, SaveConfigMode] = INTERVAL,
        start_step: int = 0,
        end_step: int | None = None,
        save_steps: Iterable[int] | None = None,
    ) -> None:
        self.modes: dict[Mode, SaveConfigMode] = {}
        if isinstance(save_interval, Mapping):
            for mode, config in save_interval.items():
                self.modes[_mode(mode)] = _checked(config)
        else:
            self.modes[TRAIN] = SaveConfigMode(save_interval, start_step, end_step, save_steps)

    def __repr__(self) -> str:
        """Show what was asked for."""
        return f"SaveConfig({self.modes})"


def of_job(parameters: Mapping[str, Json]) -> SaveConfig | None:
    """Read ``HookParameters`` of a job's ``DebugHookConfig``: strings, as SageMaker passes them.

    Those of ``train.`` go before those of all modes. Those of ``eval.`` count batches, where we
    save a whole pass as one observation: they have no meaning here.

    Raises:
        ConfigError: a value that is no whole number.
    """
    given = {
        name: _numbers(name, parameters[key])
        for name in FIELDS
        for key in (name, f"train.{name}")
        if key in parameters
    }
    return SaveConfig({TRAIN: SaveConfigMode(**given)}) if given else None


def _numbers(name: str, value: Json) -> Json:
    texts = [text.strip() for text in str(value).strip("[] ").split(",")]
    if name == "end_step" and texts == ["None"]:
        return None
    if not all(text.isdecimal() for text in texts) or (name != "save_steps" and len(texts) > 1):
        raise ConfigError(f"{name} of HookParameters to be a whole number", repr(value))
    numbers = [int(text) for text in texts]
    return numbers if name == "save_steps" else numbers[0]


def _mode(given: Mode | str) -> Mode:
    name = str(getattr(given, "name", given)).upper()  # smdebug's ModeKeys, too
    if name not in Mode.__members__:
        raise ConfigError("a mode out of " + ", ".join(Mode.__members__), repr(given))
    return Mode[name]


def _checked(config: SaveConfigMode) -> SaveConfigMode:
    if not isinstance(config, SaveConfigMode):
        raise ConfigError("a SaveConfigMode for each mode", type(config).__name__)
    return config
