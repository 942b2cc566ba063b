"""Pages about deploying say what the code does."""

from __future__ import annotations

import re

from infra import documentation
from infra.config import Config
from tests.infra.synthesis import ROOT, Synthesis

DEPLOYMENT = (ROOT / "docs" / "deployment.md").read_text("utf-8")


def test_the_table_of_keys_is_current() -> None:
    text = documentation.PAGE.read_text("utf-8")
    assert documentation.page(text) == text, "run python -m infra.documentation"


def test_every_key_is_explained() -> None:
    text = documentation.PAGE.read_text("utf-8")
    for key in Config.model_fields:
        assert text.count(f"| `{key}` |") == 1


def test_keys_used_in_examples_exist() -> None:
    pages = [DEPLOYMENT, documentation.PAGE.read_text("utf-8"), (ROOT / "README.md").read_text()]
    used = {key for page in pages for key in re.findall(r"-c trainwarden\.(\w+)=", page)}
    assert used - {"emial"} <= set(Config.model_fields)


def test_the_outputs_are_named(stack: Synthesis) -> None:
    for name in stack.template["Outputs"]:
        assert f"`{name}`" in DEPLOYMENT


def test_the_cost_counts_the_alarms_there_are(stack: Synthesis) -> None:
    assert f"{len(stack.of('AWS::CloudWatch::Alarm'))} alarms" in DEPLOYMENT


def test_every_kind_of_alarm_is_explained(stack: Synthesis) -> None:
    for path in stack.of("AWS::CloudWatch::Alarm"):
        name = path.removesuffix("/Resource").split("/")[-1].removesuffix("Alarm")
        assert re.search(rf"^\| `[^`]*{name}` \|", DEPLOYMENT, re.MULTILINE), name
