# SPDX-License-Identifier: BSD-3-Clause
"""Claims as data: the numbers of a CSV file that a claim is about, by case, and the bound that they must keep.

A claim *holds* if all cases keep its bound, *partly* if at least half of them do, and else *does not hold*. A claim
without rows is *not measured*, and a claim without a bound has no verdict. Nothing here measures.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from harness.tables import RESULTS, number, plain, read, span

HOLDS, PARTLY, FAILS, MISSING = "holds", "partly", "does not hold", "not measured"
HEAD, WIDTHS = ("claim", "in the paper", "measured", "bound", "verdict"), (30, 12, 34, 10, 14)
Row = dict[str, str]
Values = dict[tuple[str, ...], float]
Where = Callable[[Row], bool]


class Files:
    """The CSV files of one device."""

    def __init__(self, device: str, folder: Path = RESULTS) -> None:
        self.device, self.folder = device, folder
        self._rows = cache(lambda name: read(folder / f"{name}-{device}.csv"))

    def all_rows(self, name: str) -> list[Row]:
        """Return all rows of a file; none if there is no such file."""
        return self._rows(name)

    def rows(self, name: str, where: Where | None = None, **selection: Any) -> list[Row]:
        """Return the rows of a file whose columns have given values; a tuple holds several.

        Raises
        ------
        LookupError
            If there are none.
        """
        allowed = {k: [str(x) for x in (v if isinstance(v, tuple) else (v,))] for k, v in selection.items()}
        rows = [r for r in self._rows(name) if all(r[k] in v for k, v in allowed.items()) and (not where or where(r))]
        if not rows:
            raise LookupError(f"{name}: {', '.join(v for values in allowed.values() for v in values)}")
        return rows


Look = Callable[[Files], Values]
Column = str | Callable[[Row], float]


# ---- expressions ------------------------------------------------------------------------------------------


def by_case(rows: Iterable[Row], column: Column, by: Sequence[str], best: Callable[..., float] = min) -> Values:
    """Return a column's least (or greatest) number of each case, without NaN."""
    groups: dict[tuple[str, ...], list[float]] = {}
    for row in rows:
        value = column(row) if callable(column) else number(row, column)
        if not math.isnan(value):
            groups.setdefault(tuple(row[name] for name in by), []).append(value)
    return {case: best(numbers) for case, numbers in groups.items()}


def value(file: str, column: Column, by: Sequence[str] = (), *, best: Callable[..., float] = min,
          where: Where | None = None, **selection: Any) -> Look:  # fmt: skip
    """Return the expression of a column's number in each case."""
    return lambda files: by_case(files.rows(file, where, **selection), column, by, best)


def ratio(file: str, column: Column, top: Mapping[str, Any], bottom: Mapping[str, Any], by: Sequence[str] = (), *,
          best: Callable[..., float] = min, where: Where | None = None, bottom_file: str = "",
          **selection: Any) -> Look:  # fmt: skip
    """Return the expression of one selection's number over another's, in each case that both have."""

    def look(files: Files) -> Values:
        numerators = by_case(files.rows(file, where, **selection, **top), column, by, best)
        denominators = by_case(files.rows(bottom_file or file, where, **selection, **bottom), column, by, best)
        return {case: x / denominators[case] for case, x in numerators.items() if case in denominators}

    return look


def against(file: str, column: Column, mine: Mapping[str, Any], rivals: Sequence[Mapping[str, Any]],
            by: Sequence[str] = (), *, best: Callable[..., float] = min, where: Where | None = None,
            **selection: Any) -> Look:  # fmt: skip
    """Return the expression of a selection's number over the best of all rivals, in each case with more than one."""

    def look(files: Files) -> Values:
        tables = []
        for rival in rivals:
            try:
                tables.append(by_case(files.rows(file, where, **selection, **rival), column, by))
            except LookupError:
                continue
        numbers = by_case(files.rows(file, where, **selection, **mine), column, by)
        several = {case: [t[case] for t in tables if case in t] for case in numbers}
        return {case: numbers[case] / best(others) for case, others in several.items() if len(others) > 1}

    return look


