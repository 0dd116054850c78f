"""Kernels kept on disk: whole, by their keys, and the user's alone."""

import os
import pathlib
import shutil
import stat
import tempfile
import time

import pytest
from host_program import compile_host_program

from build_system.paths import ROOT

OPTIONS = ("-I", ROOT / "src", "-Wextra", "-fsanitize=address,undefined", "-ldl")
OTHER = 12345  # a user's number


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("disk_cache")
    compile_host_program("link/disk_cache", folder, options=OPTIONS)
    return folder / "disk_cache"


@pytest.fixture
def ask(program, tmp_path):
    """ask(requests) -> answers, of a cache in tmp_path / "kernels"."""

    def run(*requests, folder=tmp_path / "kernels", environment=None):
        text = "".join(f"{request}\n" for request in requests)
        where = "" if folder is None else f" {folder}"
        with os.popen(f"printf '%s' '{text}' | {environment or ''} {program}{where}") as answers:
            return answers.read().splitlines()

    return run


def test_kept(ask):
    assert ask("read a", "write a 1", "write b 2", "read a", "read b", "read c") == [
        *("none", "ok", "ok", "= 1", "= 2", "none")
    ]
    assert ask("read b", "write b 3", "read b") == ["= 2", "ok", "= 3"]


def test_modes(ask, tmp_path):
    old = os.umask(0)
    try:
        ask("write a 1")
    finally:
        os.umask(old)
    folder = tmp_path / "kernels"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()] == [0o600]


def test_damaged(ask):
    """Each byte matters: with any other, or without those behind it, the file counts as missing."""
    ask("write a content")
    path = pathlib.Path(*ask("path a"))
    whole = path.read_bytes()
    for i in range(len(whole)):
        path.write_bytes(whole[:i] + bytes([whole[i] ^ 1]) + whole[i + 1 :])
        assert ask("read a") == ["none"], i
        path.write_bytes(whole[:i])
        assert ask("read a") == ["none"], i
    path.write_bytes(whole + b"x")
    assert ask("read a") == ["none"]
    path.write_bytes(whole)
    assert ask("read a") == ["= content"]


def test_written_again(ask):
    ask("write a content")
    path = pathlib.Path(*ask("path a"))
    path.write_bytes(b"nothing")
    assert ask("read a", "write a content", "read a") == ["none", "ok", "= content"]


def test_of_another_key(ask):
    """As if two keys had one name."""
    ask("write a 1", "write b 2")
    of_a, of_b = map(pathlib.Path, ask("path a", "path b"))
    of_b.write_bytes(of_a.read_bytes())
    assert ask("read b") == ["none"]


def test_no_file_is_left(ask, tmp_path):
    ask("write a 1", "write a 2")
    assert len(list((tmp_path / "kernels").iterdir())) == 1


def leave(folder, digit, hours, mebibytes, name=""):
    """A file of a kernel, which takes no room, as old as that."""
    path = folder / (digit * 32 + name)
    with open(path, "wb") as file:
        file.truncate(mebibytes << 20)
    os.utime(path, (time.time() - 3600 * hours,) * 2)
    return path


def test_the_oldest_files_go_where_there_is_no_room(ask, tmp_path):
    """To three quarters of 1 GiB, and what was written just now stays; of other names, all."""
    ask("write a 1")
    folder = tmp_path / "kernels"
    new, old = leave(folder, "b", 1, 500), leave(folder, "1", 3, 300)
    ask("write b 2")
    assert new.exists() and old.exists()
    oldest, left = leave(folder, "f", 9, 200), leave(folder, "0", 4, 100, ".7.0.new")
    others = [leave(folder, "2", 10, 2000, "x"), leave(folder, "", 10, 2000, "mine")]
    others.append(leave(folder, "", 10, 2000, "1" * 31))
    (folder / ("3" * 32)).mkdir()
    assert ask("write c 3", "read a", "read b", "read c") == ["ok", "= 1", "= 2", "= 3"]
    assert new.exists() and not oldest.exists() and not left.exists() and not old.exists()
    assert all(other.exists() for other in others) and (folder / ("3" * 32)).exists()


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777])
def test_folder_of_others(ask, tmp_path, mode):
    """What others may have put there would run."""
    ask("write a 1")
    (tmp_path / "kernels").chmod(mode)
    folder = tmp_path / "kernels"
    assert ask("read a", "write a 2") == ["none", f"others may write to {folder}"]


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_file_of_others(ask, mode):
    ask("write a 1")
    pathlib.Path(*ask("path a")).chmod(mode)
    assert ask("read a") == ["none"]


