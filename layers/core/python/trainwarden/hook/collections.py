"""``hook.collections``: collections that a script adds to a run."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from trainwarden.errors import ConfigError
from trainwarden.hook.collection_config import CollectionConfig, ReductionConfig
from trainwarden.hook.save_config import SaveConfig
from trainwarden.hook.session import Session


class Collections:
    """Adds collections of your own.

    Args:
        session: Of the run; None if nothing is watched.
        name_of: Returns what the run calls a module (its path) or a parameter, and whether it is
            a module; None for anything else. Without it there are names only.
    """

    def __init__(
        self,
        session: Session | None,
        name_of: Callable[[Any], tuple[str, bool] | None] | None = None,
    ) -> None:
        self._session, self._name_of = session, name_of or (lambda _: None)

    def add(
        self,
        name: str,
        include: Any,
        *,
        save_config: SaveConfig | None = None,
        reduction_config: ReductionConfig | None = None,
    ) -> None:
        """Add a collection, before the first step is made.

        Args:
            name: Of your own.
            include: What is in it, one or several: regular expressions for names of tensors,
                modules (what they return is captured), parameters.
            save_config: Steps at which it is saved, in place of those of ``watch``.
            reduction_config: Whether its tensors are kept as they are.
        """
        session = self._session
        if session is None:
            return
        found = session.guarded(self._config, name, include, save_config, reduction_config)
        if isinstance(found, ConfigError):
            session.trouble(found)
        elif found is not None:
            session.guarded(session.configure, found)

    def _config(
        self,
        name: str,
        include: Any,
        save_config: SaveConfig | None,
        reduction_config: ReductionConfig | None,
    ) -> CollectionConfig | ConfigError:
        given = list(include) if isinstance(include, list | tuple | set) else [include]
        named = [self._name_of(one) for one in given if not isinstance(one, str)]
        if None in named:
            expected = "regular expressions, or modules and parameters of the watched model"
            return ConfigError(expected, repr(given)[:200])
        try:
            return CollectionConfig(
                name,
                include_regex=[one for one in given if isinstance(one, str)],
                tensor_names=[one[0] for one in named if one and not one[1]],
                modules=[f"^{re.escape(one[0])}$" for one in named if one and one[1]],
                save_config=save_config,
                reduction_config=reduction_config,
            )
        except ConfigError as error:
            return error
