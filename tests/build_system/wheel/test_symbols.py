"""Which distributions a library can be loaded on, and how `make wheel` links for older ones."""

import ctypes
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from build_system import architectures, flags, ninja_file, wheel
from build_system.cuda_toolkit import CudaToolkit
from build_system.cutlass_headers import CutlassHeaders
from build_system.host_compiler import name_host_compiler
from build_system.paths import PACKAGE, ROOT, SWITCH
from build_system.torch_library import TorchLibrary
from build_system.wheel import old_libraries, symbols
from cutlass_fused import _library

needs_compiler = pytest.mark.skipif(
    shutil.which(name_host_compiler()) is None or shutil.which("objdump") is None,
    reason="there is no C++ compiler or no objdump",
)
# What the library asks for that older systems lack: threads, the loader, a mathematical function
# with two versions, files, strings, and what the C++ library's headers call.
SOURCE = """\
#include <dlfcn.h>
#include <pthread.h>
#include <sys/stat.h>

#include <cmath>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

extern "C" __attribute__((visibility("default"))) int run(double x, unsigned long count) {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_done = false;
  std::exception_ptr caught;
  std::thread thread([&] {
    try {
      std::stringstream text;
      text << "power " << std::pow(x, 2.0);
      throw std::runtime_error(text.str());
    } catch (...) {
      caught = std::current_exception();
    }
    std::lock_guard<std::mutex> lock(mutex);
    is_done = true;
    changed.notify_all();
  });
  std::unique_lock<std::mutex> lock(mutex);
  while (!is_done) changed.wait(lock);
  lock.unlock();
  thread.join();
  std::exception_ptr copy = caught;
  std::string said;
  try {
    std::rethrow_exception(copy);
  } catch (std::runtime_error const& error) {
    said = error.what();
  }
  struct stat found;
  bool const is_folder = stat("/", &found) == 0 && S_ISDIR(found.st_mode);
  bool const is_refused = [&] {
    try {
      return std::vector<double>(count).size() == 0;
    } catch (std::exception const&) {
      return true;
    }
  }();
  void* const self = dlopen(nullptr, RTLD_NOW);
  return said == "power 9" && is_folder && is_refused && self != nullptr ? 42 : 0;
}
"""


def compile_library(folder, *flags):
    compiler = name_host_compiler()
    (folder / "a.cpp").write_text(SOURCE)
    command = [compiler, "-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", "-shared"]
    command += ["-Wl,--as-needed", "-Wl,-z,defs", "-Wl,--exclude-libs,ALL", folder / "a.cpp"]
    command += [*flags, "-ldl", "-lpthread", "-o", folder / "a.so"]
    done = subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "a.so"


def list_exported(library):
    command = ["nm", "-D", "--defined-only", library]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {line.split()[-1] for line in done.stdout.splitlines()}


