"""Writes the table of configuration keys into ``docs/configuration.md``.

``python -m infra.documentation`` after a change of ``infra/config.py``; a test tells if it is due.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from infra.config import Config

PAGE = Path(__file__).parents[1] / "docs" / "configuration.md"
BEGIN = "<!-- keys: written by python -m infra.documentation -->"
END = "<!-- /keys -->"


def table() -> str:
    """Return the keys, their values, defaults and meaning in Markdown."""
    lines = ["| key | value | default | meaning |", "|---|---|---|---|"]
    for key, schema in Config.model_json_schema()["properties"].items():
        meaning = str(schema["description"]).replace("|", "\\|")
        default = _default(schema["default"])
        lines.append(f"| `{key}` | {_values(key, schema)} | {default} | {meaning} |")
    return "\n".join(lines)


def page(text: str) -> str:
    """Return the page with its table renewed."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def _values(key: str, schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if schema["type"] == "integer":
        return f"{schema['minimum']} to {schema['maximum']}"
    if schema["type"] == "array":
        return "phone numbers" if key == "sms" else "e-mail addresses"
    if key == "custom_rules":
        return "a path"
    return {"boolean": "`true`, `false`", "string": "text"}[schema["type"]]


def _default(value: Any) -> str:
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value}`" if value not in ([], "") else "none"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
