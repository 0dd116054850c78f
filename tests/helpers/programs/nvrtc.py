"""Device code compiled by NVRTC, which comes with PyTorch: to PTX, without a GPU."""

import ctypes
import pathlib

import pytest
import torch


def _list_files():
    site = pathlib.Path(torch.__file__).parents[1]
    return sorted((site / "nvidia").rglob("libnvrtc.so*"))


def find_folders():
    """Where it lies beside PyTorch, as wheels have it; nothing if it does not."""
    return sorted({str(path.parent) for path in _list_files()})


def _find_library():
    """Beside PyTorch, or where the loader finds it."""
    for path in [*map(str, _list_files()), "libnvrtc.so"]:
        try:
            return ctypes.CDLL(path)
        except OSError:
            continue
    return None


def compile_to_ptx(source, options):
    """(PTX or None, log). Skips where there is no NVRTC."""
    library = _find_library()
    if library is None:
        pytest.skip("no libnvrtc, neither beside torch nor in the path of the loader")
    program = ctypes.c_void_p()
    encoded = source.encode()
    create = library.nvrtcCreateProgram
    assert create(ctypes.byref(program), encoded, b"program.cu", 0, None, None) == 0
    texts = [option.encode() for option in options]
    failed = library.nvrtcCompileProgram(
        program, len(texts), (ctypes.c_char_p * len(texts))(*texts)
    )
    log = _read(library, program, "ProgramLog")
    ptx = None if failed else _read(library, program, "PTX")
    library.nvrtcDestroyProgram(ctypes.byref(program))
    return ptx, log


def takes_turn_first(ptx, arch):
    """Whether each kernel waits for the one before it, where the GPU can start both, in front of
    all that reads, writes, meets other threads or branches."""
    for kernel in ptx.split(".entry ")[1:]:
        before, wait, behind = kernel.partition("griddepcontrol.wait;")
        if arch == "sm_80":
            if wait:
                return False
            continue
        early = ("ld.global", "st.global", "ld.volatile", "atom", "bar.", "bra", "ret;")
        if not wait or "launch_dependents;" not in behind or any(e in before for e in early):
            return False
    return True


def _read(library, program, name):
    size = ctypes.c_size_t()
    assert getattr(library, f"nvrtcGet{name}Size")(program, ctypes.byref(size)) == 0
    text = ctypes.create_string_buffer(size.value)
    assert getattr(library, f"nvrtcGet{name}")(program, text) == 0
    return text.value.decode()
