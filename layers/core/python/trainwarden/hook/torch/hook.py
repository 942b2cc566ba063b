"""The public face of the PyTorch hook: ``watch`` and ``Hook``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from trainwarden.errors import BadInputError, ConfigError
from trainwarden.hook import starting
from trainwarden.hook.collection_config import CollectionConfig
from trainwarden.hook.collections import Collections
from trainwarden.hook.exits import EXITS, reason_of
from trainwarden.hook.raw_config import RawConfig
from trainwarden.hook.save_config import SaveConfig
from trainwarden.hook.saying import say
from trainwarden.hook.session import Session
from trainwarden.hook.torch.modules import Roots
from trainwarden.hook.torch.ranks import of_a_part, ranked, team_of
from trainwarden.hook.torch.steps import Steps
from trainwarden.hook.uploader import Limits
from trainwarden.model import Json
from trainwarden.store.ports import ObjectStore


class Hook:
    """A running watch; made by ``watch``. All its methods are safe to call at any time.

    Use it as a context manager, or call ``close`` at the end; a process that just ends is closed
    too.

    Attributes:
        collections: To add collections of your own.
    """

    def __init__(self, session: Session | None, steps: Steps | None, loss_fn: Any = None) -> None:
        self._session, self._steps, self._loss_fn = session, steps, loss_fn
        self.collections = Collections(session, None if steps is None else steps.name_of)

    @property
    def job(self) -> str:
        """Name of the job; empty if nothing is watched."""
        return self._session.uploader.job if self._session else ""

    @property
    def step(self) -> int:
        """Optimizer steps so far, those that GradScaler skipped included."""
        return self._steps.step if self._steps else 0

    @property
    def active(self) -> bool:
        """False after ``close``, and after an error that switched capture off."""
        return self._session is not None and self._session.active

    @property
    def stop_requested(self) -> bool:
        """True once the cloud asked the loop to end: save a checkpoint and leave."""
        return self._session is not None and self._session.stop_requested

    @property
    def step_saved(self) -> bool:
        """True if the step made last is saved: what is recorded now goes with it."""
        return self._steps is not None and self._steps.drafts.made

    def record(self, name: str, value: Any, collection: str = "metrics") -> None:
        """Save a number, or the statistics of a tensor, with the step it belongs to.

        After ``optimizer.step()`` that is the step just made, before it the step to come; during
        evaluation the evaluation pass. A number recorded at a step that is not saved goes with the
        next saved one, the last value winning; a tensor is then left out.

        Args:
            name: At most 200 characters.
            value: A number, a tensor or array.
            collection: ``metrics``, ``losses``, … or a name of your own.
        """
        if self._session is not None and self._steps is not None:
            self._session.guarded(self._record, self._session, self._steps, name, value, collection)

    def _record(
        self, session: Session, steps: Steps, name: str, value: Any, collection: str
    ) -> None:
        known, text, group = _as_tensor(value), _as_text(name), _as_text(collection)
        if known is None or not 0 < len(text) <= 200 or not group or known.is_complex():  # noqa: PLR2004 - as documented
            session.trouble(
                BadInputError(
                    "record(name of 1 to 200 characters, number or tensor)",
                    f"record({text[:40]!r}, {type(value).__name__})",
                )
            )
            return
        known = known.detach()
        if isinstance(value, torch.Tensor) and known.numel() == 1:
            known = known.clone()
        steps.drafts.record(text, known, group, steps.mode)

    def loss(self, *args: Any, **kwargs: Any) -> Any:
        """Call the ``loss_fn`` given to ``watch`` and keep its value: for plain functions."""
        if self._loss_fn is None:
            raise ConfigError("watch(…, loss_fn=function)", "none", "pass the function to watch")
        result = self._loss_fn(*args, **kwargs)
        if (
            self._session is not None
            and self._steps is not None
            and not isinstance(self._loss_fn, nn.Module)
        ):
            self._session.guarded(self._steps.losses.add, args, result)
        return result

    def add_up(self) -> None:
        """Take the sum of what ``backward()`` is called on in a step for its loss.

        For frameworks that divide the losses of micro-batches themselves.
        """
        if self._steps is not None:
            self._steps.losses.adds_up = True

    def ended_by_caller(self) -> None:
        """Leave the end of the loop to whoever looks at ``stop_requested`` after each step."""
        if self._session is not None:
            self._session.stopping.by_caller = True

    def flush(self, timeout_s: float = 10.0) -> bool:
        """Upload what is complete now; True if it was stored within ``timeout_s`` seconds."""
        return self._session is not None and self._session.flush(timeout_s)

    def close(self, reason: str = "finished") -> None:
        """Take all hooks out and upload what is left; a second call does nothing.

        Args:
            reason: ``finished``, ``failed`` or ``stopped``.
        """
        session = self._session
        if session is not None:
            EXITS.forget(session)
            session.close(reason)

    def __enter__(self) -> Hook:  # noqa: PYI034 - typing.Self needs Python 3.11
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(reason_of(kind))

    def __deepcopy__(self, memo: dict[int, Any]) -> Hook:
        return Hook(None, None, self._loss_fn)

    def __reduce__(self) -> tuple[Any, ...]:
        return Hook, (None, None)


def _as_tensor(value: Any) -> torch.Tensor | None:
    """Return a number, tensor or array as a tensor, numbers exactly; None for anything else."""
    if isinstance(value, torch.Tensor):
        return None if is_lazy(value) or value.is_meta else value
    try:
        return (
            torch.tensor(value, dtype=torch.float64)
            if np.ndim(value) == 0
            else torch.as_tensor(value)
        )
    except Exception:  # noqa: BLE001 - the user's ``__array__`` or ``__len__`` may raise anything
        return None


def _as_text(value: Any) -> str:
    """Return a name; empty if it cannot be read."""
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - the user's ``__str__`` may raise anything
        return ""


def watch(  # noqa: PLR0913 - one keyword for each documented option
    model: nn.Module | Mapping[str, nn.Module],
    optimizer: Optimizer | Sequence[Optimizer] | None = None,
    loss_fn: nn.Module | Callable[..., Any] | None = None,
    *,
    job: str | None = None,
    out: str | os.PathLike[str] | None = None,
    save_interval: int | None = None,
    dense_steps: int | None = None,
    start_step: int = 0,
    end_step: int | None = None,
    save_steps: Iterable[int] | None = None,
    max_steps: int | None = None,
    exact_interval: int | None = None,
    save_config: SaveConfig | None = None,
    max_overhead: float | None = None,
    collections: Iterable[str] | None = None,
    collection_configs: Sequence[CollectionConfig] | None = None,
    raw: RawConfig | Sequence[RawConfig] | None = None,
    include: str | Sequence[str] | None = None,
    exclude: str | Sequence[str] | None = None,
    updates: bool | None = None,
    activation_modules: str | None = None,
    evaluation: bool | None = None,
    rules: Json = None,
    on_stop: Callable[[str], object] | None = None,
    stop: str | None = None,
    strict: bool = False,
    close_timeout_s: float | None = None,
    max_pending_bytes: int | None = None,
    _store: ObjectStore | None = None,
    _limits: Limits | None = None,
) -> Hook:
    """Watch a training run: capture statistics and upload them in the background.

    Every argument after ``loss_fn`` is optional; on SageMaker job and bucket are found. It never
    raises into the training and never waits for the network, unless ``strict``.

    Args:
        model: The module that is trained, or several by name: ``{"g": generator, "d": …}``.
        optimizer: Its optimizer, or several; the first one counts the steps. None to find them.
        loss_fn: Loss module or function; None to find the loss.
        job: Job name: letters, digits and hyphens, at most 63.
        out: ``s3://bucket`` or a folder.
        save_interval: Steps from one saved step to the next; 10.
        dense_steps: Steps saved without gaps at the beginning; 10.
        start_step: Number of the first step, when resuming from a checkpoint.
        end_step: First step that is not saved any more.
        save_steps: Steps that are saved in any case.
        exact_interval: Of the saved steps those that it divides are measured whole, the others
            from samples of large tensors.
        max_steps: Length of the run: its first and its last tenth are saved ten times as often.
        save_config: All of these in SageMaker Debugger's words, mode by mode.
        max_overhead: Share of the time that saved steps may take, others are left out; 0.02.
        collections: What is captured, out of weights, biases, gradients, activations, inputs,
            outputs, labels, losses, optimizer, loop, objective, batch, window, buffers, history;
            all.
        collection_configs: Steps, raw tensors and members of single collections.
        raw: Tensors that are kept as they are beside their statistics.
        include: Regular expressions: only tensors whose name matches one.
        exclude: Regular expressions: no tensors whose name matches one.
        updates: Measure the change of the weights; needs a copy of them in memory; True.
        activation_modules: Regular expression of module paths whose outputs are activations; all
            modules that are activation functions.
        evaluation: Save each evaluation pass; True.
        rules: Rules for this job, as in docs/job-configuration.md.
        on_stop: Called with the reason, after a step, when somebody asks the run to stop.
        stop: ``allow`` to end the loop then, by StopTraining; else ``stop_requested`` is all.
        strict: Raise on trouble and wait for uploads at the end.
        close_timeout_s: Longest wait for the last uploads at the end; 20.
        max_pending_bytes: What may wait for upload in memory; 64 MiB.
    """
    asked = {
        "save_interval": save_interval,
        "dense_steps": dense_steps,
        "start_step": start_step,
        "end_step": end_step,
        "save_steps": save_steps,
        "max_steps": max_steps,
        "exact_interval": exact_interval,
        "save_config": save_config,
        "max_overhead": max_overhead,
        "collections": collections,
        "collection_configs": collection_configs,
        "raw": raw,
        "include": include,
        "exclude": exclude,
        "updates": updates,
        "activation_modules": activation_modules,
        "evaluation": evaluation,
        "rules": rules,
        "stop": stop,
        "strict": strict,
        "close_timeout_s": close_timeout_s,
        "max_pending_bytes": max_pending_bytes,
    }
    try:
        settings, place = starting.settings(asked, job, out, strict=strict)
        place, roots = ranked(place), _roots(model)
        team = team_of(place, roots)
        if place.worker and team is None:
            return Hook(None, None, loss_fn)  # data parallel: rank 0 has the same gradients
        if place.worker:
            settings = of_a_part(settings)
        session = starting.session(
            settings,
            place,
            framework=f"torch {torch.__version__}",
            versions={"torch": torch.__version__, "cuda": torch.version.cuda or ""},
            store=_store,
            limits=_limits,
            team=team,
        )
        steps = Steps(session, roots, _optimizers(optimizer), loss_fn)
        session.stopping.on_stop = on_stop
        session.connect(steps, steps.leftovers())
        EXITS.follow(session)
        session.guarded(steps.attach)
    except Exception as error:  # whatever it is, it must not end the training
        if strict:
            raise
        say(f"training is not watched: {error}")
        return Hook(None, None, loss_fn)
    return Hook(session, steps, loss_fn)


def _roots(model: nn.Module | Mapping[str, nn.Module]) -> Roots:
    roots = dict(model) if isinstance(model, Mapping) else {"": model}
    for name, root in roots.items():
        if not isinstance(root, nn.Module):
            raise BadInputError("a torch.nn.Module, or several by name", type(root).__name__, name)
    return roots


def _optimizers(given: Any) -> list[Optimizer]:
    if given is None:
        return []
    found = []
    for optimizer in given if isinstance(given, list | tuple) else [given]:
        inner = optimizer
        while not _is_optimizer(inner) and hasattr(inner, "optimizer"):
            inner = inner.optimizer  # wrappers of accelerate and others
        if not _is_optimizer(inner):
            raise BadInputError("a torch.optim.Optimizer", type(optimizer).__name__)
        found.append(inner)
    return found


def _is_optimizer(given: Any) -> bool:
    """Say whether it can be hooked: accelerate's wrapper says it is one, and was never made."""
    return isinstance(given, Optimizer) and hasattr(given, "_optimizer_step_pre_hooks")
