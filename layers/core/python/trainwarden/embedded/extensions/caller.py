"""Whether the policies of a state machine's role allow a call on a tagged resource.

MiniStack knows callers only with AUTH=true, and calls of Step Functions not even then. But an
execution knows its role, and the role's policies lie in MiniStack's IAM: so a Deny that the
deployed template carries is enforced where the embedded AWS can know the caller.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar

from ministack.core import iam_evaluator, responses
from ministack.services import iam

# Set for the length of an execution; threads and the loop get it through copied contexts.
ROLE: ContextVar[str] = ContextVar("trainwarden_role", default="")


def denial(action: str, arn: str, tags: Mapping[str, Mapping[str, str]]) -> str:
    """Return AWS's refusal of ``action`` on ``arn``, empty if allowed or the caller is unknown.

    ``tags`` holds the tags of every resource that exists, by ARN.
    """
    role = ROLE.get()
    name = role.rpartition("/")[2]
    account = responses.get_account_id()
    if not name or iam._roles.get_scoped(account, None, name) is None:
        return ""
    principal = f"arn:aws:sts::{account}:assumed-role/{name}/states"
    context = iam_evaluator.EvalContext(
        principal_arn=principal,
        principal_type="AssumedRole",
        principal_account=account,
        action=action,
        resource_arn=arn,
        region=responses.get_region(),
        service_context={
            f"aws:resourcetag/{key}".lower(): value for key, value in tags.get(arn, {}).items()
        },
    )
    result = iam_evaluator.evaluate(context, iam_evaluator._gather_role_policies(name, account))
    if result.decision == "Allow":
        return ""
    why = (
        "with an explicit deny in an identity-based policy"
        if result.decision == "Deny"
        else f"because no identity-based policy allows the {action} action"
    )
    return f"User: {principal} is not authorized to perform: {action} on resource: {arn} {why}"
