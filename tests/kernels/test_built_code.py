"""The built library: its size, its symbols, and the machine code of every kernel."""

import itertools
import json
import re

import pytest
import torch
from cuobjdump import find_cuobjdump
from instructions import read_instructions, run
from kernel_names import (
    GRADIENT_KERNELS,
    MIXED_KERNELS,
    SHORT_K,
    SHORT_K_KERNELS,
    TF32X3_SM90,
    list_statistics_names,
    list_tf32x3_sm90,
    list_tile_kernels,
)

from bench.nsight.ncu_names import shorten_kernel
from build_system.architectures import ARCH_GROUPS, parse_architectures
from build_system.paths import PACKAGE, ROOT
from cutlass_fused.row_ops import ROW_OPS  # and the library is loaded
from kernels.table import (
    EPILOGUES,
    EPILOGUES_OF_FP32,
    TYPES,
    list_kernels,
    list_standalone_kernels,
    list_statistics_kernels,
)

# The kernels without a product, by row of the table that they come from; None: one for all types.
STANDALONE = {
    **{row_op.row: row_op.kernels for row_op in ROW_OPS.values()},
    "batch_norm": ("column_statistics", "normalize"),
    "batch_norm_cluster": ("batch_norm_cluster",),
    None: (
        "merge_statistics",
        "repair_and_merge",
        "normalize_strips",
        "count_batch",
        "clear_parts",
        "copy_rows",
        *GRADIENT_KERNELS,
        "split_rows",
        "split_short_columns",
        "split_columns",
        "clear_columns",
    ),
}
WITHOUT_PRODUCT = re.compile(rf"cutlass_fused::(?:{'|'.join(sum(STANDALONE.values(), ()))})[<(]")
SHORT = ("row_softmax_short",)  # of aligned fp32 alone
STREAMS = ("row_softmax_stream",)  # rows of any alignment in one way; 8.0 has no code of them
CLUSTERS = ("batch_norm_cluster",)  # whose blocks are named by what they hold
# What splits matrices, how much of a row a thread of it holds, and whether it does more.
WAYS = [rf"\(cutlass_fused::Split\){way}" for way in range(3)]
SPLITS = [("split_rows", held, WAYS) for held in (", 2", ", 4")]
SPLITS += [(kernel, "", ["false", "true"]) for kernel in ("split_short_columns", "split_columns")]
# From which blocks take their work; split_columns joins integers, whose order does not matter.
COUNTERS = ("normalize_strips", "split_columns")
NAMES = (*EPILOGUES, *EPILOGUES_OF_FP32)
# The kernels that need no tensor cores and no asynchronous copies.
WITH_EPILOGUE = ("apply_epilogue", "gemm_simt", "repair_rows")
ADD_PARTS = r"cutlass_fused::add_parts_tf32x3<"
APPLY_EPILOGUE = rf"{SHORT_K}|{ADD_PARTS}|cutlass_fused::(?:{'|'.join(WITH_EPILOGUE)})<"
PLAIN = rf"{APPLY_EPILOGUE}|{WITHOUT_PRODUCT.pattern}"
GEMM_SM90 = r"cutlass_fused::gemm_sm90<"
REPAIR = r"cutlass_fused::repair_rows_tf32x3<"
# Which kernels must hold an instruction: those of the group, all of whose names match the first
# pattern, that do not match the second. cp.async cannot copy rows that are aligned to 2 bytes only;
# a tile whose Output is kDirect or kRows writes without TMA.
HOLDERS = {
    "HMMA": ("Sm80", "", rf"{PLAIN}|{GEMM_SM90}|{TF32X3_SM90}"),
    "LDGSTS": ("Sm80", "", rf"{PLAIN}|{GEMM_SM90}|{TF32X3_SM90}|, 2>\("),
    "HGMMA": ("Sm90", GEMM_SM90, "^$"),
    "HGMMA_TF32": ("Sm90", TF32X3_SM90, "^$"),
    "UTMALDG": ("Sm90", GEMM_SM90, "^$"),
    "UTMASTG": ("Sm90", GEMM_SM90, r"\(cutlass_fused::Output\)[12]>"),
    "PREEXIT": ("Sm90", rf"{GEMM_SM90}|{TF32X3_SM90}", "^$"),
}
MAX_BYTES = 48 * 2**20

