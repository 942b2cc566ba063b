"""``trainwarden rules new NAME``: a rule of one's own with its test and runbook."""

from __future__ import annotations

import argparse
import importlib.util
import keyword
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from trainwarden.cli import templates
from trainwarden.cli.commands import OK
from trainwarden.cli.render import Output
from trainwarden.errors import BadInputError
from trainwarden.model import Json
from trainwarden.rules import PROFILES, registry

FIRST_CODE, LAST_CODE = 901, 999  # 9xx of each family belongs to users
_NAME = re.compile(r"[A-Z][A-Za-z0-9]{2,47}")
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_CODE = re.compile(r"\bUSR(9\d\d)\b")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``new`` below ``trainwarden rules``, which by itself stays the list."""
    verbs = parser.add_subparsers(title="commands", metavar="COMMAND")
    text = (new.__doc__ or "").splitlines()[0]
    made = verbs.add_parser("new", help=text, description=text)
    made.set_defaults(run=new)
    made.add_argument("name", help="name of the rule, as HighLoss")
    made.add_argument("--folder", default="rules", help="where your rules lie (default: rules)")
    # Left out here, it must not undo what was said before `new`.
    made.add_argument(
        "--json", action="store_true", default=argparse.SUPPRESS, help="print JSON for machines"
    )


def new(args: argparse.Namespace, out: Output) -> int:
    """Write a rule of your own with its test and runbook."""
    folder = Path(args.folder)
    files = scaffold(args.name, folder)
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    steps = _next(args.name, folder)
    if out.as_json:
        out.document({"rule": args.name, "files": [str(path) for path in files], "next": steps})
        return OK
    for path in files:
        out.line(f"wrote {path}")
    out.line("next:")
    for number, step in enumerate(steps, 1):
        out.line(f"  {number}. {step}")
    return OK


def _next(name: str, folder: Path) -> list[Json]:
    typed = shlex.quote(str(folder))
    return [
        f"say in {folder / f'{stem(name)}.py'} what to look for, and run: pytest {typed}",
        f"judge a recorded run: trainwarden check --rules-folder {typed}",
        f"hold it against many: trainwarden replay --rules-folder {typed} --rules {name}",
        f"let it judge jobs while they run: deploy with -c trainwarden.custom_rules={typed}",
    ]


def stem(name: str) -> str:
    """Return the name of a rule's module: ``HighLoss`` → ``high_loss``."""
    return _WORDS.sub("_", name).lower()


def scaffold(name: str, folder: Path) -> Mapping[Path, str]:
    """Return the files of a new rule with their text; nothing is written.

    Raises:
        BadInputError: a name that cannot be used or is taken, or a file that is there already.
    """
    _check_name(name)
    if folder.exists() and not folder.is_dir():
        raise BadInputError("a folder for rules", f"the file {folder}", "give --folder another")
    module = stem(name)
    rule, test = folder / f"{module}.py", folder / "tests" / f"test_{module}.py"
    for path in (rule, test):
        if path.exists():
            raise BadInputError("a new file", f"{path}", "choose another name, or remove it first")
    words = {"NAME": name, "CODE": _free_code(folder), "MODULE": module}
    files = {rule: _filled(templates.RULE, words), test: _filled(templates.TEST, words)}
    conftest = folder / "tests" / "conftest.py"
    if not conftest.exists():
        files[conftest] = templates.CONFTEST
    return files


def _filled(template: str, words: Mapping[str, str]) -> str:
    return re.sub(r"@(NAME|CODE|MODULE)@", lambda found: words[found[1]], template)


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise BadInputError(
            "a name of 3 to 48 letters and digits that starts with a capital",
            repr(name),
            _suggestion(name),
        )
    known = {one.lower(): one for one in (*registry(), *PROFILES)}
    if name.lower() in known:
        raise BadInputError(
            "a name of its own", name, f"Trainwarden has {known[name.lower()]}: choose another"
        )
    module = stem(name)
    taken = module in sys.stdlib_module_names or keyword.iskeyword(module)
    if taken or module == "tests" or importlib.util.find_spec(module) is not None:
        raise BadInputError(
            "a name whose module is its own",
            f"{name}, and {module} is Python's or an installed package's",
            f"as {name}Rule",
        )


def _suggestion(name: str) -> str:
    words = [word for word in re.split(r"[^A-Za-z0-9]+", name) if word]
    made = "".join(word[0].upper() + word[1:] for word in words)[:48]
    return f"did you mean {made}?" if _NAME.fullmatch(made) else "as HighLoss"


def _free_code(folder: Path) -> str:
    """Return the first code for users that no rule of the folder or plug-in has."""
    taken = {int(code[3:]) for code in _codes() if _CODE.fullmatch(code)}
    for path in folder.glob("*.py"):
        text = path.read_text(encoding="utf-8", errors="replace")
        taken |= {int(number) for number in _CODE.findall(text)}
    free = next((n for n in range(FIRST_CODE, LAST_CODE + 1) if n not in taken), None)
    if free is None:
        raise BadInputError(
            f"a free code from USR{FIRST_CODE} to USR{LAST_CODE}", f"none in {folder}",
            "use another folder, or a family of your own",
        )  # fmt: skip
    return f"USR{free}"


def _codes() -> list[str]:
    return [rule.meta.code for rule in registry().values()]
