"""Every kernel of the library under compute-sanitizer, unit by unit.

    python -m bench.trust sanitize --tool cover --seconds 500 --out build/trust
    python -m bench.trust sanitize --tool memcheck --jobs 4 --seconds 500 --out build/trust

`cover` runs the units under PyTorch's profiler, and tells which kernels of the library none of them
launched. `fill` runs them with all new memory full of NaN: a number that is read before it is
written makes a result NaN. The other tools are compute-sanitizer's. Each first finds the faults of
planted kernels. The same command goes on where the last one stopped.

racecheck breaks over some kernels: the unit then runs again without that tile, which is told.
"""

import argparse
import concurrent.futures
import json
import math
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

from bench.measure.machine import ROOT
from bench.measure.options import parse_count, parse_seconds

from . import pieces
from .paths import TESTS, add_helpers

add_helpers()

from planted_kernels import PLANTED  # noqa: E402
from sanitized_units import UNITS  # noqa: E402

from . import kernels  # noqa: E402

SANITIZERS = ("memcheck", "racecheck", "initcheck", "synccheck")
COVER, FILL = "cover", "fill"
TOOLS = (*SANITIZERS, FILL)
RUN, PLANTED_RUN = TESTS / "gpu/sanitizer_run.py", TESTS / "helpers/sanitizing/planted_kernels.py"
FOUND = 86  # compute-sanitizer's exit status where it finds an error
# Instrumented kernels take up to a hundred times as long. synccheck and racecheck look at ours
# alone; initcheck must see what other kernels write.
OPTIONS = {
    "memcheck": (),
    "racecheck": ("--kernel-name", "kernel_substring=cutlass_fused"),
    # All that it finds: where each error is decides what it is.
    "initcheck": ("--print-limit", "100000000", "--show-backtrace", "no"),
    "synccheck": ("--kernel-name", "kernel_substring=cutlass_fused"),
}
# And of the units themselves. racecheck breaks over cuBLAS's kernels for tensor cores.
SCRIPT_OPTIONS = {FILL: ["--fill"], "racecheck": ["--judge-on-cpu"]}
# Of racecheck the errors and, behind them, the warnings.
SUMMARY = re.compile(
    r"SUMMARY: (?:\d+ hazards? displayed \()?(\d+) errors?(?:, (\d+) warnings?\))?"
)
BROKE = "Internal Sanitizer Error"  # it did not get over a kernel, and tells nothing of it
OURS, UNWRITTEN, RIGHT = "cutlass_fused", "Uninitialized __global__", "all results right"
TILE = "tile "  # how a unit tells which one it begins with
IN_KERNEL = re.compile(r"(?:at|in) ((?:void )?[\w:]*\w+(?:<.*>)?)(?:\(.*\))?\+0x[0-9a-f]+")
KEPT_LINES = 60  # of a unit that fails


class Outcome(NamedTuple):
    """What a unit's run was: right, found (errors of the sanitizer), broke (the sanitizer itself
    did), failed or out of time."""

    verdict: str
    errors: int
    seconds: float
    kernels: dict[str, int]  # where errors were, and how many
    told: list[str]
    # What is no error: where racecheck warns, as of a word that its own warp has read before, and
    # what initcheck tells of kernels that are not ours. It does not see what TMA stores, and
    # PyTorch's kernels judge our results; numbers that were not written are wrong.
    warnings: dict[str, int] = {}
    broke: tuple[str, ...] = ()  # tiles without which the unit ran


def find_sanitizer() -> str:
    """compute-sanitizer, from PATH, a toolkit, or the packages of this environment."""
    found = shutil.which("compute-sanitizer")
    places = [pathlib.Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))]
    places += [pathlib.Path(folder) / "nvidia" for folder in sys.path]
    for place in places:
        if found is None and place.is_dir():
            found = next((str(p) for p in sorted(place.rglob("compute-sanitizer"))), None)
    if found is None:
        raise SystemExit("there is no compute-sanitizer: it comes with the CUDA toolkit")
    return found


