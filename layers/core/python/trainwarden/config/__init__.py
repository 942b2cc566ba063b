"""Configuration of a job: tags, SageMaker's debug configuration, the script's and the defaults.

One parser a source, one model, one list of problems that names everything that was not understood
and the nearest right thing. Nothing that is wrong in one place breaks what is right in another.
"""

from __future__ import annotations

from trainwarden.config.documents import bounded
from trainwarden.config.model import JobConfig, Problem
from trainwarden.config.resolve import resolve
from trainwarden.config.tags import is_ours

__all__ = ["JobConfig", "Problem", "bounded", "is_ours", "resolve"]
