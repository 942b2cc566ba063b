"""One whole template, so that a reviewer sees what a change does to it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tests.infra.synthesis import Synthesis

SNAPSHOT = Path(__file__).with_name("template.json")
HASH = re.compile(r"\b[0-9a-f]{64}\b")


def normalised(template: dict[str, Any]) -> str:
    """Leave out what changes with every line of code: hashes of assets, paths."""
    resources = {
        id_: {key: value for key, value in resource.items() if key != "Metadata"}
        for id_, resource in template["Resources"].items()
        if resource["Type"] != "AWS::CDK::Metadata"
    }
    kept = {"Resources": resources, "Outputs": template["Outputs"]}
    return HASH.sub("<hash>", json.dumps(kept, indent=1, sort_keys=True)) + "\n"


def test_the_template_is_the_reviewed_one(stack: Synthesis, request: Any) -> None:
    found = normalised(stack.template)
    if request.config.getoption("--update-template", default=False):
        SNAPSHOT.write_text(found, "utf-8")
    assert found == SNAPSHOT.read_text("utf-8"), (
        "the template changed: read the difference, then run "
        "pytest tests/infra/test_template.py --update-template"
    )
