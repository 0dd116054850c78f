"""What becomes of programs that cannot be linked."""

import subprocess
import sys
import textwrap

import pytest
from host_program import compile_host_program
from program_texts import make_program
from python_process import run_python

from build_system.cuda_toolkit import find_cuda_toolkit
from build_system.host_compiler import name_host_compiler
from build_system.paths import ROOT
from build_system.torch_library import TARGET_VERSION, find_torch
from cutlass_fused import _library

TEXT = make_program("v0 = add acc p0", "v1 = relu v0", "return v1 v0", operands=1)

# It says of each attempt that it was made, in a file.
BROKEN = """\
#include <cstdio>
#include <cstdlib>
#include <cstring>

extern "C" {
int nvrtcVersion(int* major, int* minor) { return *major = 13, *minor = 9, 0; }
char const* nvrtcGetErrorString(int) { return "NVRTC_ERROR_INTERNAL_ERROR"; }
int nvrtcCreateProgram(void** program, char const*, char const*, int, void*, void*) {
  return *program = program, 0;
}
int nvrtcCompileProgram(void*, int, char const* const*) {
  std::FILE* const file = std::fopen(std::getenv("ATTEMPTS"), "a");
  std::fputs("attempt\\n", file);
  std::fclose(file);
  return 11;
}
int nvrtcDestroyProgram(void**) { return 0; }
int nvrtcGetProgramLogSize(void*, size_t* size) { return *size = 12, 0; }
int nvrtcGetProgramLog(void*, char* log) { return std::strcpy(log, "out of luck"), 0; }
int nvrtcGetPTXSize(void*, size_t*) { return 1; }
int nvrtcGetPTX(void*, char*) { return 1; }
int nvrtcGetCUBINSize(void*, size_t*) { return 1; }
int nvrtcGetCUBIN(void*, char*) { return 1; }
}
"""


def compile_library(source, library, *options, libraries=()):
    command = [name_host_compiler(), "-std=c++17", "-O0", "-fPIC", "-shared", "-Wall", "-Werror"]
    subprocess.run([*map(str, [*command, *options, source, "-o", library, *libraries])], check=True)
    return library


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    folder = tmp_path_factory.mktemp("broken")
    (folder / "broken.cpp").write_text(BROKEN)
    return compile_library(folder / "broken.cpp", folder / "libnvrtc.so.13")


@pytest.fixture
def link(broken, tmp_path):
    """What each of these calls of link_epilogue and link_pointwise says, in one process."""
    if not _library.is_loaded():
        pytest.skip(f"the ops that link are in the library: {_library.load_error()}")

    def run(*calls, nvrtc=broken):
        code = f"""
            import torch, cutlass_fused
            ops = torch.ops.cutlass_fused
            for name, arguments in {calls!r}:
                print(repr(getattr(ops, name)(*arguments)))
        """
        environment = {"CUTLASS_FUSED_NVRTC": str(nvrtc), "ATTEMPTS": str(tmp_path / "attempts")}
        environment["CUTLASS_FUSED_CACHE_DIR"] = str(tmp_path / "cache")
        return [eval(line) for line in run_python(code, **environment).splitlines()]

    run.attempts = tmp_path / "attempts"
    return run


POINTWISE = ("link_pointwise", (TEXT, ["float32:row"], "float32", "float32", 90, 8, 8))
WITHIN = ("link_epilogue", (TEXT, ["float32:row"], "float32", "tf32", "float32", 80, 999, 512, 512))


@pytest.mark.parametrize("call", [POINTWISE, WITHIN], ids=["pointwise", "within"])
def test_remembered(link, call):
    """Each kernel is tried once in a process, with the compiler's log, and nothing is kept."""
    first, second = link(call, call)
    assert first == second and len(first) >= 1
    for answer in first:
        assert answer.startswith("refused ")
        assert answer.endswith("nvrtcCompileProgram: NVRTC_ERROR_INTERNAL_ERROR\nout of luck")
    assert link.attempts.read_text() == len(first) * "attempt\n"
    assert not link.attempts.with_name("cache").exists()


