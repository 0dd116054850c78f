"""Reads what `ncu --csv --page raw` writes: a row per kernel launch, a column per metric.

    ==PROF== ...                                        lines of the profiler itself
    "ID",...,"Kernel Name",...,"gpu__time_duration.sum"  the header
    "","","",...,"us"                                   the units
    "0",...,"void f<(int)4>(T1 *)",...,"1,234.56"       the launches

With `--nvtx` a column says in which ranges the launch lies.
"""

import csv
import math
import re
from typing import NamedTuple

# In microseconds; the profiler's newer and older spelling.
TIME_UNITS = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}
TIME_UNITS |= {"nsecond": 1e-3, "usecond": 1.0, "msecond": 1e3, "second": 1e6}

NAME = "Kernel Name"
# 13416  "<default domain>:eager 0:none:none:none:none:none:none"
RANGE = re.compile(r'"[^":]*:([^":]*):')


class InvalidCsv(ValueError):
    """The text is not what `ncu --csv --page raw` writes."""


class Launch(NamedTuple):
    name: str  # as the profiler gives it
    shape: tuple[str, str]  # grid, block
    range_name: str  # of the outermost NVTX range; empty where none is known
    line: int
    values: dict[str, str]  # by column
    units: dict[str, str]

    def read(self, metric: str) -> float | None:
        """A metric, times in microseconds; None where it is missing or not available."""
        text = self.values.get(metric, "").strip()
        if text == "" or text.endswith("n/a"):
            return None
        try:
            value = float(text.replace(",", ""))
        except ValueError:
            raise InvalidCsv(f"line {self.line}: {metric} is no number: {text!r}") from None
        unit = self.units.get(metric, "")
        if "time" in metric:
            if unit not in TIME_UNITS:
                raise InvalidCsv(f"{metric} has an unknown unit: {unit!r}")
            value *= TIME_UNITS[unit]
        return value if math.isfinite(value) else None


def read_launches(text: str) -> list[Launch]:
    """The launches, in order. Raises InvalidCsv, with what was found instead."""
    header, units, launches = None, {}, []
    for number, fields in _list_rows(text):
        if NAME in fields:
            header, units = fields, {}
            if "Metric Name" in fields:
                raise InvalidCsv("this is the page of details: write the CSV with --page raw")
            continue
        if header is None:
            continue
        if len(fields) != len(header):
            found = f"{len(fields)} fields, the header has {len(header)}"
            raise InvalidCsv(f"line {number} has {found}: is the file whole?")
        row = dict(zip(header, fields, strict=True))
        if row[NAME] == "":
            units = row
        else:
            launches.append(_make_launch(number, row, units))
    if header is None:
        raise InvalidCsv(f'no line has the column "{NAME}"{_quote_error(text)}')
    if not launches:
        raise InvalidCsv(f"no kernel was profiled{_quote_error(text)}")
    return launches


def _list_rows(text: str) -> list[tuple[int, list[str]]]:
    """Numbered from 1, without the lines of the profiler itself."""
    lines = enumerate(text.removeprefix("\ufeff").splitlines(), start=1)
    kept = [(number, line) for number, line in lines if line and not line.startswith("==")]
    try:
        return [(number, next(csv.reader([line]))) for number, line in kept]
    except csv.Error as error:
        raise InvalidCsv(str(error)) from error


def _make_launch(number: int, row: dict[str, str], units: dict[str, str]) -> Launch:
    ranges = next((text for column, text in row.items() if "Push/Pop_Range" in column), "")
    found = RANGE.search(ranges)
    shape = row.get("Grid Size", ""), row.get("Block Size", "")
    return Launch(row[NAME], shape, found[1] if found else "", number, row, units)


def _quote_error(text: str) -> str:
    """What the profiler itself gives as the reason."""
    errors = [line for line in text.splitlines() if line.startswith("==ERROR==")]
    return f": {errors[0]}" if errors else ""
