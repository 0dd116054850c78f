"""bench/profile.py without a GPU: the profiler's CSV, the table, the commands."""

import argparse
import contextlib
import re

import pytest
import torch

from bench import profile
from bench.cases import cases
from bench.nsight.ncu_csv import InvalidCsv, read_launches
from bench.nsight.ncu_names import shorten_kernel
from bench.nsight.ncu_table import format_table, name_limiter, summarize

# ---- the CSV: in the profiler's form; all numbers are invented, to exercise the parser ----

RANGES = "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
COLUMNS = ["ID", "Process ID", "Process Name", RANGES, "Kernel Name", "Block Size", "Grid Size"]
TENSOR = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"
METRICS = {
    "gpu__time_duration.sum": "us",
    TENSOR: "%",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "%",
    "lts__throughput.avg.pct_of_peak_sustained_elapsed": "%",
    "launch__registers_per_thread": "register/thread",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "%",
    "launch__func_cache_config": "",
}
TILE = "cutlass_fused::TileSm80<128, 256, 64, 2, 4, 4, (cutlass_fused::Schedule)0>"
GEMM = f"void cutlass_fused::gemm_sm80<{TILE}, cutlass_fused::Bf16, cutlass_fused::Bias, 16>(T1)"
NORMALIZE = "void cutlass_fused::normalize<(cutlass_fused::DataType)2>(T1)"


def quote(fields):
    return ",".join('"' + field.replace('"', '""') + '"' for field in fields)


def make_csv(*launches, metrics=METRICS):
    """The CSV of launches (range, kernel, grid, values)."""
    lines = ["==PROF== Connected to process 7 (/usr/bin/python3)", quote([*COLUMNS, *metrics])]
    lines.append(quote([""] * len(COLUMNS) + list(metrics.values())))
    for i, (range_name, kernel, grid, values) in enumerate(launches):
        ranges = f'42  "<default domain>:{range_name}:none:none:none:none:none:none" '
        fields = [str(i), "7", "python3", ranges, kernel, "(256, 1, 1)", grid]
        lines.append(quote(fields + values))
    return "\n".join([*lines, "==PROF== Disconnected from process 7", ""])


CSV = make_csv(
    ("ours 0", GEMM, "(8, 32, 1)", ["310.50", "71.2", "12.5", "44", "234", "12.4", "no"]),
    ("ours 0", NORMALIZE, "(99, 1, 1)", ["1,020.00", "0", "88.1", "61", "32", "70.9", "no"]),
    ("ours 1", GEMM, "(8, 32, 1)", ["300.50", "73.2", "12.5", "44", "234", "12.4", "no"]),
    ("ours 1", NORMALIZE, "(99, 1, 1)", ["1,000.00", "0", "90.1", "61", "32", "70.9", "no"]),
    ("eager 0", "nvjet_tst", "(9, 1, 1)", ["150.00", "n/a", "n/a", "", "168", "nan", "no"]),
)


def test_table():
    lines = format_table(summarize(read_launches(CSV))).splitlines()
    assert [line.split() for line in lines] == [
        "kernel calls us tensor % DRAM % L2 % regs occ. % limiter".split(),
        [],
        ["ours:", "1315.5", "us"],
        [*shorten_kernel(GEMM).split(), *"1 305.5 72 12 44 234 12 tensor".split()],
        ["normalize<bf16>", *"1 1010.0 0 89 61 32 71 DRAM".split()],
        [],
        ["eager:", "150.0", "us"],
        # What the profiler could not tell is no zero.
        ["nvjet_tst", *"1 150.0 - - - 168 - -".split()],
    ]
    ends = {line.rindex(line.split()[-2]) + len(line.split()[-2]) for line in (lines[3], lines[4])}
    assert len(ends) == 1 and max(map(len, lines)) < 130


def test_times_come_in_any_unit():
    for unit, factor in (("ns", 1e-3), ("ms", 1e3), ("nsecond", 1e-3), ("second", 1e6)):
        text = make_csv(("", "f", "", ["2.5"]), metrics={"gpu__time_duration.sum": unit})
        (row,) = summarize(read_launches(text))
        assert row.us == pytest.approx(2.5 * factor)
    with pytest.raises(InvalidCsv, match="unit: 'cycle'"):
        summarize(read_launches(text.replace("second", "cycle")))


def test_older_metrics_fill_the_columns():
    old = {
        "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": "%",
        "sm__inst_executed_pipe_tensor_op_hmma.avg.pct_of_peak_sustained_active": "%",
    }
    (row,) = summarize(read_launches(make_csv(("", "f", "", ["30", "80"]), metrics=old)))
    assert (row.numbers["dram"], row.numbers["tensor"]) == (30, 80)
    assert row.us is None and row.limiter == "tensor"
    assert format_table([row]).splitlines()[1].split()[:5] == ["f", "1", "-", "80", "30"]


def test_kernels_of_one_name_and_other_grids_are_told_apart():
    launch = ("ours 0", "f", "(1, 1, 1)", ["1"])
    other = ("ours 0", "f", "(2, 1, 1)", ["3"])
    text = make_csv(launch, other, launch, launch, metrics={"gpu__time_duration.sum": "us"})
    rows = summarize(read_launches(text))
    assert [(row.calls, row.us) for row in rows] == [(3, 1), (1, 3)]


def test_without_ranges_every_launch_counts():
    text = CSV.replace(quote([RANGES]), '"other"')
    rows = summarize(read_launches(text))
    assert [(row.range_name, row.calls) for row in rows] == [("", 2), ("", 2), ("", 1)]


