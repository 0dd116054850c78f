"""Sources become machine code by NVRTC, once."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest
import torch
from host_program import compile_host_program
from nvrtc import find_folders

from build_system.host_compiler import name_host_compiler
from build_system.paths import ROOT

SOURCE = 'extern "C" __global__ void run(float* x) { x[0] += 1.0f; }\n'
OPTIONS = ("-I", ROOT / "src", "-Wextra", "-ldl")


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compile")
    compile_host_program("link/compile", folder, options=OPTIONS)
    return folder / "compile"


@pytest.fixture
def compile_sources(program, tmp_path):
    """Each pair of an architecture and a source: (bytes, "kept" or "new", "ELF", ms, error, error
    of the cache)."""
    folders = find_folders()
    if not folders:
        pytest.skip("no libnvrtc beside torch")

    def run(*sources, has_compiler=True, cache=tmp_path / "cache", home=None, nvrtc=None):
        environment = {"CUTLASS_FUSED_CACHE_DIR": str(cache)} if cache else {}
        if nvrtc is not None:
            environment["CUTLASS_FUSED_NVRTC"] = str(nvrtc)
        if has_compiler:
            environment["LD_LIBRARY_PATH"] = os.pathsep.join(folders)
        if home is not None:
            environment["HOME"] = str(home)
        lines = "".join(f"{arch} {source.encode().hex()}\n" for arch, source in sources)
        answers = subprocess.run(
            [program], input=lines, env=environment, capture_output=True, text=True, check=True
        ).stdout
        found = []
        for answer in answers.split("\n====\n")[:-1]:
            size, kept, kind, ms, *errors = answer.split("\n")
            found.append((int(size), kept, kind, float(ms), "\n".join(errors[:-1]), errors[-1]))
        return found

    return run


def test_machine_code(compile_sources):
    for size, kept, kind, _, error, cache_error in compile_sources(
        ("sm_80", SOURCE), ("sm_90a", SOURCE)
    ):
        assert (kept, kind, error, cache_error) == ("new", "ELF", "", "")
        assert size > 1000


def test_kept_without_a_compiler(compile_sources):
    """As where kernels were compiled ahead: NVRTC is not asked for what is kept."""
    ((size, *_),) = compile_sources(("sm_90a", SOURCE))
    (again, other) = compile_sources(
        ("sm_90a", SOURCE), ("sm_90a", SOURCE + "\n"), has_compiler=False
    )
    assert again[:3] == (size, "kept", "ELF")
    assert other[0] == 0 and other[4].startswith("there is no NVRTC: libnvrtc.so.13: ")


def test_linked_ahead(compile_sources, program, tmp_path):
    """A folder beside the library is read first, and never written."""
    ((size, *_),) = compile_sources(("sm_90a", SOURCE), cache=program.parent / "linked")
    folder = program.parent / "linked/kernels"
    try:
        found = compile_sources(("sm_90a", SOURCE), has_compiler=False)
        assert found[0][:3] == (size, "kept", "ELF")
        assert not (tmp_path / "cache").exists()
        assert compile_sources(("sm_80", SOURCE))[0][1] == "new"
        assert len(list(folder.iterdir())) == len(list((tmp_path / "cache/kernels").iterdir())) == 1
    finally:
        shutil.rmtree(folder.parent)


def test_another_compiler(compile_sources, tmp_path):
    """CUTLASS_FUSED_NVRTC is asked instead, also where it is none."""
    (library,) = (path for f in find_folders() for path in pathlib.Path(f).glob("libnvrtc.so.1?"))
    options = {"has_compiler": False, "cache": None}
    assert compile_sources(("sm_80", SOURCE), nvrtc=library, **options)[0][1:3] == ("new", "ELF")
    none = tmp_path / "libnvrtc.so.13"
    ((size, *_, error, _),) = compile_sources(("sm_80", SOURCE), nvrtc=none, cache=None)
    assert size == 0 and error.startswith(f"there is no NVRTC: {none}: cannot open")


def test_by_source_and_architecture(compile_sources):
    compile_sources(("sm_80", SOURCE))
    kept = [each[1] for each in compile_sources(("sm_80", SOURCE), ("sm_80", SOURCE + "\n"))]
    assert kept == ["kept", "new"]
    assert compile_sources(("sm_86", SOURCE))[0][1] == "new"


def test_damaged(compile_sources, tmp_path):
    compile_sources(("sm_80", SOURCE))
    (path,) = (tmp_path / "cache/kernels").iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    assert compile_sources(("sm_80", SOURCE))[0][1] == "new"
    assert path.read_bytes() == whole


def test_failure(compile_sources, tmp_path):
    """With the compiler's log, remembered, and not kept for others."""
    first, second = compile_sources(("sm_80", "no code"), ("sm_80", "no code"))
    assert first[0] == 0 and "NVRTC_ERROR_COMPILATION" in first[4]
    assert 'identifier "no" is undefined' in first[4]
    assert second[4] == first[4] and second[3] < 1
    assert not (tmp_path / "cache").exists()


def test_no_cache(compile_sources, tmp_path):
    (tmp_path / "file").write_text("")
    ((_, kept, kind, *_, error),) = compile_sources(
        ("sm_80", SOURCE), cache=None, home=tmp_path / "file"
    )
    assert (kept, kind) == ("new", "ELF") and error.startswith("cannot make ")
    ((_, kept, kind, *_, error),) = compile_sources(("sm_80", SOURCE), cache=None)
    assert (kept, kind, error) == ("new", "ELF", "there is no home folder")


def test_within_pytorch(tmp_path):
    """Found where PyTorch is, whose own libraries are loaded and no path is set."""
    library = tmp_path / "found.so"
    source = tmp_path / "found.cpp"
    source.write_text(
        '#include "link/nvrtc.cpp"\n'
        'extern "C" char const* find() {\n'
        "  auto const& found = cutlass_fused::link::find_nvrtc();\n"
        "  return found.is_there ? found.nvrtc.path.c_str() : found.reason.c_str();\n}\n"
    )
    command = [
        name_host_compiler(),
        "-std=c++17",
        "-fPIC",
        "-shared",
        "-I",
        ROOT / "src",
        source,
        "-o",
        library,
    ]
    subprocess.run([*map(str, command), "-ldl"], check=True)
    if not find_folders() or torch.version.cuda is None:
        pytest.skip("no libnvrtc beside torch")
    code = (
        f"import ctypes, torch; found = ctypes.CDLL({str(library)!r}).find; "
        "found.restype = ctypes.c_char_p; print(found().decode())"
    )
    environment = {key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"}
    found = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    ).stdout.strip()
    assert pathlib.PurePath(found).name.startswith("libnvrtc.so."), found
