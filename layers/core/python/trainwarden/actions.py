"""What may be done when a rule finds issues, as users of SageMaker Debugger know it.

    RuleCollection([Overfit(), Overtraining(patience=3)], action=StopTrainingAction())

Each is a word of a job's configuration; ``str`` gives it.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "SMS",
    "Action",
    "ActionList",
    "CaptureMoreAction",
    "Email",
    "EmailAction",
    "NotifyAction",
    "SMSAction",
    "StopTraining",
    "StopTrainingAction",
]


class Action:
    """Something to be done."""

    def words(self) -> tuple[str, ...]:
        """Return it as the words of a job's configuration."""
        raise NotImplementedError


@dataclass(frozen=True)
class StopTrainingAction(Action):
    """Stop the job, if it carries the tag ``trainwarden:stop=allow``.

    Attributes:
        training_job_prefix: Accepted and without effect: a job is stopped by its exact name.
    """

    training_job_prefix: str | None = None

    def words(self) -> tuple[str, ...]:
        """Return it as the words of a job's configuration."""
        return ("stop",)


@dataclass(frozen=True)
class CaptureMoreAction(Action):
    """Save the job's next steps in detail, and the suspect layers' tensors as they are."""

    def words(self) -> tuple[str, ...]:
        """Return it as the words of a job's configuration."""
        return ("capture-more",)


@dataclass(frozen=True)
class NotifyAction(Action):
    """Tell whoever is subscribed, and do not stop."""

    def words(self) -> tuple[str, ...]:
        """Return it as the words of a job's configuration."""
        return ("notify",)


@dataclass(frozen=True)
class EmailAction(Action):
    """Tell one address.

    Attributes:
        email_address: One that the deployment has subscribed.
    """

    email_address: str

    def words(self) -> tuple[str, ...]:
        """Return it as the words of a job's configuration."""
        return (f"email:{self.email_address}",)


@dataclass(frozen=True)
class SMSAction(Action):
    """Tell one telephone.

    Attributes:
        phone_number: With country code, ``+4930123456``; one that the deployment has subscribed.
    """

    phone_number: str

    def words(self) -> tuple[str, ...]:
        """Return it as the words of a job's configuration."""
        return (f"sms:{self.phone_number}",)


class ActionList(Action):
    """Several actions: ``ActionList(StopTraining(), Email("me@example.com"))``."""

    def __init__(self, *actions: Action) -> None:
        self.actions = actions

    def words(self) -> tuple[str, ...]:
        """Return all of them as the words of a job's configuration."""
        return tuple(word for action in self.actions for word in action.words())


StopTraining, Email, SMS = StopTrainingAction, EmailAction, SMSAction
