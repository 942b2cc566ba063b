"""``smdebug.rules``."""

from __future__ import annotations

from trainwarden.smdebug.rules.required_tensors import RequiredTensors
from trainwarden.smdebug.rules.rule import Rule
from trainwarden.smdebug.rules.rule_invoker import invoke_rule

__all__ = ["RequiredTensors", "Rule", "invoke_rule"]
