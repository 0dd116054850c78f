"""Open kernels: the file that they are packed in, and what the library knows of them."""

import ctypes
import json
import re

import pytest
import torch
from open_pack import read_pack

import cutlass_fused  # noqa: F401  (loads the library)
from build_system import open_kernels
from build_system.architectures import ARCH_GROUPS
from build_system.paths import COMMON_KERNELS, OPEN_KERNELS, PACKAGE, ROOT
from kernels.open_table import (
    DERIVED,
    FROM,
    REPAIRS,
    list_kernel_files,
    list_open_kernels,
    list_open_tf32x3,
)
from kernels.table import MATH_ROWS

LIBRARY = ROOT / PACKAGE / "libcutlass_fused.so"
PACK = ROOT / PACKAGE / OPEN_KERNELS.name
# What travels to a machine with a GPU is 64 MiB in all.
MAX_BYTES_TOGETHER = 52 * 2**20

ROWS, COLUMNS, SCALARS, TILES = range(0, 4), range(4, 6), range(6, 10), range(10, 12)
OUTPUTS = range(12, 14)  # beside y
MARKS = {
    "USED": r"mov\.b32 (%r\d+), 0; // CUTLASS_FUSED_USED (\d+) \1",
    "SIZE": r"mov\.b32 (%r\d+), 0; // CUTLASS_FUSED_SIZE (\d+) \1",
    "PACK": r"mov\.b32 (%r\d+), 0; // CUTLASS_FUSED_PACK (\d+) \1 %[fr]\d+ %[fr]\d+",
    "FETCH": r"mov\.b32 (%r\d+), 0; // CUTLASS_FUSED_FETCH (\d+) \1 %rd\d+ (?:%rd\d+|0) %r\d+",
    "CONVERT": r"mov\.b32 (%[fr]\d+), (%r\d+); // CUTLASS_FUSED_CONVERT (\d+) \1 \2",
    "LOAD": r"mov\.f32 (%[fr]\d+), 0f00000000; // CUTLASS_FUSED_LOAD (\d+) \1 %rd\d+ %rd\d+ %r\d+",
    "STORE": r"// CUTLASS_FUSED_STORE (\d+) %rd\d+ (?:%rd\d+|\d+) %r\d+ %[fr]\d+",
    "APPLY": r"mov\.f32 (%[fr]\d+), (%[fr]\d+); // CUTLASS_FUSED_APPLY \1"
    r" %[fr]\d+ %[fr]\d+ \2(?: %[fr]\d+){12}",
}


@pytest.fixture(scope="module")
def texts():
    """Of the built library: PTX by name."""
    if not PACK.is_file():
        pytest.skip("the library was not built")
    return read_pack(PACK.read_bytes())


def test_a_pack_is_what_it_says():
    head = ".version 9.0\n.target sm_80\n.address_size 64\n.global .align 1 .b8 unused[1];\n"
    head += ".extern .shared .align 16 .b8 memory[];\n"
    body = "(\n\t.param .b64 p\n)\n{\n\tmov.b64 \t%rd1, memory;\n\t// a comment\n\tret;\n}\n"
    kernels = open_kernels.split(head + "".join(f".visible .entry {n}{body}" for n in ("b", "a")))
    texts = read_pack(open_kernels.pack(kernels))
    assert list(texts) == ["a", "b"]
    assert texts["a"].count(".entry") == 1 and ".entry a(" in texts["a"]
    assert "unused" not in texts["a"] and "memory[]" in texts["a"]
    assert "comment" not in texts["a"]


def test_damage_is_noticed():
    data = bytearray(open_kernels.pack({"a": ".target sm_90a\n"}))
    data[40] ^= 1
    with pytest.raises(AssertionError):
        read_pack(bytes(data))


def test_kernels_of_fp16_follow_from_those_of_bf16():
    text = """.visible .entry k_bf16_t(
wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1}, %rd1, %rd2, p, 1, 1, 0, 0;
mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1}, {%r1}, {%r2}, {%f1};
cvt.rn.bf16x2.f32 %r3, %f2, %f1;
cvt.rn.bf16.f32 %rs1, %f1;
"""
    (derived,) = open_kernels.derive_f16({"k_bf16_t": text, "k_fp16x1_t": text}).items()
    assert derived == ("k_f16_t", text.replace("bf16", "f16"))
    with pytest.raises(ValueError, match="sub.bf16"):
        open_kernels.derive_f16({"k_bf16_t": text + "sub.bf16 %rs1, %rs2, %rs3;\n"})


def test_every_kernel_of_the_table_is_packed(texts):
    kernels = [*list_open_kernels(), *list_open_tf32x3()]
    assert len({kernel.name for kernel in kernels}) == len(kernels)
    targets = {kernel.name: ARCH_GROUPS[kernel.arch].virtual for kernel in kernels}
    expected = {**targets, **dict.fromkeys(REPAIRS, ARCH_GROUPS["Sm80"].virtual)}
    assert {
        name: open_kernels.read_arch(text).replace("sm", "compute") for name, text in texts.items()
    } == expected