@needs_compiler
def test_library_for_older_systems_loads_here(tmp_path, monkeypatch):
    """It asks for nothing newer, does all that it did, and shows nothing of what it holds."""
    monkeypatch.setattr(old_libraries, "FOLDER", tmp_path / "old")
    monkeypatch.setattr(old_libraries, "OBJECT", tmp_path / "old/old_glibc.o")
    plain = compile_library(tmp_path)
    if not symbols.list_newer(plain, symbols.OLDEST):
        pytest.skip("this system is as old")
    exported = list_exported(plain)
    old_libraries.write_libraries(name_host_compiler())
    older = compile_library(tmp_path, *old_libraries.link_flags(name_host_compiler()))
    assert symbols.list_newer(older, symbols.OLDEST) == []
    assert symbols.find_tag([older]) == "manylinux_2_28_x86_64"
    assert list_exported(older) == exported and "run" in exported
    # In a process of its own: a library that is wrong may end it.
    code = f"""
import ctypes
run = ctypes.CDLL({str(older)!r}).run
run.argtypes = ctypes.c_double, ctypes.c_ulong
print(run(3.0, 1 << 62))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "42\n", done.stderr


@needs_compiler
def test_older_libraries_have_the_newest_old_version(monkeypatch):
    arranged = old_libraries.arrange(name_host_compiler())
    for library in arranged.values():
        assert all(symbols.is_within(symbol, symbols.OLDEST) for symbol in library.values())
    assert arranged["libm.so.6"]["exp"].version <= (2, 28)
    # A library that has moved what it held needs the one of that name on older systems.
    here = {s.name: s for s in symbols.read_symbols(find_libc()) if s.is_default}
    homes = {"pthread_create": "libpthread.so.0", "sem_post": "libpthread.so.0"}
    homes |= {"dlopen": "libdl.so.2", "shm_open": "librt.so.1"}
    for name, home in homes.items():
        if here[name].version > (2, 28):
            assert name in arranged[home] and name not in arranged["libc.so.6"]


def find_libc():
    return old_libraries.find_file(name_host_compiler(), "libc.so.6")


def read_ours():
    libraries = [_library.library_path(), ROOT / PACKAGE / SWITCH.name]
    found = [library for library in libraries if library.is_file()]
    if not found:
        pytest.skip("the library was not built in this checkout")
    return found


@needs_compiler
def test_our_libraries_can_be_linked_for_older_systems():
    """Each newer symbol has an older version, or comes from an archive or from old_glibc.c."""
    arranged = old_libraries.arrange(name_host_compiler()).values()
    known = {name for library in arranged for name in library}
    source = (ROOT / old_libraries.SOURCE).read_text()
    known |= set(re.findall(r"\b(\w+)(?:\(| = )", source))
    known |= {
        f"__isoc23_{name}" for name in re.findall(r"^CUTLASS_FUSED_READ\(.*, (\w+)\)", source, re.M)
    }
    archive = old_libraries.find_file(name_host_compiler(), "libstdc++.a")
    command = ["nm", "--defined-only", "--extern-only", archive]
    done = subprocess.run(command, capture_output=True, text=True)
    known |= {line.split()[-1] for line in done.stdout.splitlines() if line.strip()}
    for library in read_ours():
        newer = symbols.list_newer(library, symbols.OLDEST)
        assert not [each for each in newer if each.split()[1] not in known]


@needs_compiler
def test_tag_of_our_libraries():
    """An ordinary build runs where this C library is, one by `make wheel` on older systems too."""
    tag = symbols.find_tag(read_ours())
    oldest = tuple(map(int, re.match(r"manylinux_(\d+)_(\d+)_", tag).groups()))
    for library in read_ours():
        assert symbols.list_newer(library, oldest) == []
    gnu_get_libc_version = ctypes.CDLL(None).gnu_get_libc_version
    gnu_get_libc_version.restype = ctypes.c_char_p
    here = tuple(map(int, gnu_get_libc_version().decode().split(".")))
    assert oldest <= max(here, (2, 28))


LINES = """\
DYNAMIC SYMBOL TABLE:
0000000000000000      DF *UND*\t0000000000000000 (GLIBC_2.34) dlopen
0000000000000000      DO *UND*\t0000000000000000  GLIBC_2.17  stdout
0000000000000000  w   DF *UND*\t0000000000000000 (CXXABI_1.3.13) _ZNSt15__exception_ptr1
0000000000000000      D  *UND*\t0000000000000000  Base        plain
0000000000000000 g    DO *ABS*\t0000000000000000  GLIBC_2.2.5 GLIBC_2.2.5
0000000000109530 g    DF .text\t000000000000004c (GLIBC_2.2.5) pow
00000000000392b0 g   iD  .text\t00000000000000b5  GLIBC_2.29  pow
0000000000000018 g    D  .tbss\t0000000000000008  GLIBCXX_3.4.11 .hidden _ZSt11__once_call
"""


def test_lines_of_objdump(monkeypatch):
    done = subprocess.CompletedProcess([], 0, LINES)
    monkeypatch.setattr(symbols.subprocess, "run", lambda *_, **__: done)
    assert [tuple(symbol) for symbol in symbols.read_symbols("a.so")] == [
        ("dlopen", "GLIBC", (2, 34), False, False, "function"),
        ("stdout", "GLIBC", (2, 17), False, False, "object"),
        ("_ZNSt15__exception_ptr1", "CXXABI", (1, 3, 13), False, False, "function"),
        ("pow", "GLIBC", (2, 2, 5), True, False, "function"),
        ("pow", "GLIBC", (2, 29), True, True, "function"),
        ("_ZSt11__once_call", "GLIBCXX", (3, 4, 11), True, True, "tls_object"),
    ]
    assert symbols.list_newer("a.so", (2, 31)) == [
        "CXXABI_1.3.13 _ZNSt15__exception_ptr1",
        "GLIBC_2.34 dlopen",
    ]


@pytest.mark.parametrize(
    "family, version, expected",
    [
        ("GLIBC", (2, 28), "manylinux_2_28_x86_64"),
        ("GLIBC", (2, 29), "manylinux_2_31_x86_64"),
        ("GLIBC", (2, 34), "manylinux_2_34_x86_64"),
        ("GLIBC", (2, 36), "linux_x86_64"),
        ("GLIBCXX", (3, 4, 25), "manylinux_2_31_x86_64"),
        ("GLIBCXX", (3, 4, 30), "manylinux_2_35_x86_64"),
        ("CXXABI", (1, 3, 13), "manylinux_2_34_x86_64"),
        ("GCC", (3, 0), "manylinux_2_28_x86_64"),
        ("OPENSSL", (3, 0), "linux_x86_64"),
    ],
)
def test_tag_is_true_of_every_symbol(monkeypatch, family, version, expected):
    asked = [symbols.Symbol("f", family, version, False, False, "function")]
    monkeypatch.setattr(symbols, "read_symbols", {"a": [], "b": asked}.get)
    assert symbols.find_tag(["a", "b"]) == expected


def test_no_library_has_no_tag():
    with pytest.raises(ValueError, match="there must be a library"):
        symbols.find_tag([])


def test_only_a_wheel_for_other_machines_is_linked_so(monkeypatch):
    """In front of torch, and again when what is linked with it has changed."""
    tools = flags.Tools(
        CudaToolkit(Path("/nvcc"), Path("/include"), Path("/libcudart.a"), (13, 0)),
        CutlassHeaders(Path("/cutlass"), Path("/util"), "4.2.0"),
        TorchLibrary(Path("/torch/include"), Path("/torch/lib"), "2.11.0"),
        "g++",
        [],
    )
    monkeypatch.setattr(old_libraries, "find_file", lambda compiler, name: Path("/lib", name))
    monkeypatch.delenv(wheel.VARIABLE, raising=False)
    assert "old_libraries" not in ninja_file.format_ninja(tools, [])
    monkeypatch.setenv(wheel.VARIABLE, "1")
    words = flags.link_flags(tools)
    order = [words.index(word) for word in ("-lstdc++", "/lib/libstdc++.a", "/torch/lib")]
    assert order == sorted(order) and words.index(str(old_libraries.FOLDER)) < order[0]
    text = ninja_file.format_ninja(tools, [])
    assert text.count(f" | /libcudart.a {old_libraries.OBJECT}\n") == 2


def test_a_wheel_for_other_machines_is_for_the_usual_gpus(monkeypatch):
    monkeypatch.delenv(architectures.VARIABLE, raising=False)
    monkeypatch.setattr(architectures, "detect_gpus", lambda: [(8, 9)])
    supported = {"sm_80", "sm_89", "sm_90"}
    monkeypatch.setenv(wheel.VARIABLE, "0")
    assert list(map(str, architectures.choose_architectures(supported))) == ["8.9"]
    monkeypatch.setenv(wheel.VARIABLE, "1")
    assert list(map(str, architectures.choose_architectures(supported))) == ["8.0", "9.0a"]
