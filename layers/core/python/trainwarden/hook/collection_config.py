"""``CollectionConfig`` and ``ReductionConfig``: what is kept of single collections.

In SageMaker Debugger's words, with its meaning: a tensor is saved at a step if one
of its collections is. All reductions are always recorded, so that of a ``ReductionConfig`` only
``save_raw_tensor`` has an effect. Source: the API page of smdebug, ``Collection``.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from trainwarden.errors import ConfigError
from trainwarden.hook.save_config import FIELDS, SaveConfig, of_job
from trainwarden.model import Collection, Json

ALL = "all"  # smdebug's collection of every tensor
ALIASES = {
    "optimizer_variables": "optimizer",
    "layers": "activations",
    "predictions": "outputs",
    "sm_metrics": "metrics",
}
_REDUCTIONS = ("min", "max", "mean", "std", "variance", "sum", "prod")
_NORMS = ("l1", "l2")
_MODES = ("train", "eval", "predict", "global")
_SWITCHES = ("save_raw_tensor", "save_shape", "save_histogram")
_TRUE, _FALSE = {"true", "1", "yes", "on"}, {"false", "0", "no", "off", ""}
_KNOWN = (ALL, *ALIASES, *(str(name) for name in Collection))


@dataclass(frozen=True)
class ReductionConfig:
    """Which numbers are kept of a tensor, and whether it is kept as it is.

    Attributes:
        reductions: No effect: all of them but ``prod`` are always recorded.
        abs_reductions: Likewise, of absolute values.
        norms: Likewise.
        abs_norms: Likewise.
        save_raw_tensor: Keep the tensors as they are beside their statistics.
        save_shape: No effect: shapes are always recorded.

    Raises:
        ConfigError: a reduction or norm that nobody knows.
    """

    reductions: Sequence[str] = ()
    abs_reductions: Sequence[str] = ()
    norms: Sequence[str] = ()
    abs_norms: Sequence[str] = ()
    save_raw_tensor: bool = False
    save_shape: bool = False

    def __post_init__(self) -> None:
        """Refuse unknown names where they are written."""
        for field, known in (
            ("reductions", _REDUCTIONS),
            ("abs_reductions", _REDUCTIONS),
            ("norms", _NORMS),
            ("abs_norms", _NORMS),
        ):
            for name in texts(getattr(self, field)):
                check_name(name, known, field)

    @property
    def idle(self) -> bool:
        """True if it names what has no effect."""
        given = (self.reductions, self.abs_reductions, self.norms, self.abs_norms, self.save_shape)
        return any(given)

    @classmethod
    def of_words(cls, text: str, *, save_raw_tensor: bool, save_shape: bool) -> ReductionConfig:
        """Read ``mean,abs_max,l2_norm``, as SageMaker passes it."""
        found: dict[str, list[str]] = {}
        for word in texts(text):
            name = word.removeprefix("abs_")
            kind = "norms" if name.endswith("_norm") else "reductions"
            field = f"abs_{kind}" if word.startswith("abs_") else kind
            found.setdefault(field, []).append(name.removesuffix("_norm"))
        return cls(**found, save_raw_tensor=save_raw_tensor, save_shape=save_shape)


class CollectionConfig:
    """What is kept of a collection, and what is in it if it is one of your own.

    Args:
        name: A collection of ours or of smdebug (``all``, ``optimizer_variables``, …), or a name
            of your own.
        parameters: The same as strings, as SageMaker's SDK takes them; what is said beside them
            goes before.
        include_regex: Tensors whose name one of these regular expressions matches are in it too.
        tensor_names: So are these.
        modules: So is what modules return whose path one of these matches. PyTorch.
        save_config: Steps at which it is saved, in place of those of ``watch``; None for those.
        reduction_config: Whether its tensors are kept as they are; None for no.
        save_histogram: No effect.

    Raises:
        ConfigError: something that cannot be meant, with the nearest that can.
    """

    def __init__(  # noqa: PLR0913 - the predecessor's fields
        self,
        name: str,
        parameters: Mapping[str, Json] | None = None,
        *,
        include_regex: str | Sequence[str] = (),
        tensor_names: str | Sequence[str] = (),
        modules: str | Sequence[str] = (),
        save_config: SaveConfig | None = None,
        reduction_config: ReductionConfig | None = None,
        save_histogram: bool = False,
    ) -> None:
        called: object = name
        if not (isinstance(called, str) and called.strip()):
            raise ConfigError("the name of a collection", repr(name))
        given = _parameters(parameters or {})
        self.name = ALIASES.get(name, name)
        self.patterns = tuple(
            pattern(text) for text in texts(include_regex or given.get("include_regex", ""))
        )
        self.tensor_names = frozenset(texts(tensor_names))
        self.modules = tuple(pattern(text) for text in texts(modules))
        if self.name in _KNOWN:  # what is in it is known: rules rely on that
            self.patterns, self.tensor_names, self.modules = (), frozenset(), ()
        _check_type(save_config, SaveConfig)
        _check_type(reduction_config, ReductionConfig)
        self.save_config = of_job(given) if save_config is None else save_config
        self.reduction_config = (
            reduction_config if reduction_config is not None else _reductions(given)
        )
        self.save_histogram = save_histogram or _switch(given, "save_histogram")
        if not self.selects and (self.save_config or self.raw) is None:
            check_collection(name)
        elif not self.selects:
            check_collection(name, strictly=False)

    @property
    def selects(self) -> bool:
        """True if it names tensors."""
        return bool(self.patterns or self.tensor_names or self.modules)

    @property
    def raw(self) -> bool | None:
        """True if its tensors are kept as they are, else None."""
        return self.reduction_config.save_raw_tensor or None

    @property
    def idle(self) -> bool:
        """True if it says something that has no effect."""
        return self.save_histogram or self.reduction_config.idle

    def captures(self, path: str) -> bool:
        """Say whether what a module returns is in it: its path is, or smdebug's name of that."""
        if any(one.search(path) for one in self.modules):
            return True
        named = [one for one in self.patterns if "output" in one.pattern]
        return any(one.search(f"{path}_output_0") for one in named)

    def has(self, names: Iterable[str]) -> bool:
        """Say whether a tensor is selected, by any of its names."""
        return any(
            name in self.tensor_names or any(one.search(name) for one in self.patterns)
            for name in names
        )


