"""Folds many rules over a job's observations, each guarded from the others: see ``engine``."""

from __future__ import annotations

from trainwarden.engine.elsewhere import ANSWERS, START, Answer, StandIn, foreign
from trainwarden.engine.engine import Engine, replay
from trainwarden.engine.findings import CRASH_CODE, MAX_EVIDENCE_BYTES, MAX_STATE_BYTES
from trainwarden.engine.sets import SET_CODE
from trainwarden.engine.specs import Fold, RuleSpec, SetSpec

__all__ = [
    "ANSWERS",
    "CRASH_CODE",
    "MAX_EVIDENCE_BYTES",
    "MAX_STATE_BYTES",
    "SET_CODE",
    "START",
    "Answer",
    "Engine",
    "Fold",
    "RuleSpec",
    "SetSpec",
    "StandIn",
    "foreign",
    "replay",
]