def test_without_compiler(link, tmp_path):
    ((answer,),) = link(POINTWISE, nvrtc=tmp_path / "none")
    assert answer.startswith(f"refused pointwise_4: there is no NVRTC: {tmp_path / 'none'}: ")


TORCH = ("-fvisibility=hidden", "-DUSE_CUDA", f"-DTORCH_TARGET_VERSION={TARGET_VERSION}")


@pytest.fixture(scope="module")
def linking(tmp_path_factory):
    """(stdout, stderr) of tests/host/link/linking.cpp"""
    folder = tmp_path_factory.mktemp("linking")
    options = (*TORCH, "-I", ROOT / "src", "-isystem", find_torch().include)
    compile_host_program("link/linking", folder, options=options)

    def run(*arguments):
        done = subprocess.run(
            [folder / "linking", *arguments], capture_output=True, text=True, check=True
        )
        return done.stdout, done.stderr

    return run


@pytest.mark.parametrize("is_capturing", "01")
@pytest.mark.parametrize("is_linked", "01")
def test_captured(linking, is_capturing, is_linked):
    """In a capture nothing is linked, and what is linked already is taken from the disk, which is
    not read for it otherwise."""
    said, _ = linking(is_capturing, is_linked)
    if is_capturing == "1" and is_linked == "0":
        assert "op: a program must run once before a graph is captured, of the same sizes" in said
        assert "or be linked ahead of time by python -m cutlass_fused.build_epilogues" in said
    else:
        assert said == f"linked, asked {is_capturing}\n"


def test_told_once(linking):
    _, said = linking("0", "0")
    start = "cutlass_fused: op: a program runs behind its product: "
    assert said.splitlines() == [f"{start}no compiler", f"{start}no luck"]


@pytest.fixture(scope="module")
def by_pytorch(tmp_path_factory):
    """A library with an op that does what is done then."""
    if not _library.is_loaded():
        pytest.skip(f"run_program is called by the library: {_library.load_error()}")
    torch, library = find_torch(), tmp_path_factory.mktemp("by_pytorch") / "by_pytorch.so"
    options = [*TORCH, "-I", ROOT / "include", "-I", ROOT / "src", "-isystem", torch.include]
    options += ["-isystem", find_cuda_toolkit().include]
    libraries = ["-L", torch.lib, "-ltorch_cpu"]
    source = ROOT / "tests/host/link/by_pytorch.cpp"
    return compile_library(source, library, *options, libraries=libraries)


LOAD = """
    import torch
    torch.ops.load_library({library!r})
    {package}
    x, row = torch.randn(3, 5).half(), torch.randn(5)
    run = torch.ops.cutlass_fused_by_pytorch.run
"""


def test_by_pytorch(by_pytorch):
    """The words of the program as PyTorch's ops: in fp32, rounded to each dtype once, and without a
    gradient or autocast."""
    code = (
        LOAD.format(library=str(by_pytorch), package="import cutlass_fused")
        + f"""
    row.requires_grad_()
    with torch.autocast("cpu"):
        y, z = run(x, [row], {TEXT!r}, "float16,float32")
        same, _ = run(x, [row], {TEXT!r})
    expected = x.float() + row
    assert torch.equal(z, expected) and torch.equal(y, expected.relu().half())
    assert torch.equal(same, y)
    print(type(y.grad_fn).__name__)  # what PyTorch puts behind every op that has no derivative
    """
    )
    assert run_python(code) == "CppFunction\n"


def test_without_python(by_pytorch):
    """In a program that has the library alone, the error has the log, and what to do."""
    package = f"torch.ops.load_library({str(_library.library_path())!r})"
    code = (
        LOAD.format(library=str(by_pytorch), package=package)
        + f"""
    try:
        run(x, [row], {TEXT!r})
    except RuntimeError as error:
        print(error)
    """
    )
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert "apply_program: the program must be linked by NVRTC, or ahead of time" in done.stdout
    assert "python -m cutlass_fused.build_epilogues" in done.stdout
    assert "got neither: the compiler's log" in done.stdout