LIBRARY = ROOT / PACKAGE / "libcutlass_fused.so"
SWITCH = ROOT / PACKAGE / "libcutlass_fused_switch.so"
pytestmark = pytest.mark.skipif(not LIBRARY.is_file(), reason="the library was not built")


@pytest.fixture(scope="module")
def cuobjdump():
    """nvdisasm lies beside it."""
    return find_cuobjdump()


@pytest.fixture(scope="module")
def build_info():
    return json.loads(torch.ops.cutlass_fused.build_info())


@pytest.fixture(scope="module")
def real_architectures(build_info):
    """{group: what its kernels were compiled for, by what the library says of itself, as cuobjdump
    names it}: {"Sm80": {"sm_80", ...}, ...}. Kernels without a product belong to "Sm80"."""
    archs = parse_architectures(";".join(build_info["archs"]))
    return {
        name: {group.real(arch) for arch in archs if group.runs_on(arch)}
        for name, group in ARCH_GROUPS.items()
    }


@pytest.fixture(scope="module")
def resources(cuobjdump):
    """{(architecture, kernel): {"REG": registers, "STACK": bytes, "LOCAL": bytes, ...}}"""
    found = {}
    arch = kernel = None
    for line in run(cuobjdump, "-res-usage", LIBRARY).splitlines():
        if match := re.match(r"arch = (\w+)", line):
            arch = match[1]
        elif match := re.match(r"\s*Function (\S+):$", line):
            kernel = match[1]
        elif kernel is not None:
            pairs = re.findall(r"(\w+)(?:\[\d+\])?:(\d+)", line)
            found[arch, kernel] = {name: int(value) for name, value in pairs}
            kernel = None
    return found


@pytest.fixture(scope="module")
def instructions(cuobjdump):
    return read_instructions(cuobjdump, LIBRARY)


@pytest.fixture(scope="module")
def demangled(resources):
    names = sorted({kernel for _, kernel in resources})
    return dict(zip(names, run("c++filt", *names).splitlines(), strict=True))


def test_size():
    assert LIBRARY.stat().st_size < MAX_BYTES


@pytest.mark.parametrize("library, called", [(LIBRARY, "aoti_torch"), (SWITCH, "c10")])
def test_needs_no_python(library, called):
    undefined = run("nm", "-D", "--undefined-only", library)
    assert called in undefined and not re.findall(r"\b_?Py[A-Z_]\w*", undefined)
    assert "PyInit" not in run("nm", "-D", "--defined-only", library)


@pytest.mark.parametrize("library", [LIBRARY, SWITCH], ids=["ops", "switch"])
def test_depends_on_no_shared_cuda_runtime_and_no_python(library):
    needed = re.findall(r"NEEDED.*\[(.*)\]", run("readelf", "-d", library))
    assert "libtorch_cpu.so" in needed
    assert not [name for name in needed if re.match(r"libcudart|libpython|libtorch_python", name)]


def test_every_kernel_is_there_for_every_architecture(
    resources, demangled, real_architectures, build_info
):
    """And none that the table does not name: of SM90 kernels, which take long to compile."""
    built = {(arch, shorten_kernel(demangled[kernel], 200)) for arch, kernel in resources}
    expected = {
        (arch, name)
        for row in list_kernels()
        for arch in real_architectures[row.arch]
        for name in list_tile_kernels(row, build_info)
    }
    expected |= {
        (arch, name)
        for row in list_statistics_kernels()
        for arch in real_architectures[row.arch]
        for name in list_statistics_names(row.arch, row.math, build_info)
    }
    for row in list_kernels():
        name = f"gemm_sm90<AlongN, {row.math}, {row.epilogue}>"
        expected |= {(arch, name) for arch in real_architectures["Sm90"] if row.lines_along_n}
    assert expected and not expected - built
    assert {name for name in built if "gemm_sm90<" in name[1]} <= expected
    as_they_lie = [
        demangled[kernel] for _, kernel in resources if re.search(TF32X3_SM90, demangled[kernel])
    ]
    patterns = [*list_tf32x3_sm90(build_info)]
    assert len(as_they_lie) == len(patterns)
    assert all(any(map(re.compile(pattern).search, as_they_lie)) for pattern in patterns)
    assert bool(build_info["tiles_sm90"]) == bool(real_architectures["Sm90"])


