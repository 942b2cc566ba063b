"""What every function that runs the pipeline needs: inbox, ledger, and what it is told."""

from __future__ import annotations

import json
from dataclasses import dataclass

from aws_cdk import aws_iam as iam

from infra.config import Config
from infra.constructs.custom_rules import CustomRules
from infra.constructs.inbox import Inbox
from infra.constructs.ledger import Ledger
from infra.constructs.training import describe_training_jobs


@dataclass(frozen=True)
class Judging:
    """Where jobs write, where it is kept what came of it, and what runs custom rules if any do."""

    config: Config
    inbox: Inbox
    ledger: Ledger
    custom: CustomRules | None = None

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables of the pipeline."""
        defaults = {
            "rules": self.config.rules,
            "stop_on": self.config.stop_on,
            "subscribers": [*self.config.emails, *self.config.sms],
        }
        custom = (
            {"CUSTOM_RULES_FUNCTION": self.custom.function.function_name} if self.custom else {}
        )
        return {
            **custom,
            "BUCKET_NAME": self.inbox.bucket.bucket_name,
            "TABLE_NAME": self.ledger.table.table_name,
            "DEFAULTS": json.dumps(defaults, sort_keys=True),
            "DRY_RUN": str(self.config.dry_run).lower(),
            "LEDGER_DAYS": str(self.config.ledger_days),
        }

    def grant_fold(self, role: iam.IRole) -> None:
        """Allow to judge what jobs saved: read it, commit what came of it."""
        self.inbox.grant_read(role)
        self.ledger.grant_commit(role)

    def grant_ask(self, role: iam.IRole) -> None:
        """Allow to ask custom rules, if there are any."""
        if self.custom:
            self.custom.grant_ask(role)

    def grant_look(self, role: iam.IRole) -> None:
        """Allow to read SageMaker's descriptions of training jobs."""
        role.add_to_principal_policy(describe_training_jobs())