def run_as_other(ask, program, tmp_path, *requests):
    """By a user who may read and write none of root's files but those that all may read."""
    if shutil.which("setpriv") is None:
        pytest.skip("no setpriv, which runs a program as another user")
    temporary = pathlib.Path(tempfile.gettempdir())
    for folder in (program.parent, tmp_path, *tmp_path.parents):  # one more in each of processes
        if temporary in folder.parents:
            folder.chmod(0o755)
    return ask(*requests, environment=f"setpriv --reuid={OTHER} --clear-groups")


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


@needs_root
@pytest.mark.parametrize("part", ["folder", "file"])
def test_owner(ask, tmp_path, part):
    """What another user owns, he may have written."""
    ask("write a 1")
    (tmp_path / "kernels").chmod(0o755)
    path = pathlib.Path(*ask("path a"))
    path.chmod(0o644)
    os.chown(tmp_path / "kernels" if part == "folder" else path, OTHER, OTHER)
    assert ask("read a") == ["none"]


@needs_root
def test_of_root(ask, program, tmp_path):
    """What root linked is anybody's to read, who may read it."""
    ask("write a 1")
    (tmp_path / "kernels").chmod(0o755)
    pathlib.Path(*ask("path a")).chmod(0o644)
    assert run_as_other(ask, program, tmp_path, "read a") == ["= 1"]


def test_refusal(ask, tmp_path):
    assert ask("refusal") == [f"cannot read {tmp_path / 'kernels'}: No such file or directory"]
    assert ask("write a 1", "refusal") == ["ok", "ok"]
    (tmp_path / "kernels").chmod(0o777)
    assert ask("refusal") == [f"others may write to {tmp_path / 'kernels'}"]


@pytest.fixture
def linked(program, tmp_path):
    """A folder beside the program, in which `a` is 1."""
    folder = program.parent / "linked" / "kernels"
    os.popen(f"echo write a 1 | {program} {folder}").close()
    yield folder
    shutil.rmtree(folder.parent)


def test_linked_ahead(ask, linked, tmp_path):
    """Read beside the library, and not written."""
    assert ask("linked a", "linked b", "read a", "write b 2", "linked b") == [
        *("= 1", "none", "none", "ok", "none")
    ]
    assert len(list(linked.iterdir())) == 1
    linked.chmod(0o777)
    assert ask("linked a") == ["none"]


@needs_root
def test_linked_by_owner_of_library(ask, program, linked, tmp_path):
    """Who may write the library itself. Another user may not."""
    for path in (linked, *linked.iterdir()):
        os.chown(path, OTHER, OTHER)
    assert ask("linked a") == ["none"]
    os.chown(program, OTHER, OTHER)
    try:
        assert ask("linked a") == ["= 1"]
        for path in (linked, *linked.iterdir()):
            os.chown(path, 0, 0)
        for path in (linked, linked.parent):
            path.chmod(0o755)
        for path in linked.iterdir():
            path.chmod(0o644)
        assert run_as_other(ask, program, tmp_path, "linked a") == ["= 1"]
    finally:
        os.chown(program, 0, 0)


def test_link(ask, tmp_path):
    ask("write a 1")
    path = pathlib.Path(*ask("path a"))
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert ask("read a") == ["none"]


def test_not_to_be_written(ask, tmp_path):
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / "kernels"
    answer = ask("write a 1", "read a", folder=folder)
    assert answer == [f"cannot make {folder}: Not a directory", "none"]


def test_many_threads(ask):
    assert ask("many a 8") == ["ok"]


def test_many_processes(program, tmp_path):
    command = f"printf 'many a 2\\n' | {program} {tmp_path / 'kernels'}"
    started = [os.popen(command) for _ in range(4)]
    assert [each.read() for each in started] == ["ok\n"] * 4
    assert [each.close() for each in started] == [None] * 4
    assert len(list((tmp_path / "kernels").iterdir())) == 1


@pytest.mark.parametrize(
    "variables, expected",
    [
        ("CUTLASS_FUSED_CACHE_DIR=/a XDG_CACHE_HOME=/b HOME=/c", "/a/kernels"),
        ("CUTLASS_FUSED_CACHE_DIR= XDG_CACHE_HOME=/b HOME=/c", "/b/cutlass_fused/kernels"),
        ("XDG_CACHE_HOME=b HOME=/c", "/c/.cache/cutlass_fused/kernels"),
        ("HOME=/c", "/c/.cache/cutlass_fused/kernels"),
        ("", "no folder"),
    ],
)
def test_folder(ask, variables, expected):
    (answer,) = ask("path a", folder=None, environment=f"env -i {variables}")
    assert answer == expected or answer.rpartition("/")[0] == expected
