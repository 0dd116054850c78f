"""What the sanitizers report of CUTLASS's own kernels, with the schedules that ours have.

    python -m bench.trust stock --build
    python -m bench.trust stock --tool racecheck --out build/trust

stock_cutlass.cu has no line of this library. A report that it gets too is CUTLASS's own. nvcc and
the headers of CUTLASS are those of the library's build. With --build it is compiled and not run,
for another machine: there it needs no library but the driver's.
"""

import argparse
import json
import pathlib
import subprocess
import sys

from bench.measure.machine import ROOT
from bench.measure.options import parse_seconds

from . import pieces, sanitize
from .paths import add_helpers

add_helpers()

SOURCE = pathlib.Path(__file__).with_name("stock_cutlass.cu")
PROGRAM = ROOT / "build/trust/stock_cutlass"
# Those of the library, of the list that is for other machines.
ARCHITECTURES = ("80", "90a")
# CUTLASS's names are all that its kernels have.
OPTIONS = {
    tool: tuple(
        "kernel_substring=cutlass" if "kernel_substring" in word else word for word in words
    )
    for tool, words in sanitize.OPTIONS.items()
}


def list_names() -> list[str]:
    """The kernels, as the program has them in its table."""
    _, _, table = SOURCE.read_text(encoding="utf-8").partition("kStock[] = {")
    return [line.split('"')[0] for line in table.partition("};")[0].split('{"')[1:]]


def write_command(program: pathlib.Path) -> list[str]:
    from build_system.cuda_toolkit import find_cuda_toolkit
    from build_system.cutlass_headers import find_cutlass
    from build_system.host_compiler import name_host_compiler

    cutlass = find_cutlass()
    words = [find_cuda_toolkit().nvcc, "-ccbin", name_host_compiler()]
    words += ["-O3", "-std=c++17", "-DNDEBUG", "--expt-relaxed-constexpr", "-lineinfo"]
    for arch in ARCHITECTURES:
        words += ["-gencode", f"arch=compute_{arch},code=sm_{arch}"]
    words += ["-I", cutlass.include, "-I", cutlass.util_include, SOURCE, "-o", program]
    return list(map(str, words))


def build() -> None:
    if PROGRAM.exists() and PROGRAM.stat().st_mtime > SOURCE.stat().st_mtime:
        return
    PROGRAM.parent.mkdir(parents=True, exist_ok=True)
    beside = PROGRAM.with_suffix(".new")
    subprocess.run(write_command(beside), check=True)
    beside.replace(PROGRAM)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.trust stock", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--build", action="store_true", help="compile, and run nothing")
    parser.add_argument("--tool", choices=sanitize.SANITIZERS)
    parser.add_argument("--out", type=pathlib.Path, help="folder of the pieces")
    parser.add_argument(
        "--seconds", type=parse_seconds, default=300.0, help="end a kernel's run later"
    )
    parser.add_argument("--commit", help="what is tested; default: the commit of this checkout")
    options = parser.parse_args(arguments)
    if not options.build and (options.tool is None or options.out is None):
        parser.error("--tool and --out must be given, or --build")
    build()
    if options.build:
        return 0
    sanitizer = sanitize.find_sanitizer()
    kernels = {}
    for name in list_names():
        command = [sanitizer, "--tool", options.tool, *OPTIONS[options.tool]]
        outcome = sanitize.run_command(
            [*command, "--error-exitcode", str(sanitize.FOUND), str(PROGRAM), name],
            options.seconds,
        )
        print(f"{name}: {outcome.verdict}, {outcome.errors} errors, {outcome.seconds} s")
        for line in outcome.told[:12]:
            print(f"  {line}")
        kernels[name] = outcome._asdict()
    meta = pieces.describe("cuda", options.commit)
    content = {"part": "stock", "tool": options.tool, "meta": meta, "kernels": kernels}
    pieces.write_piece(pieces.name_piece(options.out, "stock", options.tool), content)
    # What is found is an answer, too, and that the tool breaks. A product that is wrong, or did
    # not run, is none.
    answers = ("right", "found", "broke")
    none = [name for name, each in kernels.items() if each["verdict"] not in answers]
    print(json.dumps({"no answer": none}))
    return int(bool(none))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