def of_option(
    file: str, column: Column, option: str, chosen: Callable[[Row], str], by: Sequence[str], **selection: Any
) -> Look:
    """Return the expression of the time with a chosen value of an option over that of the best value."""

    def look(files: Files) -> Values:
        times: dict[tuple[str, ...], dict[str, float]] = {}
        choices = {}
        for row in files.rows(file, **selection):
            case = tuple(row[name] for name in by)
            options = dict(part.split("=") for part in row["options"].split())
            if option in options and not math.isnan(seconds := by_case([row], column, ()).get((), math.nan)):
                times.setdefault(case, {})[options[option]] = seconds
                choices[case] = chosen(row)
        return {case: t[choices[case]] / min(t.values()) for case, t in times.items() if choices[case] in t}

    return look


def power(file: str, column: Column, along: str, factor: float, by: Sequence[str] = (), *,
          where: Where | None = None, **selection: Any) -> Look:  # fmt: skip
    """Return the expression of the exponent with which a column grows, up to the largest size in each case.

    The other size is the largest one that is smaller by ``factor`` or more.
    """

    def look(files: Files) -> Values:
        rows = files.rows(file, where, **selection)
        exponents = {}
        for case in dict.fromkeys(tuple(row[name] for name in by) for row in rows):
            points = by_case([r for r in rows if tuple(r[name] for name in by) == case], column, (along,))
            sizes = {float(size): y for (size,), y in points.items()}
            last = max(sizes, default=math.nan)
            first = max((size for size in sizes if size * factor <= last), default=math.nan)
            if not math.isnan(first):
                exponents[case] = math.log(sizes[last] / sizes[first]) / math.log(last / first)
        return exponents

    return look


def greatest(look: Look) -> Look:
    """Return the expression of the greatest number alone."""

    def one(files: Files) -> Values:
        values = look(files)
        return dict([max(values.items(), key=lambda item: item[1])]) if values else {}

    return one


# ---- the checker ------------------------------------------------------------------------------------------


class Answer(NamedTuple):
    """A row of the report."""

    claim: str
    paper: str
    measured: str
    bound: str
    verdict: str


@dataclass(frozen=True)
class Claim:
    """A claim, its place in the paper, and a bound on numbers of a file."""

    text: str
    paper: str
    quantity: str
    look: Look
    low: float = -math.inf
    high: float = math.inf
    unit: str = ""  # "s" shows times, "%" shares, "G/s" rates

    def answer(self, files: Files) -> Answer:
        """Return the row of the report."""
        try:
            values = self.look(files)
        except LookupError as error:
            return Answer(self.text, self.paper, f"no rows of {error}".replace("'", ""), self.bound, MISSING)
        if not values:
            return Answer(self.text, self.paper, "no case has all numbers", self.bound, MISSING)
        measured = f"{self.quantity}: {self._range(values)}"
        return Answer(self.text, self.paper, measured, self.bound, self._verdict(values))

    @property
    def bound(self) -> str:
        """Return the bound in words."""
        if math.isinf(self.low) and math.isinf(self.high):
            return ""
        if math.isinf(self.high):
            return f"at least {self._show(self.low)}"
        return f"at most {self._show(self.high)}" if math.isinf(self.low) else (
            f"{self._show(self.low)} to {self._show(self.high)}")  # fmt: skip

    def _show(self, x: float) -> str:
        if self.unit == "%":
            return f"{100 * x:.3g} %"
        return span(x) if self.unit == "s" else f"{x / 1e9:.3g} G/s" if self.unit == "G/s" else plain(x)

    def _range(self, values: Values) -> str:
        low, high = min(values.values()), max(values.values())
        if len(values) == 1:
            return " ".join([self._show(low), *(f"({' '.join(case)})" for case in values if case)])
        if self._show(low) == self._show(high):
            return self._show(low)
        middle = statistics.median(values.values())
        return f"{self._show(low)} to {self._show(high)}, median {self._show(middle)}"

    def _verdict(self, values: Values) -> str:
        if not self.bound:
            return ""
        kept, of = sum(self.low <= x <= self.high for x in values.values()), len(values)
        word = HOLDS if kept == of else PARTLY if 2 * kept >= of else FAILS
        return word if of == 1 or kept == of else f"{word}, {kept} of {of}"


def answers(claims: Iterable[Claim], files: Files) -> list[Answer]:
    """Return the rows of the report on claims."""
    return [claim.answer(files) for claim in claims]
