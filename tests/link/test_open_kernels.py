"""The pack of open kernels is read whole, or not at all."""

import ctypes
import hashlib
import pathlib
import shutil
import subprocess

import pytest
from open_texts import compile_link_program

from build_system import open_kernels
from build_system.host_compiler import name_host_compiler
from build_system.paths import ROOT

SANITIZED = ("-Wextra", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
TEXTS = {
    "b": ".version 9.0\n.target sm_90a\nsome text\n",
    "a": ".version 9.0\n.target sm_80\n.param .align 8 .b8 a_param_0[8]\nanother\n",
}


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("open_kernels")
    return compile_link_program("open_kernels", folder, *SANITIZED)


@pytest.fixture
def read(program, tmp_path):
    """What is said of each of some files."""

    def run(*files):
        paths = []
        for i, data in enumerate(files):
            paths.append(tmp_path / f"{i}.bin")
            if data is not None:
                paths[-1].write_bytes(data)
        result = subprocess.run([program, *paths], capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        answers = result.stdout.split("====\n")[:-1]
        return [
            answer.rstrip("\n").removeprefix(f"{path}: ")
            for path, answer in zip(paths, answers, strict=True)
        ]

    return run


def replace_in_list(data, old, new):
    """With a sum that is right, as where another version wrote it."""
    head, _, rest = data.partition(b"\n\n")
    head = (head + b"\n\n").replace(old, new)
    return head + hashlib.sha256(head[: head.index(b"\n\n") + 2]).digest() + rest[32:]


def test_pack(read):
    """As the build writes it."""
    (found,) = read(open_kernels.pack(TEXTS))
    assert found == f"a compute_80 8 {TEXTS['a']}\nb sm_90a 0 {TEXTS['b']}".rstrip("\n")


def test_empty_pack(read):
    assert read(open_kernels.pack({})) == [""]


def test_damaged(read):
    """Each byte and each length: nothing is read, or a text counts as damaged, or is right."""
    whole = open_kernels.pack(TEXTS)
    texts = whole.index(b"\n\n") + 2 + 32
    damaged = [whole[:i] + bytes([whole[i] ^ 4]) + whole[i + 1 :] for i in range(len(whole))]
    found = read(*damaged)
    errors = {"its sum is wrong", "it is no pack of open kernels", "it is cut off"}
    assert set(found[:texts]) <= errors
    # Some bits say nothing of the text.
    right, *others = read(whole), *found[texts:]
    assert all("damaged" in answer or answer == right[0] for answer in others)
    assert sum("damaged" in answer for answer in others) > 0.9 * len(others)
    cut = read(*[whole[:i] for i in range(len(whole))])
    assert set(cut) <= errors | {"there is no such file, or nothing in it"}
    assert read(whole + b"\0") == ["there is something behind it"]


@pytest.mark.parametrize(
    "old, new, error",
    [
        (b"kernels 2", b"kernels 1", "it is no pack of open kernels"),
        (b"sm_90a ", b"sm_100a ", "it has kernels for sm_100a"),
        (b"\nb sm", b"\na sm", "its list is not sorted"),
        (b"\nb sm", b"\n0 sm", "its list is not sorted"),
        (b"\nb sm_90a ", b"\nb sm_90a -", "a line of its list is wrong"),
        (b"\nb sm_90a ", b"\nb sm_90a 9 ", "a line of its list is wrong"),
        (b"\nb sm_90a 0 ", b"\nb sm_90a 0 99999999", "a line of its list is wrong"),
        (b"\n\n", b"9\n\n", "a line of its list is wrong"),
    ],
)
def test_wrong(read, old, new, error):
    data = open_kernels.pack(TEXTS)
    assert data.partition(b"\n\n")[0].count(old) + (old == b"\n\n") == 1
    assert read(replace_in_list(data, old, new)) == [error]


def test_damaged_text(read):
    """Which is found when the kernel is asked for."""
    data, size = open_kernels.pack({"b": TEXTS["b"]}), len(TEXTS["b"])
    assert read(data[:-1] + b"\0") == ["b sm_90a 0 damaged"]
    line = f"b sm_90a 0 {size} ".encode()
    larger = line.replace(f" {size} ".encode(), b" 60000000 ")
    assert read(replace_in_list(data, line, larger)) == ["b sm_90a 0 damaged"]
    digits = hashlib.sha256(TEXTS["b"].encode()).hexdigest().encode()
    assert read(replace_in_list(data, digits, digits[::-1])) == ["b sm_90a 0 damaged"]


def test_no_file(read):
    assert read(None) == ["there is no such file, or nothing in it"]


FIND = """\
#include "link/open/open_kernels.cpp"
extern "C" char const* find(char const* name) {
  auto const& kernels = cutlass_fused::link::find_open_kernels();
  auto const* const kernel = kernels.find(name);
  return kernel == nullptr ? kernels.error().c_str() : kernel->arch.c_str();
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("library")
    (folder / "find.cpp").write_text(FIND)
    sources = [
        folder / "find.cpp",
        *(ROOT / f"src/link/open/{n}.cpp" for n in ("inflate", "sha256")),
    ]
    options = ["-std=c++17", "-fPIC", "-shared", "-fvisibility-inlines-hidden", "-I", ROOT / "src"]
    command = [name_host_compiler(), *options, *sources, "-o", folder / "library.so", "-ldl"]
    subprocess.run(list(map(str, command)), check=True)
    return folder / "library.so"


@pytest.mark.parametrize("place", ["beside", "beside the link", "beside what it leads to", "none"])
def test_found(library, tmp_path, place):
    """Beside the library, wherever it was loaded from."""
    real, loaded = tmp_path / "real", tmp_path / "loaded"
    real.mkdir()
    loaded.mkdir()
    copy = shutil.copy(library, real if "link" in place or "leads" in place else loaded)
    if pathlib.Path(copy).parent == real:
        (loaded / library.name).symlink_to(copy)
    if place != "none":
        folder = real if "leads" in place else loaded
        (folder / "open_kernels.bin").write_bytes(open_kernels.pack(TEXTS))
    find = ctypes.CDLL(str(loaded / library.name)).find
    find.restype = ctypes.c_char_p
    expected = "sm_90a"
    if place == "none":
        expected = f"{loaded}/open_kernels.bin: there is no such file, or nothing in it"
    assert find(b"b").decode() == expected
