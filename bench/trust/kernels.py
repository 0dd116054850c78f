"""The kernels of the library by name, and which of them a unit launches.

python -m bench.trust.kernels UNIT FILE
"""

import json
import pathlib
import re
import subprocess
import sys

from .paths import add_helpers

add_helpers()

import torch  # noqa: E402
from cuobjdump import find_cuobjdump  # noqa: E402

from bench.nsight.ncu_names import shorten_kernel  # noqa: E402
from cutlass_fused._library import library_path  # noqa: E402

OURS = "cutlass_fused"


def spell(name: str) -> str:
    """Without what the tools that demangle names disagree about."""
    return re.sub(r"\s+", "", name.removeprefix("void "))


def shorten(name: str) -> str:
    return shorten_kernel(name, 400)


def list_compiled() -> list[str]:
    """The demangled names of all kernels that the library has, for any architecture: the newest
    that it is for runs all of them."""
    command = [find_cuobjdump(), "-res-usage", str(library_path())]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = set(re.findall(r"^\s*Function (\S+):$", text, re.MULTILINE))
    return sorted(map(torch._C._demangle, found))


def list_open() -> list[str]:
    """Those whose epilogue is linked while a program runs, and those that are compiled then."""
    from kernels.open_table import REPAIRS, list_open_kernels, list_open_tf32x3

    of_products = [each.name for each in (*list_open_kernels(), *list_open_tf32x3())]
    return sorted([*of_products, *REPAIRS, "cutlass_fused_pointwise", "cutlass_fused_rows"])


def record(unit: str) -> dict[str, int]:
    """Our kernels that the unit launches: name -> how often."""
    from sanitized_units import UNITS
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        UNITS[unit](False)
        torch.cuda.synchronize()
    counts: dict[str, int] = {}
    for event in profiler.events():
        if OURS in event.name:
            counts[event.name] = counts.get(event.name, 0) + 1
    return counts


def find_missing(units: dict[str, dict]) -> list[str]:
    """Kernels that none of the units launched, by short name."""
    launched = {spell(name) for unit in units.values() for name in unit["kernels"]}
    names = [*list_compiled(), *list_open()]
    return [shorten(name) for name in names if spell(name) not in launched]


def report(units: dict[str, dict]) -> list[str]:
    """Prints and returns what find_missing finds."""
    missing = find_missing(units)
    total = len(list_compiled()) + len(list_open())
    print(f"{total - len(missing)} of {total} kernels were launched; not by any unit:")
    for name in missing:
        print(f"  {name}")
    return missing


if __name__ == "__main__":
    pathlib.Path(sys.argv[2]).write_text(json.dumps(record(sys.argv[1])), encoding="utf-8")
