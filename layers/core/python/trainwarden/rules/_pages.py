"""The documentation page of each rule, generated from its code.

python -m trainwarden.rules._pages docs/rules
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from trainwarden.model import Json
from trainwarden.rules import DEFAULT, SAGEMAKER, find, names, parameters, registry, runbook

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
    lines += ["", "## Profiles", "", *_profiles(name)]
    lines += ["", "## What to try, most likely first", ""]
    lines += [f"{i}. {remedy}" for i, remedy in enumerate(meta.remedies, 1)]
    lines += ["", f"Inspected nothing? {_sentence(meta.capture)}.", ""]
    return "\n".join(lines)


def _profiles(name: str) -> list[str]:
    """Say which profiles run the rule, and what it takes for granted in each."""
    meta = find(name).meta
    by_itself = name in names(DEFAULT)
    asked = " Runs only when it is asked for."
    if meta.sagemaker is None:
        told = "Not built into SageMaker Debugger: there is only the profile `default`."
        return [told + ("" if by_itself else asked)]
    runs = [f"`{p}`" for p in (DEFAULT, SAGEMAKER) if name in names(p)]
    told = f"Run by {' and '.join(runs)}." if runs else asked.strip()
    told += " In `sagemaker` it has SageMaker Debugger's meaning and documented defaults."
    if meta.required:
        told += f" There it needs {' or '.join(f'`{one}`' for one in meta.required)}."
    lines = [told, "", "| parameter | default | sagemaker |", "|---|---|---|"]
    for one in parameters(find(name)):
        ours = _default(one.default)
        theirs = _default(meta.sagemaker.get(one.name, one.default))
        lines.append(f"| `{one.name}` | {_cell(ours)} | {_cell(theirs)} |")
    return lines


def index() -> str:
    """Return the overview of all rules, Markdown."""
    lines = [
        "# Rules",
        "",
        NOTICE,
        "",
        "The profile `default` runs without being asked for; `sagemaker` has SageMaker Debugger's",
        "meaning and documented defaults. A rule without a profile runs when it is named.",
        "",
        "| rule | code | severity | profiles | fires when |",
        "|---|---|---|---|---|",
    ]
    runs = {profile: names(profile) for profile in (DEFAULT, SAGEMAKER)}
    for name, cls in registry().items():
        told = runbook(name).partition("\n")[0].partition(": ")[2]
        meta = cls.meta
        profiles = ", ".join(profile for profile, chosen in runs.items() if name in chosen)
        cells = (f"[{name}]({name}.md)", meta.code, meta.severity, profiles or "-", _cell(told))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def pages() -> Mapping[str, str]:
    """File name → text of every page."""
    return {"README.md": index(), **{f"{name}.md": page(name) for name in registry()}}


def _default(value: Json) -> str:
    if value is None or value in ([], ()):
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