def run_tool(tool: str, script: list[str], seconds: float, sanitizer: str) -> Outcome:
    """Without the tiles over which the tool breaks."""
    command = [sanitizer, "--tool", tool, "--error-exitcode", str(FOUND), *OPTIONS.get(tool, ())]
    command = [sys.executable] if tool == FILL else [*command, sys.executable]
    options = SCRIPT_OPTIONS.get(tool, [])
    broke: list[str] = []
    while True:
        begin = time.monotonic()
        skip = [f"--skip={','.join(broke)}"] if broke else []
        outcome = run_command([*command, *script, *options, *skip], seconds)
        seconds -= time.monotonic() - begin
        # An error of CUDA that is not told as the tool's own is none of ours either: without the
        # tool there is none.
        tile = find_last_tile(outcome.told) if outcome.verdict in ("broke", "failed") else None
        if tool != "racecheck" or tile is None or tile in broke or seconds < 5:
            return outcome._replace(broke=tuple(broke))
        broke.append(tile)


def find_last_tile(lines: list[str]) -> str | None:
    """That which the unit began with last, before CUDA failed."""
    if not any("illegal memory access" in line for line in lines):
        return None
    tiles = [line.removeprefix(TILE) for line in lines if line.startswith(TILE)]
    return tiles[-1] if tiles else None


def run_command(command: list[str], seconds: float) -> Outcome:
    """What a tool, and the program behind it, told."""
    environment = os.environ | {
        "PYTORCH_NO_CUDA_MEMORY_CACHING": "1",
        "PYTHONFAULTHANDLER": "1",
        "CUDA_LAUNCH_BLOCKING": "1",  # so that what fails is what was begun last
        # Several units run side by side, and are judged on the CPU.
        "OMP_NUM_THREADS": "2",
    }
    begin = time.monotonic()
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # what the tool starts ends with it
    )
    try:
        text, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return Outcome("out of time", 0, round(seconds, 1), {}, [])
    return read_outcome(process.returncode, text, round(time.monotonic() - begin, 1))


def read_outcome(status: int, text: str, seconds: float) -> Outcome:
    """Of what a tool printed. Without its summary it looked at nothing."""
    summary = SUMMARY.findall(text)
    errors = int(summary[-1][0]) if summary else 0
    lines = [line for line in text.splitlines() if line.strip()]
    if status == 0 and summary and errors == 0:
        return Outcome("right", 0, seconds, {}, [])
    told = lines[:KEPT_LINES] + lines[max(KEPT_LINES, len(lines) - KEPT_LINES) :]
    told += [line for line in lines if line.startswith(TILE)][-1:]
    if BROKE in text:
        return Outcome("broke", 0, seconds, {}, told)
    where, warned = find_places(lines)
    if any(UNWRITTEN in line for line in lines):
        errors -= min(errors, sum(warned.values()))
    is_right = errors == 0 and status == FOUND and RIGHT in text
    verdict = "right" if is_right else "found" if errors else "failed"
    return Outcome(verdict, errors, seconds, where, [] if is_right else told, warned)


def find_places(lines: list[str]) -> tuple[dict[str, int], dict[str, int]]:
    """In which kernels there were errors, and what is none, by the head of each report."""
    errors: dict[str, int] = {}
    warnings: dict[str, int] = {}
    head = ""
    for line in lines:
        if not line.startswith("========="):
            continue
        if line.startswith("========= ") and not line.startswith("=========  "):
            head = line
        if match := IN_KERNEL.search(line):
            is_other = UNWRITTEN in head and OURS not in match[1]
            found = warnings if is_other or " Warning: " in head else errors
            name = kernels.shorten(match[1])
            found[name] = found.get(name, 0) + 1
    return errors, warnings


def check_planted(tool: str, sanitizer: str, seconds: float = 300.0) -> dict[str, Outcome]:
    """The planted faults of this tool, each of which it must find."""
    return {
        name: run_tool(tool, [str(PLANTED_RUN), name], seconds, sanitizer)
        for name, planted in PLANTED.items()
        if planted.tool == tool
    }


