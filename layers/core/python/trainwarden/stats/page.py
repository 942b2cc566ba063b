"""The page ``docs/statistics.md``, written from the catalogue.

python -m trainwarden.stats.page > docs/statistics.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from trainwarden.stats.catalog import COLUMNS, Flag
from trainwarden.stats.derived import STATISTICS
from trainwarden.stats.dtypes import KINDS
from trainwarden.stats.facts import SECTIONS, TABLES

_INTRODUCTION = """\
# Statistics

<!-- Written by `python -m trainwarden.stats.page`; a test compares. -->

The hook reduces every captured tensor to one row of 32 float64 numbers. Rules, plots and your own
queries name statistics by the names on this page: the columns themselves, and what is derived from
them. Unit `x` is the tensor's own unit, unit `1` a share or ratio.

A statistic that cannot be known is NaN: see *NaN means* below. A row that was not captured at a
step is NaN throughout.
"""

_NUMERICS = """\
## How exact they are

* Counts, `min`, `max` and `absmin_nz` are exact, for tensors of any size.
* Every element is read; nothing is sampled unless `flags` says so.
* Sums of float32 and narrower types are taken in float32 over 8,192 elements at a time and in
  float64 from there on, then stored with float32's 7 digits. Blocks whose squares leave float32's
  range, or that hold NaN or infinity, are summed in float64. Integers wider than 8 bits and float64
  are float64 throughout; integers beyond 2⁵³ are rounded.
* Moments are taken about `shift`, zero unless the first block's mean lies more than four standard
  deviations away from it, so that a large mean does not cancel the variance.
* Moments leave out NaN and ±inf, which are counted. Updates leave out elements that are not finite
  now or were not at the previous saved step.
* Rows of shards merge: a tensor cut into pieces gives the same statistics as the whole, up to the
  last digits of sums. `max_block_l2` is that of the pieces' own blocks, and the fingerprint is that
  of the set of pieces.
* A complex tensor counts its real and imaginary parts as elements.
* `fp_xor` and `fp_sum` are 64-bit patterns stored in the place of a float64; compare bits, not
  numbers. Equal bytes give equal fingerprints. They see any flipped bit and blocks that change
  places, but not words that change places within a block of 65,536 elements.
"""


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    cells = ([cell.replace("|", "\\|") for cell in line] for line in lines)
    return "".join(f"| {' | '.join(line)} |\n" for line in cells)


def statistics_page() -> str:
    """Return the page as Markdown."""
    raw = {spec.name for spec in COLUMNS}
    columns = _table(
        ("column", "unit", "meaning", "shards merge by", "NaN means"),
        (
            (f"`{c.name}`", c.unit, c.meaning, c.merge.value, "" if c.nan == "never" else c.nan)
            for c in COLUMNS
        ),
    )
    derived = _table(
        ("statistic", "unit", "meaning"),
        ((f"`{s.name}`", s.unit, s.meaning) for s in STATISTICS.values() if s.name not in raw),
    )
    flags = _table(
        ("bit", "flag", "meaning"),
        ((str(bit), f"`{name}`", meaning) for name, bit, meaning in _flags()),
    )
    kinds = ", ".join(f"`{name}`" for name in KINDS)
    return (
        f"{_INTRODUCTION}\n## Columns\n\n{columns}\n## Derived\n\n{derived}\n"
        "A collection of scalars, such as `losses`, has the single statistic `value`.\n\n"
        f"## Flags\n\n{flags}\n## Types\n\n{kinds}\n\n{_NUMERICS}\n{_facts()}{TABLES}"
    )


def _facts() -> str:
    """Return a section for each collection of facts."""
    return "".join(
        f"## {section.title}\n\n{section.text}\n\n"
        + _table(
            ("fact", "unit", "meaning"),
            ((f"`{fact.name}`", fact.unit, fact.meaning) for fact in section.facts),
        )
        + "\n"
        for section in SECTIONS.values()
    )


def _flags() -> Iterable[tuple[str, int, str]]:
    meaning = {
        Flag.SAMPLED: "moments, extremes and fingerprint come from a sample; of weights and "
        "gradients `n`, `sum_d2` where `shift` is 0, and counts of NaN and inf are exact",
        Flag.UPDATE_SAMPLED: "`u_*` come from a fixed sample of elements",
        Flag.SCALED: "gradient of a scaled loss, already divided by the scale",
        Flag.SKIPPED: "the optimizer step was skipped: non-finite gradients are normal",
        Flag.PART: "of one process's part of the tensor; never in what is judged",
    }
    for name, bit in vars(Flag).items():
        if isinstance(bit, int):
            yield name, bit, meaning[bit]


if __name__ == "__main__":
    sys.stdout.write(statistics_page())
