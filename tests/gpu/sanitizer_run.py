"""Launches every kernel once, on small ragged shapes, and checks each result.

For compute-sanitizer, with PyTorch's cache off so that every tensor is an allocation of its own:

    PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --tool memcheck --error-exitcode 1 \\
        python3 tests/gpu/sanitizer_run.py
"""

import pathlib
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER.parents[1]), str(FOLDER.parent), str(FOLDER)]

import torch  # noqa: E402
from accuracy import Judge  # noqa: E402
from calls import OPS  # noqa: E402
from cases import NUMERICS, Shape, make_call, make_special_call  # noqa: E402
from layouts import cut_block, misalign_rows, offset_storage, repeat_first_row, transpose  # noqa: E402
from tiles import force_tile, list_tiles  # noqa: E402

# Ragged in every direction, more than one tile each way; the second splits K between blocks.
TILED = (Shape(133, 264, 72, "ragged"), Shape(70, 129, 1032, "long K, odd N"))
# What the tiles do not serve: narrow kernels, CUDA cores, few rows and columns, nothing to do.
OTHERS = (
    Shape(70, 134, 66, "rows of 4 bytes in 16-bit, of 8 in fp32"),
    Shape(37, 77, 51, "odd K and N"),
    Shape(1, 1, 1, "one number"),
    Shape(3, 5, 8, "K = 8"),
    Shape(40, 72, 0, "K = 0"),
    Shape(0, 72, 64, "empty batch"),
)
LAYOUTS = (misalign_rows, offset_storage, cut_block, transpose, repeat_first_row)


def run(call):
    result = call.run()
    torch.cuda.synchronize()
    Judge(call).check(result)
    return 1


def run_tile(name, call, judge):
    """A tile that the heuristic might not take for this problem: judged by the a-priori bound."""
    with force_tile(name):
        result = call.run()
        torch.cuda.synchronize()
    judge.check_bound(result)
    return 1


def run_all(op, numerics):
    """The number of launches for this op and these dtypes."""
    launches = 0
    for shape in TILED:
        call = make_call(
            op, shape, numerics, "cuda", bias="offset", scale="strided", vectors="fp32"
        )
        judge = Judge(call)
        for tile in list_tiles(numerics):
            launches += run_tile(tile, call, judge)
    for shape in OTHERS:
        launches += run(make_call(op, shape, numerics, "cuda"))
    call = make_call(op, TILED[0], numerics, "cuda", scale="scalar")
    for layout in LAYOUTS:
        launches += run(call.change(x=layout(call.x), weight=layout(call.weight)))
    # Infinities and NaN, which "ieee" computes a second time on CUDA cores.
    return launches + run(make_special_call(op, numerics, "cuda"))


def main():
    total = 0
    for op in OPS:
        for numerics in NUMERICS:
            launches = run_all(op, numerics)
            total += launches
            print(f"{op} {numerics}: {launches} calls", flush=True)
    print(f"{total} calls, all results right")


if __name__ == "__main__":
    main()
