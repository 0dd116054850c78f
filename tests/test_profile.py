"""bench/profile.py without a GPU: short names, the profiler's CSV, the table, the commands."""

import argparse
import contextlib
import re

import pytest
import torch

from bench import cases, ncu_names, profile
from bench.ncu_csv import InvalidCsv, read_launches
from bench.ncu_names import shorten_kernel
from bench.ncu_table import format_table, name_limiter, summarize
from build_system.paths import ROOT

KERNELS = "include/cutlass_fused/kernel"

# ---- names: real ones, of our library (c++filt) and of PyTorch, cuBLAS, Triton and CUTLASS ----

TILE = "cutlass_fused::TileSm80<128, 256, 64, 2, 4, 4, (cutlass_fused::Schedule)0>"
ELEMENTWISE = "void at::native::vectorized_elementwise_kernel"
LEAKY_RELU = (
    "at::native::(anonymous namespace)::leaky_relu_kernel(at::TensorIteratorBase&, "
    "c10::Scalar const&)::{lambda()#1}::operator()() const::{lambda()#4}::operator()() "
    "const::{lambda(c10::BFloat16)#1}"
)
NAMES = {
    f"void cutlass_fused::gemm_sm80<{TILE}, cutlass_fused::Bf16, cutlass_fused::ScaleBatchNorm, 16>"
    f"(cutlass_fused::GemmSm80<{TILE}, cutlass_fused::Bf16, cutlass_fused::ScaleBatchNorm, 16>"
    "::Params)": "gemm_sm80<128x256x64B, Bf16, ScaleBatchNorm, 16>",
    # As the profiler itself writes template arguments, and a tile that splits K.
    "void cutlass_fused::gemm_sm80<cutlass_fused::TileSm80<(int)128, (int)64, (int)64, (int)2, "
    "(int)2, (int)4, (cutlass_fused::Schedule)1>, cutlass_fused::Tf32x3, "
    "cutlass_fused::ScaleLeakyReLU, (int)16>(T1::Params)": (
        "gemm_sm80<128x64x64B.streamk, Tf32x3, ScaleLeakyReLU, 16>"
    ),
    "void cutlass_fused::round_rows_to_tf32<cutlass_fused::Tf32>(float const*, long, long, long, "
    "float*)": "round_rows_to_tf32<Tf32>",
    "void cutlass_fused::row_softmax<(cutlass_fused::DataType)2, (cutlass_fused::DataType)0, "
    "cutlass_fused::Identity, cutlass_fused::FewElements, (cutlass_fused::Access)0>"
    "(cutlass_fused::RowSoftmaxParams<T3>)": (
        "row_softmax<bf16, fp32, Identity, FewElements, aligned>"
    ),
    "void cutlass_fused::row_softmax_wide<(cutlass_fused::DataType)0, (cutlass_fused::DataType)0, "
    "(cutlass_fused::Access)1>(cutlass_fused::RowSoftmaxParams<cutlass_fused::Identity>, int)": (
        "row_softmax_wide<fp32, fp32, shifted>"
    ),
    "void cutlass_fused::normalize<(cutlass_fused::DataType)2, cutlass_fused::Vector, "
    "(cutlass_fused::Access)2>(T1)": "normalize<bf16, Vector, elements>",
    # Without the types of the arguments, as a report that was imported has it.
    "column_statistics<2, 0>": "column_statistics<bf16, aligned>",
    "row_softmax_wide<0, 1, 1>": "row_softmax_wide<fp32, fp16, shifted>",
    # Invented: a kernel to come, and other people's kernels of names that are known. Numbers that
    # stand for nothing here stay numbers.
    "void cutlass_fused::rms_norm<(cutlass_fused::DataType)2, (cutlass_fused::Access)1>(T1)": (
        "rms_norm<bf16, shifted>"
    ),
    "void other::normalize<(int)128, (int)1>(float*)": "normalize<128, 1>",
    "void other::normalize<float, (bool)1>(float*)": "normalize<fp32, true>",
    "void other::row_softmax<(other::DataType)7, (other::Access)9>(float*)": "row_softmax<7, 9>",
    "row_softmax<1>": "row_softmax<1>",
    "column_statistics<(unsigned char)3, (int)-1>": "column_statistics<3, -1>",
    "other::gemm<TileSm80<(int)16, (int)8>>": "gemm<TileSm80>",
    "cutlass_fused::merge_statistics(cutlass_fused::MergeStatisticsParams)": "merge_statistics",
    f"{ELEMENTWISE}<2, {LEAKY_RELU}, std::array<char*, 2ul> >(int, {LEAKY_RELU}, "
    "std::array<char*, 2ul>)": "vectorized_elementwise_kernel<leaky_relu_kernel>",
    f"{ELEMENTWISE}<(int)4, at::native::BinaryFunctor<float, float, float, "
    "at::native::binary_internal::MulFunctor<float>>, std::array<char *, (unsigned long)3>>"
    "(int, T2, T3)": "vectorized_elementwise_kernel<MulFunctor>",
    "void at::native::elementwise_kernel<(int)128, (int)2, void at::native::gpu_kernel_impl_nocast<"
    "at::native::BinaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float>>"
    ">(at::TensorIteratorBase &, const T1 &)::[lambda(int) (instance 1)]>(int, T3)": (
        "elementwise_kernel<MulFunctor>"
    ),
    f"{ELEMENTWISE}<2, at::native::FillFunctor<unsigned long>, std::array<char*, 1ul> >(int, "
    "at::native::FillFunctor<unsigned long>, std::array<char*, 1ul>)": (
        "vectorized_elementwise_kernel<FillFunctor>"
    ),
    "void (anonymous namespace)::softmax_warp_forward<c10::BFloat16, c10::BFloat16, float, 10, "
    "false, true>(c10::BFloat16*, c10::BFloat16 const*, int, int, int, bool const*, int, bool)": (
        "softmax_warp_forward<bf16, bf16, fp32, 10, false, true>"
    ),
    "void at::native::<unnamed>::cunn_SoftMaxForward<(int)4, float, float, float, "
    "at::native::<unnamed>::SoftMaxForwardEpilogue>(T4 *, const T2 *, int)": (
        "cunn_SoftMaxForward<4, fp32, fp32, fp32, SoftMaxForwardEp..."
    ),
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x256x64_warpgroupsize2x1x1_execute_"
    "segment_k_off_kernel__5x_cublas": "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_128x256x64",
    "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT": "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT",
    "triton_poi_fused_addmm_leaky_relu_mul_0": "triton_poi_fused_addmm_leaky_relu_mul_0",
    "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x256_8x4_tn_align1>(T1::Params)": (
        "cutlass_80_simt_sgemm_128x256_8x4_tn_align1"
    ),
}


