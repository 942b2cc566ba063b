"""The documentation page of each rule, generated from its code.

python -m trainwarden.rules._pages docs/rules
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from trainwarden.model import Json
from trainwarden.rules import find, parameters, registry, runbook

NOTICE = "<!-- Generated from the rule's code: python -m trainwarden.rules._pages docs/rules -->"


def page(name: str) -> str:
    """Return the page of one rule, Markdown.

    Raises:
        ConfigError: no such rule.
    """
    cls = find(name)
    title, _, body = runbook(name).partition("\n")
    meta = cls.meta
    needs = ", ".join(f"`{n.stat}` of `{n.collection}`" for n in meta.needs) or "any saved step"
    lines = [
        f"# {meta.name}",
        "",
        NOTICE,
        "",
        f"`{meta.code}` · {meta.severity} · {meta.tier} rule · reads {needs}",
        "",
        _sentence(title.partition(": ")[2]),
        "",
        body.strip(),
        "",
        "## Parameters",
        "",
        "| name | type | default | range | meaning |",
        "|---|---|---|---|---|",
    ]
    for one in parameters(cls):
        unit = f" ({one.unit})" if one.unit else ""
        cells = (f"`{one.name}`", one.type, _default(one.default), one.range or "any")
        lines.append(f"| {' | '.join(_cell(c) for c in cells)} | {_cell(one.doc)}{unit} |")
    lines += ["", "## What to try, most likely first", ""]
    lines += [f"{i}. {remedy}" for i, remedy in enumerate(meta.remedies, 1)]
    lines += ["", f"Inspected nothing? {_sentence(meta.capture)}.", ""]
    return "\n".join(lines)


def index() -> str:
    """Return the overview of all rules, Markdown."""
    lines = [
        "# Rules",
        "",
        NOTICE,
        "",
        "| rule | code | severity | fires when |",
        "|---|---|---|---|",
    ]
    for name, cls in registry().items():
        told = runbook(name).partition("\n")[0].partition(": ")[2]
        meta = cls.meta
        lines.append(f"| [{name}]({name}.md) | {meta.code} | {meta.severity} | {_cell(told)} |")
    return "\n".join([*lines, ""])


def pages() -> Mapping[str, str]:
    """File name → text of every page."""
    return {"README.md": index(), **{f"{name}.md": page(name) for name in registry()}}


def _default(value: Json) -> str:
    if value is None or value == []:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def main(argv: Sequence[str]) -> int:
    """Write every page into the folder named."""
    folder = Path(argv[0])
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