def name_type(dtype):
    """A pattern of this value of DataType in demangled names."""
    return rf"\(cutlass_fused::DataType\){TYPES.index(dtype)}"


# How a kernel goes through its rows: the values of Access in common/piece.cuh.
ACCESS = {
    access: rf"\(cutlass_fused::Access\){value}>\("
    for value, access in enumerate(("aligned", "shifted", "elements", "whole"))
}

# Behind rows of fp32, 16 bytes of them make 8 of a narrower result.
NARROWING = re.compile(
    rf"(?:<{name_type('kFloat32')}, |row_softmax_short<)\(cutlass_fused::DataType\)[12],"
)


SIZES = {"kFloat32": 4, "kFloat16": 2, "kBFloat16": 2}


def list_variants(row):
    """Patterns of the names of the kernels that a row without a product must give."""
    x = name_type(row.type)
    aligned = ACCESS["aligned"]
    for kernel in set(STANDALONE[row.name]) - {*SHORT, *STREAMS, *CLUSTERS}:
        for access in ("aligned", "elements"):
            yield rf"cutlass_fused::{kernel}<{x}, .*{ACCESS[access]}"
    if row.name == "row_softmax":
        outputs = TYPES if row.type == "kFloat32" else (row.type, "kFloat32")
        for y in map(name_type, outputs):
            for shape in ("FewElements", "MoreElements", "ManyElements"):
                for prologue in ("Identity", "Scaled"):
                    names = rf"{x}, {y}, .*::{prologue}, .*::{shape}, {aligned}"
                    yield rf"cutlass_fused::row_softmax<{names}"
            yield rf"cutlass_fused::row_softmax_wide<{x}, {y}, {aligned}"
        yield rf"cutlass_fused::row_softmax_wide<{x}, {x}, {ACCESS['shifted']}"
        whole = ACCESS["whole"]
        for shape in ("FewElements", "MoreElements"):
            for access in (aligned, whole):
                names = rf"{x}, {x}, .*::UniformNormalization, .*::{shape}, {access}"
                yield rf"cutlass_fused::row_softmax<{names}"
        for prologue in ("Identity", "Scaled"):
            if row.type == "kFloat32":
                accesses = [(y, aligned) for y in outputs] + [("kFloat32", whole)]
                for shape, (y, access) in itertools.product(("1, 16", "1, 32", "2, 16"), accesses):
                    names = rf"{name_type(y)}, .*::{prologue}, .*::ShortRows<{shape}>, {access}"
                    yield rf"cutlass_fused::row_softmax_short<{names}"
            else:
                for access in (aligned, whole):
                    names = rf"{x}, {x}, .*::{prologue}, .*::OneRow<.*, {access}"
                    yield rf"cutlass_fused::row_softmax<{names}"
            yield rf"cutlass_fused::row_softmax_stream<{x}, cutlass_fused::{prologue}>"
    if row.name == "batch_norm_cluster":
        pieces = [
            (16 // SIZES[row.type], lanes, rows) for lanes in (2, 4, 8, 16) for rows in (0, 4)
        ]
        for width, lanes, rows in [*pieces, (1, 32, 0), (1, 32, 16)]:
            block = rf"cutlass_fused::ClusterBlock<{x}, {width}, {lanes}, 256, {rows}>"
            yield rf"cutlass_fused::batch_norm_cluster<{block}"
    if row.name == "batch_norm":
        for access in (aligned, ACCESS["shifted"]):
            for scale in ("Vector", "BatchNormScale"):
                yield rf"cutlass_fused::normalize<{x}, .*::NormalizationBy<.*::{scale}>, {access}"
            yield rf"cutlass_fused::normalize<{x}, .*::ScaledNormalization, {access}"


def test_every_standalone_kernel_is_there(resources, demangled, real_architectures):
    patterns = [p for row in list_standalone_kernels() for p in list_variants(row)]
    patterns += MIXED_KERNELS + SHORT_K_KERNELS
    patterns += [rf"cutlass_fused::{kernel}[<(]" for kernel in STANDALONE[None]]
    patterns += [
        rf"cutlass_fused::{kernel}<cutlass_fused::{name}[,>]"
        for kernel in WITH_EPILOGUE
        for name in NAMES
    ]
    patterns += [rf"(repair_rows|gemm)_tf32x3<.*, cutlass_fused::{name}>" for name in NAMES]
    patterns += [
        rf"cutlass_fused::{kernel}<{low}, {aligned}{held}, {way}>"
        for kernel, held, ways in SPLITS
        for low, aligned, way in itertools.product(("false", "true"), ("false", "true"), ways)
    ]
    for arch in real_architectures["Sm80"]:
        names = [demangled[kernel] for found, kernel in resources if found == arch]
        missing = [p for p in patterns if not any(map(re.compile(p).search, names))]
        assert not missing, f"{arch} has no {missing}"


def test_kernels_spill_nothing(resources, demangled):
    spilling = [
        f"{arch} {demangled[kernel]}: stack {usage['STACK']}, local {usage['LOCAL']} bytes"
        for (arch, kernel), usage in resources.items()
        if usage["STACK"] or usage["LOCAL"]
    ]
    assert resources
    assert not spilling, "\n".join(spilling)


def test_every_architecture_was_looked_at(instructions, resources, real_architectures):
    assert instructions.keys() == resources.keys()
    assert {arch for arch, _ in resources} == set().union(*real_architectures.values())


@pytest.mark.parametrize("instruction", HOLDERS)
def test_kernels_hold(instruction, instructions, demangled, real_architectures):
    group, *patterns = HOLDERS[instruction]
    holders, others = map(re.compile, patterns)
    names = {key: demangled[key[1]] for key in instructions}
    must = [key for key, name in names.items() if holders.search(name) and not others.search(name)]
    assert bool(must) == bool(real_architectures[group])
    without = [f"{key[0]} {names[key]}" for key in must if instruction not in instructions[key]]
    assert not without, "\n".join(without)


def test_kernels_that_start_early_wait(instructions, demangled):
    """Those that are launched while the kernel before them ends: all that 9.0 has code of its own
    for, but those of SM80 that multiply, and what is launched beside them."""
    products = rf"{GEMM_SM90}|{TF32X3_SM90}|{REPAIR}"
    early = re.compile(rf"{products}|{APPLY_EPILOGUE}|{WITHOUT_PRODUCT.pattern}")
    names = {key: demangled[key[1]] for key in instructions if key[0].startswith("sm_90")}
    must = [key for key, name in names.items() if early.search(name)]
    assert bool(must) == bool(names)
    # What is read behind the wait was not constant before.
    wrong = [
        f"{key[0]} {names[key]}"
        for key in must
        if "ACQBULK" not in instructions[key] or "LDG_CONSTANT" in instructions[key]
    ]
    assert not wrong, "\n".join(wrong)


def test_weights_are_asked_for_before_the_wait(instructions, demangled):
    """By the kernels of few rows, those that slice K."""
    of_few_rows = re.compile(rf"{GEMM_SM90}.*\(cutlass_fused::ScheduleSm90\)[34]")
    names = {key: demangled[key[1]] for key in instructions if key[0].startswith("sm_90")}
    must = [key for key, name in names.items() if of_few_rows.search(name)]
    assert bool(must) == bool(names)
    without = [f"{key[0]} {names[key]}" for key in must if "PREFETCH" not in instructions[key]]
    assert not without, "\n".join(without)


def without_product(instructions, demangled):
    """(architecture, name, instructions) of the kernels for batch norm and softmax."""
    found = [
        (arch, demangled[kernel], held)
        for (arch, kernel), held in instructions.items()
        if WITHOUT_PRODUCT.search(demangled[kernel])
    ]
    assert found
    return found


def test_aligned_rows_are_read_and_written_16_bytes_at_a_time(instructions, demangled):
    wrong = []
    for arch, name, held in without_product(instructions, demangled):
        wanted = {"LDG_128"}
        if "column_statistics" not in name:  # whose partial statistics are no rows of a matrix
            wanted |= {"STG_64" if NARROWING.search(name) else "STG_128"}
        wide = "|".join(ACCESS[access] for access in ("aligned", "shifted", "whole"))
        if re.search(wide, name) and not wanted <= held:
            wrong.append(f"{arch} {name}: no {wanted - held}")
        if re.search(ACCESS["elements"], name) and held & wanted:
            wrong.append(f"{arch} {name}: reads or writes rows of any alignment by {held & wanted}")
    assert not wrong, "\n".join(wrong)


def test_passes_write_16_bytes_at_a_time(instructions, demangled):
    """An assignment of 16 bytes may become four stores, which all write parts of what L2 has."""
    wide = (
        "(?:leaky_relu|apply_batch_norm)_gradient<.*, true>",
        "differentiate_batch_norm_on_chip<",
        "apply_epilogue<.*, true, (?:true|false)>",
    )
    for kernel in wide:
        pattern = re.compile(rf"cutlass_fused::{kernel}")
        found = [key for key in instructions if pattern.search(demangled[key[1]])]
        without = [
            f"{key[0]} {demangled[key[1]]}" for key in found if "STG_128" not in instructions[key]
        ]
        assert found and not without, "\n".join(without)


def test_streams_of_rows_copy_in_bulk_and_write_16_bytes_at_a_time(instructions, demangled):
    streams = re.compile(rf"cutlass_fused::(?:{'|'.join(STREAMS)})<")
    wanted = {"UBLKCP", "STG_128"}
    for arch, name, held in without_product(instructions, demangled):
        if streams.search(name):
            assert held & wanted == (wanted if arch.startswith("sm_90") else set()), (arch, name)


def test_clusters_copy_16_bytes_at_a_time_where_rows_are_aligned(instructions, demangled):
    """Into shared memory past the registers, where that holds the rows."""
    wide = {"LDG_128", "LDGSTS", "STG_128"}
    block = re.compile(rf"cutlass_fused::(?:{'|'.join(CLUSTERS)})<.*, (\d+), \d+, 256, (\d+)>")
    for arch, name, held in without_product(instructions, demangled):
        if arch.startswith("sm_90") and (match := block.search(name)):
            width, rows = map(int, match.groups())
            kept = {"LDG_128" if rows else "LDGSTS", "STG_128"}
            assert held & wide == (kept if width > 1 else set()), name


def test_kernels_without_a_product_have_no_atomics(instructions, demangled):
    """The order of a sum would be that of the blocks: two runs would differ."""
    # Stream-K counts its tiles with atomics: the pattern finds those.
    assert any("ATOMIC" in held for held in instructions.values())
    clusters = re.compile(rf"cutlass_fused::(?:{'|'.join(CLUSTERS)})<")
    counters = re.compile(rf"cutlass_fused::(?:{'|'.join(COUNTERS)})<")
    for arch, name, held in without_product(instructions, demangled):
        unwanted = {"HMMA"} | (set() if clusters.search(name) else {"LDGSTS"})
        unwanted |= set() if counters.search(name) else {"ATOMIC"}
        assert not held & unwanted, (arch, name)
