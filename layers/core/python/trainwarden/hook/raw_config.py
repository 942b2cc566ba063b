"""``RawConfig``: which tensors are kept as they are, and when."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from trainwarden.hook.collection_config import ALIASES, ALL, check_collection, pattern, texts
from trainwarden.hook.save_config import SaveConfigMode
from trainwarden.model import TensorInfo


class RawConfig:
    """Tensors that are kept as they are, beside their statistics. What is given narrows it down.

    Args:
        collections: Only tensors of these collections. Inputs, outputs and labels, which may be
            personal data, are kept only if their collection is named here.
        include: Only tensors whose name one of these regular expressions matches.
        modules: Only tensors of modules whose path one of these regular expressions matches.
        save_interval: Steps from one to the next; None for every saved step, or for none but
            ``save_steps`` if those are given.
        start_step: First step.
        end_step: First step that is not meant any more.
        save_steps: In any case.

    Raises:
        ConfigError: something that cannot be meant, with the nearest that can.
    """

    def __init__(  # noqa: PLR0913 - each narrows down
        self,
        collections: str | Sequence[str] = (),
        include: str | Sequence[str] = (),
        modules: str | Sequence[str] = (),
        *,
        save_interval: int | None = None,
        start_step: int = 0,
        end_step: int | None = None,
        save_steps: Iterable[int] = (),
    ) -> None:
        self.collections = frozenset(ALIASES.get(name, name) for name in texts(collections))
        for name in self.collections:
            check_collection(name, strictly=False)
        self.include = tuple(pattern(text) for text in texts(include))
        self.modules = tuple(pattern(text) for text in texts(modules))
        steps = frozenset(save_steps)
        asked = SaveConfigMode(save_interval or 1, start_step, end_step, steps).schedule()
        self._schedule, self._steps = asked, steps
        self._named_only = save_interval is None and bool(steps)
        self._demands = save_interval is not None

    def wants(self, step: int) -> bool:
        """Say whether tensors of a saved step are kept."""
        return step in self._steps if self._named_only else self._schedule.saves(step)

    def demands(self, step: int) -> bool:
        """Say whether a step is saved for it."""
        return step in self._steps or (self._demands and self._schedule.saves(step))

    def chooses(self, info: TensorInfo, usual: Collection[str]) -> bool:
        """Say whether a tensor is kept; ``usual`` are collections that need not be named."""
        names = {str(info.collection), *info.also}
        if self.collections and ALL not in self.collections:
            if not names & self.collections:
                return False
        elif str(info.collection) not in usual:
            return False
        if self.include and not any(one.search(info.name) for one in self.include):
            return False
        return not self.modules or any(one.search(info.module) for one in self.modules)
