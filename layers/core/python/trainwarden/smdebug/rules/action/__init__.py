"""``smdebug.rules.action``: what a rule wants to be done.

Here a rule is replayed, or evaluated by a function without permissions: nothing is done. The words
are those of a job's configuration, which is where actions belong: ``action=stop``.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping

from trainwarden.actions import ActionList, EmailAction, SMSAction, StopTrainingAction
from trainwarden.errors import BadInputError
from trainwarden.model import Json

__all__ = ["ActionList", "Actions", "EmailAction", "SMSAction", "StopTrainingAction"]
logger = logging.getLogger(__name__)


class Actions:
    """The actions of a rule.

    Args:
        actions_str: JSON of one action or a list: ``{"name": "stoptraining"}``, ``{"name":
            "email", "endpoint": "me@example.com"}``, ``{"name": "sms", "endpoint": "+49…"}``.
        rule_name: Name of the rule.

    Raises:
        BadInputError: no JSON, or an action nobody knows.
    """

    def __init__(self, actions_str: str = "", rule_name: str = "") -> None:
        self.rule_name = rule_name
        try:
            found = json.loads(actions_str) if actions_str.strip() else []
        except (ValueError, RecursionError) as error:
            raise BadInputError("actions as JSON", f"{actions_str[:80]!r}: {error}") from error
        self.actions = [_action(one) for one in (found if isinstance(found, list) else [found])]

    @property
    def words(self) -> tuple[str, ...]:
        """The actions as words of a job's configuration: ``stop``, ``email:me@example.com``."""
        return ActionList(*self.actions).words()

    def invoke(self, **_: Json) -> None:
        """Say what would be done, and where to ask for it."""
        if self.actions:
            words = " ".join(self.words)
            logger.warning(
                "%s fired; nothing is done here. Say action=%s in the job's configuration",
                self.rule_name,
                words,
            )


def _action(one: Json) -> StopTrainingAction | EmailAction | SMSAction:
    name = str(one.get("name", "")).lower() if isinstance(one, Mapping) else ""
    if name == "stoptraining":
        return StopTrainingAction(one.get("training_job_prefix"))
    if name in ("email", "sms") and one.get("endpoint"):
        endpoint = str(one["endpoint"])
        return EmailAction(endpoint) if name == "email" else SMSAction(endpoint)
    raise BadInputError("stoptraining, or email or sms with an endpoint", repr(one)[:80])
