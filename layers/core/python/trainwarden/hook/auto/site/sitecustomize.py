"""Runs when an interpreter starts below ``trainwarden run``: waits for frameworks to watch.

The ``sitecustomize`` that would have run without this one runs too.
"""

import importlib.machinery
import importlib.util
import os
import sys
from pathlib import Path


def _next() -> None:
    here = os.path.realpath(Path(__file__).parent)
    others = [path for path in sys.path if os.path.realpath(path or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


try:
    from trainwarden.hook import auto
except ImportError as error:
    sys.stderr.write(f"trainwarden: this interpreter has no trainwarden to watch with: {error}\n")
else:
    auto.activate()
_next()
