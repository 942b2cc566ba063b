"""What every framework's adapter does before it looks at its first step."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from trainwarden.errors import BadInputError, ConfigError
from trainwarden.hook import config
from trainwarden.hook.collection_config import CollectionConfig, configs_of_job
from trainwarden.hook.exits import EXITS
from trainwarden.hook.options import Options, options
from trainwarden.hook.save_config import FIELDS, of_job
from trainwarden.hook.saying import say
from trainwarden.hook.schedule import Schedule
from trainwarden.hook.session import Session
from trainwarden.hook.team import Team
from trainwarden.hook.uploader import Limits
from trainwarden.model import Json
from trainwarden.store.ports import ObjectStore

STOP_VARIABLE = "TRAINWARDEN_STOP"


def settings(
    asked: Mapping[str, Json], job: str | None, out: str | os.PathLike[str] | None, *, strict: bool
) -> tuple[Options, config.Place]:
    """Check what was asked for and find where it goes.

    Raises:
        ConfigError: a wrong argument of a strict run; otherwise it is said, and the default taken.
    """

    def report(message: str) -> None:
        if strict:
            raise ConfigError("arguments of watch()", message)
        say(message)

    place = config.discover(job, out, report=report)
    return options(_with_the_jobs(asked, report), report=report), place


def _with_the_jobs(asked: Mapping[str, Json], report: Callable[[str], None]) -> dict[str, Json]:
    """Add what the environment says of stops, and ``DebugHookConfig`` of saved steps.

    What the script says goes before.
    """
    given = {name: value for name, value in asked.items() if value is not None}
    if stop := os.environ.get(STOP_VARIABLE):
        given.setdefault("stop", stop)
    if configs := _configs_of_job(given.get("collection_configs"), report):
        given["collection_configs"] = configs
    if given.keys() & {*FIELDS[:1], *FIELDS[2:], "save_config"}:
        return given
    try:
        wanted = of_job(config.hook_parameters())
    except ConfigError as error:
        report(f"DebugHookConfig: {error}")
        wanted = None
    # The first steps cost little, and most faults show in them.
    own = {} if wanted is None else {"dense_steps": Schedule.dense, "save_config": wanted}
    return {**own, **given}


def _configs_of_job(said: Json, report: Callable[[str], None]) -> list[Json]:
    """Return ``CollectionConfigurations`` of the job behind what the script says."""
    own: list[Json] = list(said) if isinstance(said, list | tuple) else [said] if said else []
    names = {getattr(one, "name", "") for one in own}
    listed = configs_of_job(config.collection_configurations(), config.hook_parameters())
    found = [_config_of_job(name, parameters, report) for name, parameters in listed]
    return own + [one for one in found if one is not None and one.name not in names]


def _config_of_job(
    name: str, parameters: Mapping[str, Json], report: Callable[[str], None]
) -> CollectionConfig | None:
    try:
        return CollectionConfig(name, parameters)
    except ConfigError as error:
        report(f"DebugHookConfig: {error}")
        return None


def session(  # noqa: PLR0913 - collaborators, each named
    options: Options,
    place: config.Place,
    *,
    framework: str,
    versions: Mapping[str, str],
    store: ObjectStore | None = None,
    limits: Limits | None = None,
    team: Team | None = None,
) -> Session:
    """Open the session of one worker.

    Args:
        options: What is captured.
        place: Job, destination, rank.
        framework: Name and version for the manifest.
        versions: Of what else matters: library → version.
        store: Where to write; None to open what ``place`` names.
        limits: Upload limits.
        team: Other processes that record parts of the same model.

    Raises:
        BadInputError: this process watches the job already.
    """
    for other in EXITS.sessions:
        if other.active and (other.place.job, other.place.out) == (place.job, place.out):
            raise BadInputError(
                "one watch for a job",
                f"a second one for {place.job}",
                "watch several modules in one call: watch({'g': generator, 'd': critic}, [a, b])",
            )
    return Session(
        options,
        place,
        framework=framework,
        environment=config.environment(dict(versions), place),
        store=store,
        limits=limits,
        team=team,
    )
