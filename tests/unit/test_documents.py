from __future__ import annotations

import sys
from pathlib import Path

import pytest

from trainwarden.documents import read_document
from trainwarden.errors import ConfigError
from trainwarden.hook.chosen import plain_rules

RULES = ["default", {"rule": "Overfit", "patience": 3}]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("rules.json", '["default", {"rule": "Overfit", "patience": 3}]'),
        ("rules.yaml", "- default\n- rule: Overfit\n  patience: 3\n"),
        ("RULES.YML", "[default, {rule: Overfit, patience: 3}]"),
    ],
)
def test_rules_are_read_from_a_file(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert read_document(path, "rules") == RULES
    assert plain_rules(path) == RULES


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("rules.json", "- default", "Expecting value"),
        ("rules.yaml", "- rule: [", "while parsing"),
        ("rules.yaml", "- since: 2026-01-01", "date"),
        ("rules.yaml", "- above: .nan", "not JSON compliant"),
        ("rules.yaml", "- !!python/object/apply:os.getcwd []", "could not determine a constructor"),
        ("rules.yaml", "&a [*a]", "Circular"),
        ("nowhere.yaml", None, "No such file"),
    ],
)
def test_what_is_no_document_is_said(
    tmp_path: Path, name: str, text: str | None, said: str
) -> None:
    path = tmp_path / name
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match="a file of rules as JSON or YAML") as caught:
        read_document(path, "rules")
    assert said in str(caught.value)


def test_without_pyyaml_json_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text("- default")
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(ConfigError, match="pip install pyyaml, or write JSON"):
        read_document(path, "rules")