def cover_unit(unit: str, seconds: float) -> Outcome:
    """Our kernels that the unit launched, by the profiler, in a process of its own."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "kernels.json"
        script = [sys.executable, "-m", "bench.trust.kernels", unit, str(path)]
        try:
            done = subprocess.run(script, cwd=ROOT, capture_output=True, text=True, timeout=seconds)
        except subprocess.TimeoutExpired:
            return Outcome("out of time", 0, seconds, {}, [])
        spent = round(time.monotonic() - begin, 1)
        if done.returncode != 0:
            lines = (done.stdout + done.stderr).splitlines()
            return Outcome("failed", 0, spent, {}, lines[-KEPT_LINES:])
        return Outcome("right", 0, spent, json.loads(path.read_text()), [])


def find_done(folder: pathlib.Path, tool: str, meta: dict) -> dict[str, dict]:
    """The units that earlier runs of this library have finished."""
    done = {}
    for piece in pieces.read_pieces(folder, f"sanitize-{tool}"):
        if pieces.is_alike(piece["meta"], meta):
            done |= {
                name: unit
                for name, unit in piece["units"].items()
                if unit["verdict"] in ("right", "found", "broke")
            }
    return done


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.trust sanitize", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--tool", choices=(COVER, *TOOLS), required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder of the pieces")
    parser.add_argument("--units", help="A,B: those that begin with A or B; default: all")
    parser.add_argument("--jobs", type=parse_count, default=4, help="units at a time")
    parser.add_argument(
        "--seconds", type=parse_seconds, default=math.inf, help="end what would end later"
    )
    parser.add_argument("--commit", help="what is tested; default: the commit of this checkout")
    parser.add_argument("--single", action="store_true", help="hardly more than a call a kernel")
    return parser.parse_args(arguments)


def choose_units(words: str | None) -> list[str]:
    begin = [f"{word} " for word in words.split(",")] if words else [""]
    for word in begin:
        if not any(f"{name} ".startswith(word) for name in UNITS):
            raise SystemExit(f"--units must be what units begin with, got {word.strip()!r}")
    return [name for name in UNITS if f"{name} ".startswith(tuple(begin))]


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    end = time.monotonic() + options.seconds
    meta = pieces.describe("cuda", options.commit)
    content = {"part": "sanitize", "tool": options.tool, "meta": meta, "single": options.single}
    content |= {"planted": {}, "units": {}}
    if options.tool != COVER:
        sanitizer = "" if options.tool == FILL else find_sanitizer()
        planted = check_planted(options.tool, sanitizer)
        content["planted"] = {name: outcome._asdict() for name, outcome in planted.items()}
        if missed := [name for name, outcome in planted.items() if outcome.verdict != "found"]:
            print(json.dumps(content["planted"], indent=1))
            print(f"{options.tool} does not find the planted {', '.join(missed)}")
            return 1
    done = find_done(options.out, options.tool, meta)
    chosen = choose_units(options.units)
    left = [name for name in chosen if name not in done]
    path = pieces.name_piece(options.out, "sanitize", options.tool)
    single = ["--single"] if options.single else []

    def run(unit: str) -> Outcome | None:
        seconds = end - time.monotonic()
        if seconds < 5:
            return None
        seconds = min(seconds, 10**6)
        if options.tool == COVER:
            return cover_unit(unit, seconds)
        return run_tool(options.tool, [str(RUN), *single, unit], seconds, sanitizer)

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        runs = {pool.submit(run, unit): unit for unit in left}
        for future in concurrent.futures.as_completed(runs):
            outcome = future.result()
            if outcome is None:
                continue
            unit = runs[future]
            print(f"{unit}: {outcome.verdict}, {outcome.errors} errors, {outcome.seconds} s")
            for line in outcome.told[:12]:
                print(f"  {line}")
            content["units"][unit] = outcome._asdict()
            pieces.write_piece(path, content)
    finished = done | content["units"]
    if options.tool == COVER:
        content["missing"] = kernels.report(finished)
        pieces.write_piece(path, content)
    bad = [name for name, unit in finished.items() if unit["verdict"] not in ("right",)]
    print(f"{len(finished)} units, {len(bad)} not right: {', '.join(bad) or 'none'}")
    print(f"{len(set(chosen) - finished.keys())} of {len(chosen)} are left")
    return int(bool(bad))
