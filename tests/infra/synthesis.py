"""Reading a synthesized template by the paths of constructs, not by logical ids."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from aws_cdk import App
from aws_cdk.assertions import Template

from infra import config
from infra.stack import TrainwardenStack

ROOT = Path(__file__).parents[2]
FLAGS: dict[str, Any] = json.loads((ROOT / "cdk.json").read_text("utf-8"))["context"]
Json = Any


@dataclass(frozen=True)
class Synthesis:
    """A stack and its template."""

    stack: TrainwardenStack
    template: dict[str, Json]

    def of(self, kind: str) -> dict[str, Json]:
        """Return resources of a type: path below the stack → resource."""
        return {
            resource["Metadata"]["aws:cdk:path"].removeprefix("Trainwarden/"): resource
            for resource in self.template["Resources"].values()
            if resource["Type"] == kind
        }

    def only(self, kind: str, path: str) -> Json:
        """Return the properties of the one resource of a type whose path starts so."""
        found = [r for p, r in self.of(kind).items() if p.startswith(path)]
        assert len(found) == 1, f"{len(found)} {kind} below {path}"
        return found[0]["Properties"]

    def id_of(self, kind: str, path: str) -> str:
        """Return the logical id of the one resource of a type whose path starts so."""
        (found,) = (
            id_
            for id_, resource in self.template["Resources"].items()
            if resource["Type"] == kind
            and resource["Metadata"]["aws:cdk:path"].startswith(f"Trainwarden/{path}")
        )
        return str(found)

    def statements(self, path: str) -> list[Json]:
        """Return what the role at ``path`` may do: its policies' statements, ids resolved."""
        policies = [
            resource["Properties"]["PolicyDocument"]["Statement"]
            for kind in ("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy")
            for where, resource in self.of(kind).items()
            if where.startswith(path)
        ]
        return [self.readable(statement) for policy in policies for statement in policy]

    def actions(self, path: str) -> dict[str, set[str]]:
        """Return action → resources that the role at ``path`` is allowed."""
        found: dict[str, set[str]] = {}
        for statement in self.statements(path):
            if statement["Effect"] == "Allow":
                for action in listed(statement["Action"]):
                    found.setdefault(action, set()).update(listed(statement["Resource"]))
        return found

    def readable(self, value: Json) -> Json:
        """Write references as ``<path>``, so that tests read like sentences."""
        if isinstance(value, list):
            return [self.readable(item) for item in value]
        if not isinstance(value, dict):
            return value
        if "Fn::GetAtt" in value:
            return f"<{self._path(value['Fn::GetAtt'][0])}>"
        if "Ref" in value:
            return f"<{self._path(value['Ref'])}>"
        if "Fn::Join" in value:
            glue, parts = value["Fn::Join"]
            return str(glue).join(self.readable(parts))
        return {key: self.readable(item) for key, item in value.items()}

    def _path(self, id_: str) -> str:
        if id_.startswith("AWS::"):
            return id_
        path: str = self.template["Resources"][id_]["Metadata"]["aws:cdk:path"]
        return path.removeprefix("Trainwarden/").removesuffix("/Resource")


@cache
def synthesize(**values: str) -> Synthesis:
    """Build the stack from ``-c trainwarden.<key>=<value>`` as the command line gives it.

    Nothing is bundled, as where the CLI runs ``cdk destroy``.
    """
    context = {f"{config.CONTEXT_KEY}.{key}": value for key, value in values.items()}
    by_cli = {"aws:cdk:bundling-stacks": [], "aws:cdk:enable-path-metadata": True}
    app = App(context={**FLAGS, **by_cli, **context})
    deployment = config.from_context(app.node.get_all_context())
    stack = TrainwardenStack(app, "Trainwarden", config=deployment)
    return Synthesis(stack, dict(Template.from_stack(stack).to_json()))


def listed(value: Json) -> list[Json]:
    """Return one or many as many."""
    return value if isinstance(value, list) else [value]


def walk(value: Json) -> Iterator[Json]:
    """Yield a JSON value and everything in it."""
    yield value
    children = (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    )
    for child in children:
        yield from walk(child)
