"""The files in which tuned tiles are kept from process to process."""

import json
import os
import pathlib
import stat
import threading
import warnings

import pytest

import cutlass_fused
from cutlass_fused.tuning import _cache

GPU = "NVIDIA H200 MIG 1g.18gb"
TILES = {"bf16 M=1 N=2 K=8 y=bfloat16": "128x256x64B", "bf16 M=2 N=2 K=8 y=float32": "a/b@m1"}
OTHER = {"f16 M=1 N=2 K=8 y=float16": "64x64x128B"}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Not there yet."""
    folder = tmp_path / "some" / "where"
    monkeypatch.setenv("CUTLASS_FUSED_CACHE_DIR", str(folder))
    return folder


@pytest.fixture
def path(folder):
    """The file, written."""
    _cache.add_tiles(GPU, TILES)
    (path,) = folder.iterdir()
    return path


@pytest.fixture
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def change(path, **entries):
    path.write_text(json.dumps(json.loads(path.read_text()) | entries))


# ---- what is kept ----


def test_no_file_is_no_fault(folder, no_warnings):
    assert _cache.read_tiles(GPU) == {}
    assert not folder.exists()


def test_what_is_added_is_read(path, no_warnings):
    assert _cache.read_tiles(GPU) == TILES
    changed = {next(iter(TILES)): "32x64x128B.streamk"}
    _cache.add_tiles(GPU, OTHER | changed)
    assert _cache.read_tiles(GPU) == TILES | OTHER | changed
    assert list(path.parent.iterdir()) == [path]


def test_each_gpu_has_a_file(path, no_warnings):
    assert _cache.read_tiles("NVIDIA A100-SXM4-40GB") == {}
    _cache.add_tiles("NVIDIA A100-SXM4-40GB", OTHER)
    assert _cache.read_tiles(GPU) == TILES
    assert len(list(path.parent.iterdir())) == 2


def test_each_version_has_a_file(path, no_warnings, monkeypatch):
    monkeypatch.setattr(cutlass_fused, "__version__", "77.0")
    assert _cache.read_tiles(GPU) == {}
    _cache.add_tiles(GPU, OTHER)
    assert len(list(path.parent.iterdir())) == 2


@pytest.mark.parametrize("gpu", ["../../x", "/etc/passwd", "a b\tc\n", "…"])
def test_name_of_a_gpu_stays_in_the_folder(folder, gpu, no_warnings):
    _cache.add_tiles(gpu, TILES)
    assert len(list(folder.iterdir())) == 1
    assert _cache.read_tiles(gpu) == TILES


@pytest.mark.parametrize("mask", [0o022, 0o077], ids=oct)
def test_who_may_read_is_left_to_the_umask(folder, mask):
    """A folder may be shared between users."""
    before = os.umask(mask)
    try:
        _cache.add_tiles(GPU, TILES)
    finally:
        os.umask(before)
    (path,) = folder.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask


# ---- what is ignored ----


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"tiles": {"a"',
        b"null",
        b"[]",
        b"{}",
        b'{"tiles": 3}',
        b"\x80\xff",
        b"[" * 100_000,
        b"9" * 10_000,
    ],
    ids=lambda content: content[:12].decode(errors="replace"),
)
def test_damaged_file_is_ignored_and_replaced(path, content):
    path.write_bytes(content)
    with pytest.warns(RuntimeWarning, match=path.name):
        assert _cache.read_tiles(GPU) == {}
    assert path.read_bytes() == content
    with pytest.warns(RuntimeWarning, match=path.name):
        _cache.add_tiles(GPU, OTHER)
    assert _cache.read_tiles(GPU) == OTHER


def test_half_a_file_is_ignored(path):
    content = path.read_bytes()
    for length in range(0, len(content) - 2, 7):
        path.write_bytes(content[:length])
        with pytest.warns(RuntimeWarning, match="cannot be read"):
            assert _cache.read_tiles(GPU) == {}


@pytest.mark.parametrize(
    "entries",
    [
        {"cutlass_fused": "0.0.9"},
        {"cutlass": "3.0.0"},
        {"nvcc": "11.8"},
        {"gpu": "NVIDIA H100"},
        {"format": 2},
        {"tiles": {"a": 1}},
        {"tiles": {"a": None}},
        {"tiles": {"a": ""}},
        {"tiles": ["a"]},
    ],
    ids=str,
)
def test_file_of_something_else_is_ignored(path, entries):
    change(path, **entries)
    with pytest.warns(RuntimeWarning, match="ignoring"):
        assert _cache.read_tiles(GPU) == {}


def test_file_of_fewer_candidates_is_ignored(path, monkeypatch):
    """What was found to be the fastest of them need not be that of more."""
    monkeypatch.setattr(_cache, "OF_CUBLAS", [*_cache.OF_CUBLAS, "float64"])
    with pytest.warns(RuntimeWarning, match="ignoring"):
        assert _cache.read_tiles(GPU) == {}


def test_folder_in_the_place_of_the_file(path):
    path.unlink()
    path.mkdir()
    with pytest.warns(RuntimeWarning, match="cannot be read"):
        assert _cache.read_tiles(GPU) == {}
    with pytest.warns(RuntimeWarning, match="not kept"), pytest.warns(match="cannot be read"):
        _cache.add_tiles(GPU, OTHER)
    assert list(path.parent.iterdir()) == [path]


# ---- writing ----


def test_folder_that_cannot_be_made(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("CUTLASS_FUSED_CACHE_DIR", str(tmp_path / "file" / "folder"))
    with pytest.warns(RuntimeWarning, match="not kept"), pytest.warns(match="cannot be read"):
        _cache.add_tiles(GPU, TILES)


def test_folder_that_cannot_be_written(path):
    path.parent.chmod(0o500)
    try:
        if os.access(path.parent, os.W_OK):
            pytest.skip("this user may write everywhere")
        with pytest.warns(RuntimeWarning, match="not kept"):
            _cache.add_tiles(GPU, OTHER)
        assert _cache.read_tiles(GPU) == TILES
    finally:
        path.parent.chmod(0o700)


@pytest.mark.parametrize("place", ["write", "replace"])
def test_a_write_that_fails_leaves_what_was_there(path, monkeypatch, place):
    """Such a write is one to a disk that is full, half way."""
    before, write_text = path.read_bytes(), pathlib.Path.write_text

    def fail(*args, **kwargs):
        raise OSError("No space left on device")

    def write_half(self, text, **kwargs):
        write_text(self, text[: len(text) // 2], **kwargs)
        fail()

    if place == "write":
        monkeypatch.setattr(pathlib.Path, "write_text", write_half)
    else:
        monkeypatch.setattr(os, "replace", fail)
    with pytest.warns(RuntimeWarning, match="No space left"):
        _cache.add_tiles(GPU, OTHER)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_readers_never_see_half_a_file(path, no_warnings):
    """Threads stand for processes: what they share is the file alone."""
    done, failures = threading.Event(), []

    def run(work):
        try:
            work()
        except BaseException as failure:
            failures.append(failure)

    def write(writer):
        for i in range(40):
            _cache.add_tiles(GPU, {f"writer {writer}": str(i), "filler": "x" * (100 * i + 1)})

    def read():
        while not done.is_set():
            assert _cache.read_tiles(GPU).items() >= TILES.items()

    readers = [threading.Thread(target=run, args=(read,)) for _ in range(2)]
    writers = [threading.Thread(target=run, args=(lambda w=w: write(w),)) for w in range(3)]
    for thread in readers + writers:
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    for thread in readers:
        thread.join()
    assert not failures
    # The last one to write may have lost what others did meanwhile, but not its own.
    assert "39" in _cache.read_tiles(GPU).values()
    assert list(path.parent.iterdir()) == [path]


# ---- the folder ----


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"CUTLASS_FUSED_CACHE_DIR": "/a", "XDG_CACHE_HOME": "/b"}, "/a"),
        ({"CUTLASS_FUSED_CACHE_DIR": "a"}, "a"),
        ({"CUTLASS_FUSED_CACHE_DIR": "", "XDG_CACHE_HOME": "/b"}, "/b/cutlass_fused"),
        ({"XDG_CACHE_HOME": "b"}, "/home/me/.cache/cutlass_fused"),
        ({"XDG_CACHE_HOME": ""}, "/home/me/.cache/cutlass_fused"),
        ({}, "/home/me/.cache/cutlass_fused"),
    ],
    ids=str,
)
def test_folder(monkeypatch, environment, expected):
    for name in ("CUTLASS_FUSED_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in (environment | {"HOME": "/home/me"}).items():
        monkeypatch.setenv(name, value)
    assert _cache.find_folder() == pathlib.Path(expected)
    assert f"kept in {expected}" in cutlass_fused.show_config()


@pytest.mark.parametrize("home", ["unknown", "empty"])
def test_without_a_home(monkeypatch, home):
    """Linked kernels have none either where HOME is empty."""

    def raise_error():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("CUTLASS_FUSED_CACHE_DIR")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if home == "unknown":
        monkeypatch.setattr(pathlib.Path, "home", raise_error)
    else:
        monkeypatch.setenv("HOME", "")
        assert _cache.find_folder() is None
    assert _cache.read_tiles(GPU) == {}
    with pytest.warns(RuntimeWarning, match="not kept"):
        _cache.add_tiles(GPU, TILES)
    assert "kept in no folder" in cutlass_fused.show_config()
