"""Kernels that came with the library, and those that are linked while calls go on."""

import hashlib
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
from host_program import compile_host_program
from python_process import run_python

from build_system.paths import PACKAGE, ROOT
from cutlass_fused import _library
from cutlass_fused.build_epilogues import pack as common_kernels
from cutlass_fused.build_epilogues.common import choose_gpus

PACK = ROOT / PACKAGE / "common_kernels.bin"
KERNELS = {b"sm_90a one": b"code " * 100, b"sm_90a two": bytes(range(32, 127)), b"empty": b""}
OPTIONS = ("-I", ROOT / "src", "-Wextra", "-fsanitize=address,undefined", "-ldl")


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("common_kernels")
    compile_host_program("link/common_kernels", folder, options=OPTIONS)
    return folder / "common_kernels"


@pytest.fixture
def read(program, tmp_path):
    """(count or error, answers) of a pack of these bytes."""

    def run(data, *keys):
        (tmp_path / "pack.bin").write_bytes(data)
        done = subprocess.run(
            [program, tmp_path / "pack.bin"],
            input="".join(f"{key}\n" for key in keys).encode(),
            capture_output=True,
        )
        assert done.returncode == 0, done.stderr
        head, *answers = done.stdout.decode(errors="replace").split("\n")[:-1]
        return head, answers

    return run


def test_read(read):
    keys = [key.decode() for key in KERNELS]
    head, answers = read(common_kernels.pack(KERNELS), *keys, "sm_90a three")
    assert head == "3"
    assert answers == [*(f"= {content.decode()}" for content in KERNELS.values()), "none"]
    assert read(common_kernels.pack({}), "sm_90a one") == ("0", ["none"])


def test_damaged(read, tmp_path):
    """A byte of the list leaves nothing, and one of a kernel not that kernel."""
    data = common_kernels.pack(KERNELS)
    start = data.index(b"\n\n") + 2 + 32
    keys = [key.decode() for key in KERNELS]
    _, whole = read(data, *keys)
    for at in (0, 40, 100, start - 40, start - 1):
        head, answers = read(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], *keys)
        assert head.startswith(f"{tmp_path / 'pack.bin'}: ") and answers == ["none"] * 3
    for at in range(start, len(data)):
        head, answers = read(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], *keys)
        assert head == "3" and answers.count("none") <= 1
        assert all(answer in (right, "none") for answer, right in zip(answers, whole, strict=True))


def test_another_content(read):
    """What is whole, but not what the list says."""
    data = common_kernels.pack(KERNELS)
    head, _, rest = data.partition(b"\n\n")
    right = hashlib.sha256(KERNELS[b"sm_90a one"]).hexdigest().encode()
    head = head.replace(right, hashlib.sha256(b"another").hexdigest().encode()) + b"\n\n"
    wrong = head + hashlib.sha256(head).digest() + rest[32:]
    _, answers = read(wrong, "sm_90a one", "empty")
    assert answers == ["none", "= "]


@pytest.mark.parametrize(
    "change, error",
    [
        (lambda data: data[:-1], "it is cut off"),
        (lambda data: data[: data.index(b"\n\n") + 20], "it is cut off"),
        (lambda data: data[:50], "it is cut off"),
        (lambda data: data + b"\0", "there is something behind it"),
        (lambda data: b"", "there is no such file, or nothing in it"),
        (lambda data: b"cutlass_fused open kernels 1\n" + data, "it is no pack of common kernels"),
    ],
)
def test_no_pack(read, change, error):
    head, answers = read(change(common_kernels.pack(KERNELS)), "sm_90a one")
    assert head.endswith(f": {error}") and answers == ["none"]


def test_wrong_lines(read):
    """Also with a sum that is right."""
    digits = "0" * 64
    for line in (f"{digits} 1 {digits}", f"{digits} 1 -1 {digits}", f"0 1 1 {digits}", "x"):
        head = common_kernels.FIRST_LINE + f"{line}\n\n".encode()
        error, _ = read(head + hashlib.sha256(head).digest() + b"x" * 8)
        assert error.endswith("a line of its list is wrong")


