"""A short table of profiled kernels, and what limits each of them."""

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from .ncu_csv import Launch
from .ncu_names import shorten_kernel

TIME = "gpu__time_duration.sum"
# For each column the metrics that can fill it, the first that is there. They are shares of the peak
# in percent. Chips and versions of the profiler differ in which they have.
PIPE = "sm__pipe_tensor"
METRICS = {
    "tensor": (
        f"{PIPE}_cycles_active.avg.pct_of_peak_sustained_active",
        f"{PIPE}_cycles_active.avg.pct_of_peak_sustained_elapsed",
        f"{PIPE}_op_hmma_cycles_active.avg.pct_of_peak_sustained_active",
        "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active",
        "sm__inst_executed_pipe_tensor_op_gmma.avg.pct_of_peak_sustained_active",
        "sm__inst_executed_pipe_tensor_op_hmma.avg.pct_of_peak_sustained_active",
    ),
    "dram": (
        "dram__throughput.avg.pct_of_peak_sustained_elapsed",
        "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    ),
    "l2": ("lts__throughput.avg.pct_of_peak_sustained_elapsed",),
    "sm": ("sm__throughput.avg.pct_of_peak_sustained_elapsed",),
    "registers": ("launch__registers_per_thread",),
    "occupancy": ("sm__warps_active.avg.pct_of_peak_sustained_active",),
    "waves": ("launch__waves_per_multiprocessor",),
}
# How many blocks of the kernel one multiprocessor could hold for the sake of each resource.
BLOCK_LIMITS = {
    "launch__occupancy_limit_registers": "registers",
    "launch__occupancy_limit_shared_mem": "shared memory",
    "launch__occupancy_limit_warps": "warps",
    "launch__occupancy_limit_blocks": "blocks",
}
# What the profiler's own sets of metrics may leave out; they have the others.
EXTRA = METRICS["tensor"][0]

# Percent. From here on a unit counts as the limit: pipes and memories that do nothing wrong end
# between 80 and 95, and below 60 there is more to be had by keeping more work in flight.
BUSY = 60
# Below it there are few warps to switch to while one waits.
FEW_WARPS = 40


class Row(NamedTuple):
    """One kernel; numbers are medians over its launches, None where no metric gives them."""

    range_name: str  # without the number of the run
    kernel: str
    calls: float  # launches per run
    us: float | None
    numbers: dict[str, float | None]
    limiter: str


def _median(launches: Sequence[Launch], metrics: Sequence[str]) -> float | None:
    for metric in metrics:
        values = [value for launch in launches if (value := launch.read(metric)) is not None]
        if values:
            return statistics.median(values)
    return None


def name_limiter(numbers: dict[str, float | None], block_limits: dict[str, float | None]) -> str:
    """What to look at in a kernel, by thresholds; "-" where there are no metrics to tell.

    tensor, DRAM, L2    the busiest of the three, at BUSY percent of its peak or more
    SM                  none of these, but another part of the multiprocessors is as busy: the
                        pipes for fp32 and loads, shared memory, the issue of instructions
    grid                nothing is busy: there are fewer blocks than the GPU can hold at once
    occupancy: ...      nothing is busy, fewer than FEW_WARPS percent of the warps are there, and
                        this resource keeps more blocks from a multiprocessor
    latency             nothing is busy though there are warps: each waits, for memory or barriers
    """
    known = {name: value for name, value in numbers.items() if value is not None}
    units = {"tensor": "tensor", "dram": "DRAM", "l2": "L2"}
    busy = [name for name in units if known.get(name, 0) >= BUSY]
    if busy:
        return units[max(busy, key=known.__getitem__)]
    if known.get("sm", 0) >= BUSY:
        return "SM"
    if not known.keys() & {*units, "sm"}:
        return "-"
    if known.get("waves", 1) < 1:
        return "grid"
    if known.get("occupancy", 100) < FEW_WARPS:
        limits = {name: value for name, value in block_limits.items() if value is not None}
        return f"occupancy: {min(limits, key=limits.get)}" if limits else "occupancy"
    return "latency"


def _split_range(name: str) -> tuple[str, str]:
    """ "eager 2" as ("eager", "2")"""
    variant, _, run = name.rpartition(" ")
    return (variant, run) if run.isdecimal() else (name, "")


def summarize(launches: Sequence[Launch]) -> list[Row]:
    """A row for each kernel of each range, in the order of their first launches.

    Launches of one name but with other grids or blocks are another row: PyTorch's elementwise
    kernels serve many operations.
    """
    groups, runs = {}, {}
    for launch in launches:
        variant, run = _split_range(launch.range_name)
        groups.setdefault((variant, launch.name, launch.shape), []).append(launch)
        runs.setdefault(variant, set()).add(run)
    rows = []
    for (variant, name, _), group in groups.items():
        numbers = {column: _median(group, names) for column, names in METRICS.items()}
        limits = {text: _median(group, [metric]) for metric, text in BLOCK_LIMITS.items()}
        calls, us = len(group) / len(runs[variant]), _median(group, [TIME])
        limiter = name_limiter(numbers, limits)
        rows.append(Row(variant, shorten_kernel(name), calls, us, numbers, limiter))
    return rows


def _format_number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


COLUMNS = ("calls", "us", "tensor %", "DRAM %", "L2 %", "regs", "occ. %")


def _format_row(row: Row, width: int) -> str:
    numbers = row.numbers
    cells = [f"{row.calls:g}", _format_number(row.us, 1)]
    cells += [_format_number(numbers[name], 0) for name in ("tensor", "dram", "l2")]
    cells += [_format_number(numbers[name], 0) for name in ("registers", "occupancy")]
    texts = [f"{cell:>{max(len(title), 6)}}" for title, cell in zip(COLUMNS, cells, strict=True)]
    return f"{row.kernel:{width}}  {'  '.join(texts)}  {row.limiter}"


def format_table(rows: Sequence[Row]) -> str:
    """Each range under a line of its own with the time that its kernels take together."""
    width = max(len(row.kernel) for row in rows)
    titles = "  ".join(f"{title:>6}" for title in COLUMNS)
    lines = [f"{'kernel':{width}}  {titles}  limiter"]
    for variant in dict.fromkeys(row.range_name for row in rows):
        part = [row for row in rows if row.range_name == variant]
        if variant:
            known = all(row.us is not None for row in part)
            total = f": {sum(row.calls * row.us for row in part):.1f} us" if known else ""
            lines += ["", f"{variant}{total}"]
        lines += [_format_row(row, width) for row in part]
    return "\n".join(lines)
