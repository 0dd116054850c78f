"""Kernels and tuned tiles on disk, by whole processes: a full disk, two that write at once, files
that are cut short or of somebody else, a folder that cannot be written. What cannot be kept is told
where somebody asked to keep it; in calls it costs nothing but time.

tests/link/test_disk_cache.py and tests/tuning/test_cache.py look at every part of the files."""

import os
import subprocess
import sys
import textwrap

import pytest

from build_system.paths import ROOT
from cutlass_fused import _library

# None that came with the library.
TEXT = "program 1\noperands 1\nv0 = add acc p0\nv1 = sin v0\nv2 = atan v1\nreturn v2\n"
LINK = f"""
    import torch, cutlass_fused
    print(*torch.ops.cutlass_fused.link_pointwise(
        {TEXT!r}, ["float32:row"], "float32", "float32", 90, 8, 8))
"""
# Fewer bytes than a kernel has, and more than one block: it ends half way.
LIMIT = """
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
"""
TUNE = """
    import warnings
    from cutlass_fused.tuning import _cache
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        _cache.add_tiles("GPU", {tiles})
    print(*(str(each.message) for each in told))
    print(_cache.read_tiles("GPU") == {expected})
"""
SMALL, LARGE = {"a": "tile"}, {f"product {i}": "tile" for i in range(1000)}


@pytest.fixture(autouse=True)
def needs_nvrtc():
    info = _library.read_link_info()
    if info is None or info["nvrtc"] is None:
        pytest.skip("the library was not built, or there is no NVRTC")


def start(folder, code, command=(sys.executable, "-c")):
    environment = os.environ | {"CUTLASS_FUSED_CACHE_DIR": str(folder), "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [*command, textwrap.dedent(code)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run(folder, code, **options):
    process = start(folder, code, **options)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 0, said
    return said.splitlines()


def list_kernels(folder):
    return sorted((folder / "kernels").iterdir()) if (folder / "kernels").is_dir() else []


def test_full_disk(tmp_path):
    """It is told, no half a file is left, and the next process keeps the kernel."""
    (told,) = run(tmp_path, textwrap.dedent(LIMIT) + textwrap.dedent(LINK))
    assert told.startswith("failed pointwise_4: cannot write ") and "File too large" in told
    assert list_kernels(tmp_path) == []
    assert run(tmp_path, LINK) == ["new pointwise_4"]
    assert run(tmp_path, LINK) == ["kept pointwise_4"]


def tune(tiles, expected):
    return textwrap.dedent(TUNE.format(tiles=tiles, expected=expected))


def test_full_disk_of_tuned_tiles(tmp_path):
    """What was there before stays."""
    assert run(tmp_path, tune(SMALL, SMALL)) == ["", "True"]
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    told, is_same = run(tmp_path, textwrap.dedent(LIMIT) + tune(LARGE, SMALL))
    assert "are not kept" in told and is_same == "True"
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_small_file_system(tmp_path):
    """A file system without room: what the kernel says of that is another error."""
    script = f'mount -t tmpfs -o size=8k none "{tmp_path}" && exec "{sys.executable}" -c "$0"'
    command = ("unshare", "--user", "--mount", "--map-root-user", "sh", "-c", script)
    try:
        probe = subprocess.run([*command, "pass"], capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no unshare")
    if probe.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {probe.stderr}")
    code = textwrap.dedent(LINK) + "import os\nprint(sum(len(f) for _, _, f in os.walk(os.environ"
    code += "['CUTLASS_FUSED_CACHE_DIR'])))\n"
    told, files = run(tmp_path, code, command=command)
    assert told.startswith("failed pointwise_4: ") and "No space left" in told and files == "0"


def test_two_processes(tmp_path):
    """Both link the same kernel at once; either's file stays."""
    started = [start(tmp_path, LINK) for _ in range(2)]
    said = [process.communicate(timeout=120)[0].strip() for process in started]
    assert set(said) <= {"new pointwise_4", "kept pointwise_4"} and "new pointwise_4" in said
    assert len(list_kernels(tmp_path)) == 1
    assert run(tmp_path, LINK) == ["kept pointwise_4"]


@pytest.mark.parametrize("kind", ["cut short", "a folder"])
def test_what_is_no_kernel_of_ours(tmp_path, kind):
    run(tmp_path, LINK)
    (path,) = list_kernels(tmp_path)
    whole = path.read_bytes()
    if kind == "a folder":
        path.unlink()
        path.mkdir()
    else:
        path.write_bytes(whole[:-100])
    (told,) = run(tmp_path, LINK)
    if kind == "a folder":
        assert told.startswith("failed pointwise_4: cannot rename ") and "a directory" in told
        assert list_kernels(tmp_path) == [path]
        # What two processes write at once has two names.
        (again,) = run(tmp_path, LINK)
        assert again != told
    else:
        assert told == "new pointwise_4" and path.read_bytes() == whole
        assert run(tmp_path, LINK) == ["kept pointwise_4"]


def test_folder_that_cannot_be_made(tmp_path):
    """Also root cannot write there."""
    (tmp_path / "file").touch()
    (told,) = run(tmp_path / "file" / "folder", LINK)
    assert told.startswith("failed pointwise_4: cannot make ") and "Not a directory" in told


def test_no_home():
    """Nor any other folder."""
    script = f'unset CUTLASS_FUSED_CACHE_DIR XDG_CACHE_HOME HOME; exec "{sys.executable}" -c "$0"'
    told = run("", LINK, command=("sh", "-c", script))
    assert told == ["failed pointwise_4: there is no home folder"]