@pytest.mark.parametrize("name", NAMES, ids=NAMES.values())
def test_names_are_shortened(name):
    assert shorten_kernel(name) == NAMES[name]
    assert len(NAMES[name]) <= ncu_names.LONGEST


@pytest.mark.parametrize("name", ["", "f", "_ZN2at6native13reduce_kernelE", "a<b", "a>b(", "<>()"])
def test_any_name_is_survived(name):
    assert len(shorten_kernel(name)) <= ncu_names.LONGEST


def test_element_types_are_those_of_the_header():
    header = (ROOT / "include/cutlass_fused/types.hpp").read_text()
    (names,) = re.findall(r"enum class DataType : int32_t \{ (.*?) \}", header)
    bits = {"kFloat32": "fp32", "kFloat16": "fp16", "kBFloat16": "bf16"}
    assert ncu_names.DATA_TYPES == tuple(bits[name] for name in names.split(", "))


def test_accesses_are_those_of_the_headers():
    headers = {path.stem: path.read_text() for path in (ROOT / KERNELS).glob("*.cuh")}
    (body,) = re.findall(r"enum class Access \{(.*?)\};", headers["piece"], re.DOTALL)
    names = re.findall(r"^ *k(\w+),", body, re.MULTILINE)
    assert ncu_names.ACCESSES == tuple(name.lower() for name in names)
    for kernel, types in ncu_names.LEADING_TYPES.items():
        template = rf"template <([^>]*)>\s*__global__[^;{{]*?\b{kernel}\("
        (parameters,) = re.findall(template, headers[kernel])
        kinds = [parameter.split()[0] for parameter in parameters.split(",")]
        assert kinds[:types] == ["DataType"] * types and "DataType" not in kinds[types:]
        assert kinds[-1] == "Access"


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
GEMM, NORMALIZE = list(NAMES)[0], "void cutlass_fused::normalize<(cutlass_fused::DataType)2>(T1)"


def quote(fields):
    return ",".join('"' + field.replace('"', '""') + '"' for field in fields)


def make_csv(*launches, metrics=METRICS):
    """Of launches (range, kernel, grid, values)."""
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
        [*NAMES[GEMM].split(), *"1 305.5 72 12 44 234 12 tensor".split()],
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
    assert NAMES[GEMM] in capsys.readouterr().out


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