def test_two_files_in_one():
    assert len(read_launches(CSV + CSV)) == 10


LINES = CSV.splitlines()
DETAILS = '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n"0","f","a","%","1"'


@pytest.mark.parametrize(
    "text, reason",
    [
        ("", 'no line has the column "Kernel Name"'),
        ("ms,variant\n1,ours\n", 'no line has the column "Kernel Name"'),
        ("==ERROR== ERR_NVGPUCTRPERM - no permission", "ERR_NVGPUCTRPERM"),
        ("\n".join(LINES[:3]), "no kernel was profiled"),
        ("\n".join([*LINES[:4], LINES[4][:150]]), "line 5 has .* fields"),
        (CSV.replace("310.50", "fast"), "line 4: gpu__time_duration.sum is no number: 'fast'"),
        (DETAILS, "--page raw"),
    ],
)
def test_malformed_csv_is_told(text, reason, tmp_path):
    path = tmp_path / "ncu.csv"
    path.write_text(text)
    with pytest.raises(SystemExit, match=reason) as exit:
        profile.main(["--table", str(path)])
    assert str(path) in str(exit.value)


def test_table_is_printed_and_a_missing_file_told(tmp_path, capsys):
    path = tmp_path / "ncu.csv"
    with pytest.raises(SystemExit, match="cannot be read"):
        profile.main(["--table", str(path)])
    path.write_text(CSV)
    assert profile.main(["--table", str(path)]) == 0
    assert shorten_kernel(GEMM) in capsys.readouterr().out


# ---- the limiter ----


@pytest.mark.parametrize(
    "numbers, limiter",
    [
        ({"tensor": 72, "dram": 61, "l2": 60}, "tensor"),
        ({"tensor": 60, "dram": 61}, "DRAM"),
        ({"tensor": 10, "dram": 59, "l2": 85, "sm": 90}, "L2"),
        # cuBLAS's fp32 products: busy, and neither in the tensor pipe nor in memory.
        ({"tensor": 0, "dram": 10, "l2": 30, "sm": 92, "occupancy": 12}, "SM"),
        ({"tensor": 5, "dram": 20, "waves": 0.3, "occupancy": 10}, "grid"),
        ({"tensor": 50, "dram": 20, "waves": 1.9, "occupancy": 12}, "occupancy: shared memory"),
        ({"tensor": 0, "dram": 59, "waves": 9.0, "occupancy": 85}, "latency"),
        ({"tensor": 0, "dram": 10}, "latency"),
        ({"occupancy": 12}, "-"),
        ({}, "-"),
    ],
)
def test_limiter(numbers, limiter):
    block_limits = {"registers": 2, "shared memory": 1, "warps": 8, "blocks": None}
    everything = {**dict.fromkeys(("tensor", "dram", "l2", "sm", "occupancy", "waves")), **numbers}
    assert name_limiter(everything, block_limits) == limiter


# ---- the commands, and what is run under them ----


def read_options(*words):
    return profile.parse_arguments(["--model", "12", "--precision", "tf32", *words])


def test_commands_name_the_run_and_read_back():
    options = read_options("--mode", "eval", "--variants", "eager,ours", "--runs", "2")
    run, write, table = profile.list_commands(options)
    for part in (
        "--clock-control none",
        "--profile-from-start off",
        "--nvtx",
        f"--metrics {TENSOR}",
    ):
        assert part in run
    again = profile.parse_arguments(run.split("bench.profile ")[1].split())
    assert again == options
    (report,) = re.findall(r"--export (\S+)", run)
    assert f"--import {report}.ncu-rep --csv --page raw > {report}.csv" in write
    assert table.endswith(f"--table {report}.csv")


def test_options_are_checked(monkeypatch, capsys):
    assert read_options() == argparse.Namespace(
        model="12",
        mode=cases.MODELS["12"].modes[0],
        precision="tf32",
        variants=["ours"],
        runs=3,
        table=None,
    )
    for words in (["--mode", "fast"], ["--variants", "theirs"], ["--runs", "0"], ["--table", "a"]):
        with pytest.raises(SystemExit):
            read_options(*words)
    assert "train, eval" in capsys.readouterr().err


def test_without_a_gpu_the_commands_are_printed_all_the_same(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match="need a CUDA GPU"):
        profile.main(["--model", "12", "--mode", "eval"])
    assert "ncu --clock-control none" in capsys.readouterr().out


def test_variant_that_cannot_be_had_is_told():
    with pytest.raises(SystemExit, match="cudnn: .*TF32"):
        profile.main(["--model", "12", "--precision", "ieee", "--variants", "cudnn"])


def test_warming_up_lies_outside_of_what_is_profiled(monkeypatch):
    seen = []

    @contextlib.contextmanager
    def mark(name):
        seen.append(f"[{name}")
        yield
        seen.append("]")

    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda.profiler, "start", lambda: seen.append("start"))
    monkeypatch.setattr(torch.cuda.profiler, "stop", lambda: seen.append("stop"))
    monkeypatch.setattr(torch.cuda.nvtx, "range", mark)
    runs = {name: lambda name=name: seen.append(name) for name in "ab"}
    profile.run_ranges(runs, 2)
    warm_up = seen[: seen.index("start")]
    assert sorted(warm_up) == ["a"] * profile.WARM_UP_RUNS + ["b"] * profile.WARM_UP_RUNS
    profiled = "start [a 0 a ] [a 1 a ] [b 0 b ] [b 1 b ] stop"
    assert " ".join(seen[len(warm_up) :]) == profiled