def configs_of_job(
    collections: Iterable[Json], parameters: Mapping[str, Json]
) -> Iterable[tuple[str, Mapping[str, Json]]]:
    """Yield name and parameters of a job's ``CollectionConfigurations``.

    What a collection lacks of its steps is that of ``HookParameters``.
    """
    base = {key: value for key, value in parameters.items() if key.rpartition(".")[2] in FIELDS}
    for one in collections:
        body = one if isinstance(one, Mapping) else {}
        own = dict(body.get("CollectionParameters") or {})
        steps = any(key.removeprefix("train.") in FIELDS for key in own)
        yield str(body.get("CollectionName") or ""), {**base, **own} if steps else own


def pattern(text: Json) -> re.Pattern[str]:
    """Return a regular expression.

    Raises:
        ConfigError: it is none.
    """
    try:
        return re.compile(text)
    except (re.error, TypeError) as error:
        raise ConfigError("a regular expression", repr(text), str(error)) from error


def check_name(name: str, known: Iterable[str], what: str) -> None:
    """Refuse a name that nobody knows, with the nearest one.

    Raises:
        ConfigError: an unknown name.
    """
    choices = list(known)
    if name not in choices:
        near = difflib.get_close_matches(name, choices, 1)
        raise ConfigError(
            f"{what} out of {', '.join(choices)}",
            repr(name),
            f"did you mean {near[0]!r}?" if near else "",
        )


def check_collection(name: str, *, strictly: bool = True) -> None:
    """Refuse what is no collection; a name of the user's own passes unless it is nearly ours."""
    near = difflib.get_close_matches(name, _KNOWN, 1, 0.8)
    if name not in _KNOWN and (strictly or near):
        raise ConfigError(
            "a known collection, or include_regex or tensor_names to say what is in it",
            repr(name),
            f"did you mean {near[0]!r}?" if near else "",
        )


def _parameters(given: Mapping[str, Json]) -> Mapping[str, Json]:
    modes = [f"{mode}.{field}" for mode in _MODES for field in FIELDS]
    known = ("include_regex", "reductions", *_SWITCHES, *FIELDS, *modes)
    for name in given:
        check_name(str(name), known, "parameters of a collection")
    return given


def _reductions(given: Mapping[str, Json]) -> ReductionConfig:
    return ReductionConfig.of_words(
        str(given.get("reductions", "")),
        save_raw_tensor=_switch(given, "save_raw_tensor"),
        save_shape=_switch(given, "save_shape"),
    )


def _switch(given: Mapping[str, Json], name: str) -> bool:
    word = str(given.get(name, "")).strip().lower()
    if word not in _TRUE | _FALSE:
        raise ConfigError(f"{name} to be true or false", repr(given[name]))
    return word in _TRUE


def texts(value: Json) -> list[str]:
    """Split ``a,b``; a list is taken as it is."""
    if isinstance(value, str):
        return [text.strip() for text in value.split(",") if text.strip()]
    if not isinstance(value, Iterable) or not all(isinstance(text, str) for text in value):
        raise ConfigError("a text or several", repr(value))
    return list(value)


def _check_type(value: Json, kind: type) -> None:
    if value is not None and not isinstance(value, kind):
        raise ConfigError(f"a trainwarden.{kind.__name__}", repr(value))
