"""Every kernel that a plan can name is registered in the built library."""

import ctypes
import itertools
import json
import re

import pytest
import torch
from host_program import compile_host_program
from plans import GPUS, NUMERICS, Host, list_calls

import cutlass_fused  # noqa: F401  (loads the library)
from build_system.paths import PACKAGE, ROOT
from kernels.table import EPILOGUES, EPILOGUES_OF_FP32

LIBRARY = ROOT / PACKAGE / "libcutlass_fused.so"
pytestmark = pytest.mark.skipif(not LIBRARY.is_file(), reason="the library was not built")

# Epilogues that plans name by themselves, and those that ops name.
OWN_EPILOGUES = {"scale_bias.statistics", "batch_norm.group", "scale_batch_norm.logits"}


@pytest.fixture(scope="module")
def library():
    """What src/kernels/registry.cpp exports."""
    library = ctypes.CDLL(str(LIBRARY))
    for name in ("kernel", "tf32x3", "epilogue"):
        getattr(library, f"cutlass_fused_has_{name}").restype = ctypes.c_bool
    return library


@pytest.fixture(scope="module")
def epilogues():
    """The epilogues by their names in the registry."""
    return read_names(EPILOGUES)


def read_names(table):
    texts = [(ROOT / "include" / header).read_text() for header in table.values()]
    return {re.search(r'kName\[\] = "(\w+)"', text)[1] for text in texts}


# Those of products of fp32 matrices, which have some of the kernels.
OF_FP32 = read_names(EPILOGUES_OF_FP32)


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """Those of all plans: every kind of call, rows of any alignment, every tile forced."""
    host = Host(compile_host_program("plan", tmp_path_factory.mktemp("registry")))
    calls = list_calls()
    for numerics, tail in itertools.product(
        NUMERICS,
        (
            {"epilogue": "scale_leaky_relu"},
            {"epilogue": "scale_batch_norm"},
            *({"epilogue": name} for name in OF_FP32),
            {"tail": "batch_norm"},
        ),
    ):
        if tail.get("epilogue") in OF_FP32 and NUMERICS[numerics]["dtype"] != "float32":
            continue
        call = {"m": 1024, "n": 1024, "k": 1024} | NUMERICS[numerics] | tail
        calls += [
            call | gpu | {"forced": tile}
            for gpu in GPUS.values()
            for tile in host.list_tiles(numerics)
        ]
        calls += [call | GPUS["A100"] | {"align_x": align} for align in (4, 2)]
    plans = host.make_plans(calls)
    return sorted({plan.kernel for plan in plans} - {"-"})


def has_kernel(library, kernel):
    *numbers, epilogue = kernel.split()
    return library.cutlass_fused_has_kernel(*map(int, numbers), epilogue.encode())


def test_every_kernel_of_a_plan_is_registered(library, kernels, epilogues):
    named = {kernel.split()[-1] for kernel in kernels}
    assert named == epilogues | OF_FP32 | OWN_EPILOGUES
    info = json.loads(torch.ops.cutlass_fused.build_info())
    tiles = {name: len(names) for name, names in info.items() if name.startswith("tiles_sm90")}
    if not any(tiles.values()):
        kernels = [kernel for kernel in kernels if kernel[0] == "0"]
    # Each tile of each table and each Math row, with each epilogue of an op.
    plain = [kernel for kernel in kernels if kernel.split()[-1] in epilogues and kernel[0] == "1"]
    rows = {"": 2, "_fp16x3": 1, "_fp16x1": 1}
    assert len(plain) == len(epilogues) * sum(
        count * tiles[f"tiles_sm90{row}"] for row, count in rows.items()
    )
    # Every tile of 9.0 for pairs has the others too.
    some = [kernel for kernel in kernels if kernel.split()[-1] in OF_FP32]
    assert len(some) == len(OF_FP32) * tiles["tiles_sm90_fp16x3"]
    assert not [kernel for kernel in kernels if not has_kernel(library, kernel)]


def test_what_no_plan_names_is_not_registered(library):
    for kernel in ("0 1 99 scale_leaky_relu", "1 1 0 unknown", "0 4 0 scale_leaky_relu"):
        assert not has_kernel(library, kernel)
    assert not has_kernel(library, "1 1 -2 scale_leaky_relu")  # only SM80 kernels read such rows


def test_products_as_they_lie_are_registered(library, epilogues):
    """With each epilogue by SM80 kernels, and with some by those for 9.0, where it has tiles."""
    tiles = json.loads(torch.ops.cutlass_fused.build_info())["tiles_tf32x3"]
    own = {"scale_leaky_relu", *OF_FP32} if any(".sm90" in tile for tile in tiles) else set()
    for arch, expected in enumerate((epilogues | OF_FP32, own, set())):
        for name in (*epilogues, *OF_FP32, "unknown"):
            found = library.cutlass_fused_has_tf32x3(arch, name.encode())
            assert found == (name in expected), (arch, name)


def test_what_launches_open_products_as_they_lie_is_registered(library):
    """Where a build has kernels for 9.0, for which those are."""
    tiles = json.loads(torch.ops.cutlass_fused.build_info())["tiles_tf32x3"]
    found = [library.cutlass_fused_has_tf32x3(arch, b"open") for arch in range(3)]
    assert found == [any(".sm90" in tile for tile in tiles), False, False]


def test_epilogues_are_registered(library, epilogues):
    """For CUDA cores, behind cuBLAS, and to repair rows."""
    for name in epilogues | OF_FP32:
        assert library.cutlass_fused_has_epilogue(name.encode())
    assert not library.cutlass_fused_has_epilogue(b"unknown")