def test_every_marked_line_has_its_form(texts):
    """src/link/open/fill_kernel.cpp reads them."""
    for name, text in texts.items():
        lines = [line for line in text.splitlines() if "CUTLASS_FUSED" in line]
        for line in lines:
            (word,) = re.findall(r"// CUTLASS_FUSED_(\w+)", line)
            assert re.fullmatch(MARKS[word], line), f"{name}: {line}"
        assert sum("CUTLASS_FUSED_APPLY" in line for line in lines) > 0, name
        assert "//" not in re.sub("// CUTLASS_FUSED", "", text), name


def list_slots(text, word):
    return {int(slot) for slot in re.findall(rf"CUTLASS_FUSED_{word} (\d+) ", text)}


def test_every_slot_is_read_and_every_output_written(texts):
    for name, text in texts.items():
        vectors = {*ROWS, *COLUMNS, *SCALARS}
        assert list_slots(text, "FETCH") == vectors, name
        assert list_slots(text, "STORE") == set(OUTPUTS), name
        # By TMA, or by loads of pieces, which are converted behind, and of elements.
        by_tma = set(TILES) - list_slots(text, "LOAD")
        assert by_tma in (set(), {TILES[0]}), name
        converted = list_slots(text, "CONVERT")
        in_pieces = list_slots(text, "PACK") != set()
        assert converted == vectors | (set(TILES) if in_pieces else by_tma), name
        assert in_pieces == ("sm90" in name and "split" not in name), name
        assert not list_slots(text, "USED") - {*vectors, *TILES, *OUTPUTS}, name
        assert not list_slots(text, "SIZE") - {*vectors, *TILES, *OUTPUTS}, name


def test_kernels_for_one_gpu_wait_for_the_kernel_before(texts):
    """They are launched while that one ends; those for every GPU are not."""
    for name, text in texts.items():
        assert ("griddepcontrol.wait" in text) == (".target sm_90a" in text), name


def test_the_library_knows_every_kernel(texts):
    library = ctypes.CDLL(str(LIBRARY))
    find = library.cutlass_fused_open_kernel
    find.restype = ctypes.c_char_p
    maths = [row.row for row in MATH_ROWS]
    for kernel in list_open_kernels():
        numbers = (ctypes.c_int * 3)()
        arch = list(ARCH_GROUPS).index(kernel.arch)
        name = find(arch, maths.index(kernel.math), kernel.index, ctypes.byref(numbers))
        assert name is not None and name.decode() == kernel.name
        param_bytes, shared_memory, reads_source = numbers
        text = texts[kernel.name]
        assert re.search(r"\.param .*_param_0\[(\d+)\]", text)[1] == str(param_bytes), kernel.name
        # What a GPU lends to a block, at most.
        assert 0 < shared_memory <= (227 if kernel.arch == "Sm90" else 163) * 2**10, kernel.name
        assert bool(reads_source) == (TILES[0] not in list_slots(text, "LOAD")), kernel.name


def test_the_library_knows_every_kernel_of_tf32x3(texts):
    tiles = json.loads(torch.ops.cutlass_fused.build_info())["tiles_tf32x3"]
    find = ctypes.CDLL(str(LIBRARY)).cutlass_fused_open_tf32x3
    find.restype = ctypes.c_char_p
    kernels = list_open_tf32x3()
    assert len(kernels) == 2 * sum("sm90" not in tile for tile in tiles)
    for kernel in kernels:
        assert f"{kernel.shape}.tf32x3" == tiles[kernel.index]
        numbers = (ctypes.c_int * 3)()
        name = find(kernel.index, kernel.in_tf32, ctypes.byref(numbers))
        assert name is not None and name.decode() == kernel.name
        param_bytes, shared_memory, reads_source = numbers
        text = texts[kernel.name]
        assert re.search(r"\.param .*_param_0\[(\d+)\]", text)[1] == str(param_bytes)
        assert 0 < shared_memory <= 227 * 2**10 and not reads_source
        products = len(re.findall(r"^mma\.sync", text, re.M))
        assert products > 0 and (kernel.in_tf32 or products % 3 == 0)
    assert find(len(kernels), False, ctypes.byref(numbers)) is None


def test_kernels_of_fp16_are_not_compiled_twice(texts):
    derived = [kernel for kernel in list_open_kernels() if kernel.math == DERIVED]
    assert derived
    for kernel in derived:
        text = texts[kernel.name]
        assert "bf16" not in text and ".f16.f16" in text
        assert not any(kernel.name in file.source for file in list_kernel_files())
        compiled = texts[kernel.name.replace(DERIVED.lower(), FROM.lower())]
        assert text == compiled.replace("bf16", "f16")


def test_the_library_and_its_kernels_fit(texts):
    common = PACK.with_name(COMMON_KERNELS.name)  # left out where there was no NVRTC
    files = [LIBRARY, PACK, *([common] if common.is_file() else [])]
    assert sum(file.stat().st_size for file in files) < MAX_BYTES_TOGETHER
