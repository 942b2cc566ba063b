"""Documents that people write: JSON or YAML files."""

from __future__ import annotations

import json
from pathlib import Path

from trainwarden.errors import ConfigError
from trainwarden.model import Json

YAML = frozenset({".yaml", ".yml"})


def read_document(path: Path, what: str) -> Json:
    """Return what a file holds: YAML if its name says so, else JSON.

    Args:
        path: Of the file.
        what: It should hold, for the error.

    Raises:
        ConfigError: no such file, it holds something else, or PyYAML is missing.
    """
    try:
        text = path.read_text("utf-8")
        if path.suffix.lower() not in YAML:
            return json.loads(text)
        return json.loads(json.dumps(_yaml(text), allow_nan=False))  # no dates, no sets
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise ConfigError(f"a file of {what} as JSON or YAML", f"{path}: {error}") from error


def _yaml(text: str) -> Json:
    try:
        import yaml
    except ImportError:
        raise ValueError("YAML needs PyYAML: pip install pyyaml, or write JSON") from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error
