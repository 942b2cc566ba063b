"""A session with its adapter, for frameworks that call us: opened, used and closed in safety."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from trainwarden.hook import starting
from trainwarden.hook.exits import EXITS
from trainwarden.hook.saying import say
from trainwarden.hook.session import Adapter, Session
from trainwarden.hook.uploader import Limits
from trainwarden.model import Json
from trainwarden.store.ports import ObjectStore

A = TypeVar("A", bound=Adapter)


class Target(NamedTuple):
    """Where a run goes: ``store`` and ``limits`` are for tests."""

    job: str | None
    out: str | os.PathLike[str] | None
    store: ObjectStore | None = None
    limits: Limits | None = None


class Watching(Generic[A]):
    """One watched run; without a session, if it could not be opened, each call does nothing.

    Args:
        asked: Options, as ``options.options`` takes them; ``strict`` among them.
        target: Where it goes.
        library: Name and version of the framework, for the manifest.
        adapter: Makes what follows the training.
        ends: The framework's callback ends the training when ``stopping``.
    """

    def __init__(
        self,
        asked: Mapping[str, Json],
        target: Target,
        library: tuple[str, str],
        adapter: Callable[[Session], A],
        *,
        ends: bool = False,
    ) -> None:
        self.session: Session | None = None
        self.adapter: A | None = None
        strict = bool(asked.get("strict"))
        name, version = library
        try:
            options, place = starting.settings(asked, target.job, target.out, strict=strict)
            session = starting.session(
                options,
                place,
                framework=f"{name} {version}",
                versions={name: version},
                store=target.store,
                limits=target.limits,
            )
            session.stopping.by_caller = ends
            self.adapter = adapter(session)
            session.connect(self.adapter, lambda: None)
            EXITS.follow(session)
            self.session = session
        except Exception as error:  # whatever it is, it must not end the training
            if strict:
                raise
            say(f"training is not watched: {error}")

    @property
    def job(self) -> str:
        """Name of the job; empty if nothing is watched."""
        return self.session.uploader.job if self.session else ""

    @property
    def stopping(self) -> bool:
        """True once the cloud has asked for the end of the training."""
        return self.session is not None and self.session.stop_requested

    def call(self, method: Callable[..., object], *arguments: Any) -> None:
        """Call a method of the adapter's class; errors never reach the training, unless strict."""
        if self.session is not None and self.adapter is not None:
            self.session.guarded(method, self.adapter, *arguments)

    def close(self, reason: str = "finished") -> None:
        """Upload what is left and write the end object; a second call does nothing."""
        if self.session is not None:
            EXITS.forget(self.session)
            self.session.close(reason)


class Immediate:
    """An adapter that submits every draft at once and hangs in nothing."""

    def detach(self) -> None:
        """Nothing hangs in the framework."""

    def settle(self) -> None:
        """Every draft was submitted."""

    def finish(self) -> None:
        """Every draft was submitted."""
