"""Launches every kernel once, on small ragged shapes, and checks each result.

For compute-sanitizer, with PyTorch's cache off so that every tensor is an allocation of its own:

    PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --tool memcheck --error-exitcode 1 \\
        python3 tests/gpu/sanitizer_run.py

With names of units behind it, or of what they begin with, only those: "linear", "linear bf16".
--list prints all. synccheck and racecheck take long and may end a process at their first finding:
each unit gets one of its own (`python -m bench.trust sanitize`). --single makes hardly more than
one call for each kernel, --skip=A,B leaves out these tiles, --fill fills all new memory with NaN,
--judge-on-cpu judges products without a kernel of cuBLAS, which racecheck does not get over.
"""

import pathlib
import sys

TESTS = pathlib.Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src"), *map(str, (TESTS / "helpers").glob("*/"))]

from fill_memory import fill_new_memory  # noqa: E402
from sanitized_judges import PLACE  # noqa: E402
from sanitized_tiles import SKIPPED  # noqa: E402
from sanitized_units import UNITS  # noqa: E402


def choose(words):
    """The units that are named, or begin with a name; all of them if there is none."""
    begin = tuple(f"{word} " for word in words)
    chosen = [name for name in UNITS if not words or f"{name} ".startswith(begin)]
    if missing := [w for w in words if not any(f"{n} ".startswith(f"{w} ") for n in chosen)]:
        raise SystemExit(f"no unit begins with {', '.join(missing)}; --list tells all")
    return chosen


def main():
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    chosen, total = choose(words), 0
    if "--list" in sys.argv:
        print("\n".join(chosen))
        return
    for word in sys.argv[1:]:
        if word.startswith("--skip="):
            SKIPPED.update(word.removeprefix("--skip=").split(","))
    if "--judge-on-cpu" in sys.argv:
        PLACE["device"] = "cpu"
    if "--fill" in sys.argv:
        fill_new_memory()
    for name in chosen:
        launches = UNITS[name]("--single" in sys.argv)
        total += launches
        print(f"{name}: {launches} calls", flush=True)
    print(f"{total} calls, all results right")
    if "--fill" in sys.argv:
        print("========= ERROR SUMMARY: 0 errors")  # as the tools end


if __name__ == "__main__":
    main()
