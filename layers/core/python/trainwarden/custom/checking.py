"""Checks a folder of custom rules before it is deployed: ``python -m trainwarden.custom.checking``.

Prints JSON: the rules' descriptions, or every problem. Runs in a process of its own, since it
imports what may be anything.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

from trainwarden import rules
from trainwarden.custom.describing import describe, stand_in
from trainwarden.custom.folder import load
from trainwarden.errors import TrainwardenError
from trainwarden.model import Json, Rule, RuleMeta
from trainwarden.stats.derived import VALUE, statistic
from trainwarden.wire.fields import dump_json, parse_json

CODE = re.compile(r"[A-Z]{3}9\d\d")  # 9xx of each family belongs to users
_WRITING = frozenset("wax+")
# What a module may not do while it is imported: each cold start would do it again.
_EFFECTS = frozenset(
    {
        *("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.system", "os.exec", "os.fork"),
        *("subprocess.Popen", "socket.connect", "socket.bind", "urllib.Request"),
    }
)


def check(folder: Path) -> tuple[list[Json], list[str]]:
    """Return the descriptions of a folder's rules, and every problem."""
    effects: list[str] = []
    watching = [True]

    def watch(event: str, args: tuple[Any, ...]) -> None:
        if watching[0] and (event in _EFFECTS or (event == "open" and _writes(args))):
            effects.append(f"{event} {args[0] if args else ''}".strip()[:200])

    sys.addaudithook(watch)
    try:
        with redirect_stdout(sys.stderr):
            found = load(folder)
    except TrainwardenError as error:
        return [], [str(error)]
    finally:
        watching[0] = False
    problems = [f"importing the modules has effects: {effect}" for effect in effects]
    described: list[Json] = []
    for name, cls in found.items():
        try:
            wrong = list(_problems(cls))
            if not wrong:
                described.append(describe(cls))
                rules.add(stand_in(described[-1]), str(folder))
        except TrainwardenError as error:
            wrong = [str(error)]
        problems += [f"{name}: {one}" for one in wrong]
    return described, problems


def _writes(args: tuple[Any, ...]) -> bool:
    return len(args) > 1 and bool(_WRITING & set(str(args[1] or "")))


def _problems(cls: type[Rule[Any]]) -> Iterator[str]:
    meta = getattr(cls, "meta", None)
    if not isinstance(meta, RuleMeta):
        yield "expected a class variable meta, a RuleMeta; found none"
        return
    if not CODE.fullmatch(meta.code):
        yield f"expected a code like USR901 (9xx belongs to you), found {meta.code}"
    if not meta.name.isidentifier():
        yield f"expected a name of letters and digits, found {meta.name!r}"
    if not _is_frozen(cls):
        yield "expected @dataclass(frozen=True, kw_only=True), found another class"
        return
    for need in meta.needs:
        if need.stat != VALUE:
            statistic(need.stat)
    unknown = sorted(set(meta.explains) - set(rules.registry()))
    if unknown:
        yield f"expected names of rules in explains, found {', '.join(unknown)}"
    yield from _start(cls)


def _is_frozen(cls: Any) -> bool:
    return is_dataclass(cls) and bool(getattr(cls, "__dataclass_params__").frozen)  # noqa: B009 - unknown to types


def _start(cls: type[Rule[Any]]) -> Iterator[str]:
    try:
        first = cls().start()
    except Exception as error:  # noqa: BLE001 - anybody's code; whatever it raises is told
        yield f"expected to be built without parameters and to start, found {error!r}"
        return
    before: Mapping[str, Json] = {"state": first}
    if parse_json(dump_json(before), "the state that start() returns") != before:
        yield "expected start() to return JSON that is read as it was written (lists, text keys)"


def main() -> int:
    """Check the folder named on the command line."""
    described, problems = check(Path(sys.argv[1]))
    sys.stdout.write(json.dumps({"rules": described, "problems": problems}))
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