def test_beside(program, read):
    """That of the library is the file of this name beside it."""
    path = program.with_name("common_kernels.bin")
    path.write_bytes(common_kernels.pack(KERNELS))
    try:
        assert read(b"", "beside empty", "beside nothing")[1] == ["= ", "none"]
    finally:
        path.unlink()
    assert read(b"", "beside empty")[1] == ["none"]


def test_gpus():
    assert choose_gpus(["8.0", "9.0a"]) == [90] and choose_gpus(["8.0", "8.6"]) == [80, 86]


FIND = """
    import collections, torch
    from cutlass_fused import _library
    from cutlass_fused.build_epilogues.calls import link
    from cutlass_fused.build_epilogues.common import list_common
    words = collections.Counter()
    for name, call, sizes in list_common():
        words.update(answer.partition(" ")[0] for answer in link(call, 90, sizes))
    print(dict(words))
"""


@pytest.mark.skipif(not PACK.is_file(), reason="the library was built without NVRTC")
@pytest.mark.skipif(not _library.is_loaded(), reason=f"{_library.load_error()}")
def test_built(tmp_path):
    """Without a compiler and with nothing on disk, all that was linked with the library is there;
    beside another library nothing is."""
    environment = {"CUTLASS_FUSED_CACHE_DIR": str(tmp_path / "cache")}
    environment["CUTLASS_FUSED_NVRTC"] = str(tmp_path / "none")
    found = eval(run_python(FIND, **environment))
    assert found.keys() == {"kept"} and found["kept"] >= 200
    assert _library.read_build_info()["common_kernels"] >= 200
    library = tmp_path / "libcutlass_fused.so"
    library.write_bytes(_library.library_path().read_bytes())
    text = PACK.with_name("open_kernels.bin").read_bytes()
    library.with_name("open_kernels.bin").write_bytes(text)
    environment["CUTLASS_FUSED_LIBRARY"] = str(library)
    assert eval(run_python(FIND, **environment)).keys() == {"refused"}


@pytest.fixture(scope="module")
def background(tmp_path_factory):
    folder = tmp_path_factory.mktemp("background")
    compile_host_program("link/background", folder, options=("-I", ROOT / "src", "-Wextra", "-ldl"))

    def run(way):
        environment = os.environ | {"CUTLASS_FUSED_NVRTC": "none"}
        command = [folder / "background", way]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return run


@pytest.mark.parametrize(
    "way, said",
    [("waits", ["once"]), ("ends", ["done"]), ("forks", ["child anew", "parent kept"])],
)
def test_background(background, way, said):
    """A process that ends waits for what runs; one that is forked has its own."""
    assert background(way) == said


def test_two_processes_write(tmp_path):
    """Both at once the same kernel: it is whole, whichever came last."""
    code = """
        import cutlass_fused, torch
        text = "program 1\\noperands 0\\nv0 = relu acc\\nreturn v0\\n"
        call = (text, [], "float32", "float32", 80, 8, 8)
        print(torch.ops.cutlass_fused.link_pointwise(*call)[0].split()[0])
    """
    if not _library.is_loaded() or _library.read_link_info()["nvrtc"] is None:
        pytest.skip("nothing is linked here")
    environment = {"CUTLASS_FUSED_CACHE_DIR": str(tmp_path / "cache")}
    with ThreadPoolExecutor(2) as pool:
        said = list(pool.map(lambda _: run_python(code, **environment).strip(), range(2)))
    assert set(said) <= {"new", "kept"} and "new" in said
    assert len(list((tmp_path / "cache/kernels").iterdir())) == 1
    none = {"CUTLASS_FUSED_NVRTC": str(tmp_path / "none")}
    assert run_python(code, **environment, **none).strip() == "kept"
