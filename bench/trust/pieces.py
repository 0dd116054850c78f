"""The files that runs of the parts write: one a run, each all or nothing.

    {"part": "fuzz", "meta": {gpu, driver, cuda, torch, commit, date, library, sources, code}, ...}

`library` is the hash of the compiled library, `sources` that of what fuzzed cases are made by: runs
with the same of both count together. `code` is that of all in Python that runs, and of what is
compiled for a run: what failed may be right the next time only where one of the three has changed.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import platform

import torch

import cutlass_fused
from bench.measure import machine
from bench.measure.results import META, InvalidResult

from .paths import ROOT, TESTS

SAME = ("gpu", "cuda", "torch", "commit", "library", "sources", "code")
# What decides which case a number is, and what becomes of it.
SOURCES = (TESTS / "helpers/fuzzing", TESTS / "helpers/calls", TESTS / "helpers/judges")
PACKAGE = pathlib.Path(cutlass_fused.__file__).parent
CODE = (PACKAGE, TESTS / "helpers", TESTS / "gpu/sanitizer_run.py", ROOT / "bench/trust")

# What a piece has beside its part and its meta.
NEEDED = {
    "fuzz": ("seed", "settings", "canaries", "told", "numbers", "seconds"),
    "sanitize": ("tool", "planted", "units"),
    "stock": ("tool", "kernels"),
    "soak": ("run", "wrong"),
}


def hash_files(paths: list[pathlib.Path]) -> str:
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def hash_library() -> str:
    """Of the library and of the kernels that came with it."""
    return hash_files([*PACKAGE.glob("*.so"), *PACKAGE.glob("*.bin")])


def hash_sources() -> str:
    return hash_files([path for folder in SOURCES for path in folder.glob("*.py")])


def hash_code() -> str:
    files = [path for path in CODE if path.is_file()]
    for ending in ("py", "txt", "cu"):
        files += [path for folder in CODE for path in folder.rglob(f"*.{ending}")]
    return hash_files(files)


def describe(device: str, commit: str | None) -> dict[str, str]:
    """The meta of a piece; on a CPU it says so in place of the GPU."""
    if device == "cuda":
        if not torch.cuda.is_available():
            raise SystemExit("this needs a CUDA GPU: torch.cuda.is_available() is False")
        meta = machine.describe_machine(commit)
    else:
        meta = {
            "gpu": "cpu",
            "driver": platform.processor() or "unknown",
            "cuda": torch.version.cuda or "none",
            "torch": torch.__version__,
            "commit": machine.resolve_commit(commit) if commit else machine.find_commit(),
            "date": machine.describe_date(),
        }
    return meta | {"library": hash_library(), "sources": hash_sources(), "code": hash_code()}


def write_piece(path: pathlib.Path, content: dict) -> None:
    """All or nothing: a run that is killed leaves the file as it was."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(f".{os.getpid()}.new")
    beside.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    os.replace(beside, path)


def name_piece(folder: pathlib.Path, part: str, *words: str) -> pathlib.Path:
    """A file that is not there yet, and that no other run is given: a mark beside it says so."""
    name = "-".join([part, *words])
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(10**6):
        path = folder / f"{name}-{number:03}.json"
        with contextlib.suppress(FileExistsError):
            path.with_suffix(".taken").touch(exist_ok=False)
            if not path.exists():
                return path
    raise OSError(f"{folder} is full of pieces of {name}")


def read_pieces(folder: pathlib.Path, part: str = "") -> list[dict]:
    """Those of a part, or all, in the order of their names. Raises InvalidResult for a file that is
    cut short, or no piece, or lacks a part of one."""
    found = []
    for path in sorted(folder.glob(f"{part}*-[0-9]*.json")):
        try:
            found.append(json.loads(path.read_text(encoding="utf-8")))
        except ValueError as error:
            raise InvalidResult(f"{path} is no piece of a run: {error}") from None
        if missing := find_missing(found[-1]):
            raise InvalidResult(f"{path} is no piece of a run: it has no {missing}")
    return found


def find_missing(piece) -> str | None:
    """The first thing that it lacks. Whether its part is one of ours is for others to judge."""
    meta = piece.get("meta") if isinstance(piece, dict) else None
    if not isinstance(meta, dict):
        return "meta"
    lacking = [f"{key} in its meta" for key in (*META, *SAME) if key not in meta]
    lacking += [key for key in NEEDED.get(piece.get("part"), ()) if key not in piece]
    return next(iter(lacking), None)


def is_alike(meta: dict, other: dict) -> bool:
    """Whether both are of one machine, commit, library and generator of cases."""
    return all(meta[key] == other[key] for key in SAME)


def join_ranges(numbers: set[int]) -> list[list[int]]:
    """Numbers as [first, behind the last] of runs without a gap."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][1] == number:
            ranges[-1][1] += 1
        else:
            ranges.append([number, number + 1])
    return ranges


def list_numbers(ranges: list[list[int]]) -> set[int]:
    return {number for first, end in ranges for number in range(first, end)}
