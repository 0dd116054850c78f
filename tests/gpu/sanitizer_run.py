"""Launches every kernel once, on small ragged shapes, and checks each result.

For compute-sanitizer, with PyTorch's cache off so that every tensor is an allocation of its own:

    PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --tool memcheck --error-exitcode 1 \\
        python3 tests/gpu/sanitizer_run.py

With names of ops behind it only theirs, for synccheck and racecheck, which take long and may end a
process at their first finding: each op gets one of its own, and so do products of 16-bit x with an
fp32 weight, as "mixed", products of fp32 matrices in either order with K cut into shares, as
"shares", products and what is added to them, as "sums", and backward passes, as "gradients".
--single makes hardly more than one call for each kernel.
"""

import itertools
import pathlib
import sys

TESTS = pathlib.Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src"), *map(str, (TESTS / "helpers").glob("*/"))]

import torch  # noqa: E402
from accuracy import Judge  # noqa: E402
from calls import (  # noqa: E402
    NORM_SOFTMAX,
    NORM_SOFTMAX_TRAIN,
    NORM_TRAIN,
    OPS,
    PRODUCT_OPS,
    SCALE_NORM_TRAIN,
    SOFTMAX,
    SOFTMAX_OPS,
    TRAIN_OPS,
)
from cases import BF16, FP16, NUMERICS, Shape, make_call, make_special_call  # noqa: E402
from cases_far_means import make_far_call  # noqa: E402
from cases_statistics import OPS_AND_NUMERICS, make_statistics_call  # noqa: E402
from judge_mixed import check_product  # noqa: E402
from layouts import (  # noqa: E402
    cut_aligned_block,
    cut_block,
    misalign_rows,
    offset_storage,
    repeat_first_row,
    transpose,
)
from tiles import (  # noqa: E402
    force_tile,
    has_sm90_kernels,
    list_tf32x3,
    list_tiles,
    read_build_info,
)

NARROW = (torch.bfloat16, torch.float16)
# Ragged in every direction, more than one tile each way; the second splits K between blocks.
TILED = (Shape(133, 264, 72, "ragged"), Shape(70, 129, 1032, "long K, odd N"))
# What the tiles do not serve: narrow kernels, CUDA cores, few rows and columns, nothing to do.
OTHERS = (
    Shape(70, 134, 66, "rows of 4 bytes in 16-bit, of 8 in fp32"),
    Shape(37, 77, 51, "odd K and N"),
    Shape(520, 77, 51, "the same with more rows: tiles of `.rows` write a 16-bit y"),
    Shape(1, 1, 1, "one number"),
    Shape(3, 5, 8, "K = 8"),
    Shape(40, 72, 0, "K = 0"),
    Shape(0, 72, 64, "empty batch"),
)
# The kernels of the softmax, each in front of and behind a bound, with aligned and unaligned rows:
# few, more and many elements to a thread, one warp and many, and rows that are read twice, from
# shared memory alone and from global memory too, or that clusters stream, up to the largest.
WIDTHS = (1, 40, 33, 256, 264, 259, 1000, 1001, 1032, 1027, 8200, 8201, 16392, 16389, 65544, 65543)
# Streamed rows, so many that each cluster has several.
MANY_WIDE = (
    Shape(300, 32000, 0, "aligned"),
    Shape(300, 16387, 0, "at every distance from 16 bytes"),
)
# Rows with a normalization in front of the softmax: one kernel, also the widest, and two; from fp32
# to 16 bits the second has variants of its own.
WIDTHS_BEHIND_NORM = (2048, 2047, 2052, 2049, 8192, 8200, 8201, 16392, 16389, 65544)
# Shapes for the statistics: ragged ranges of rows and blocks of columns, and more of them than one.
MATRICES = (
    Shape(2, 264, 24, "two rows"),
    Shape(37, 77, 51, "odd"),
    Shape(300, 520, 64, "several ranges and blocks"),
    Shape(1100, 3, 16, "many ranges"),
    Shape(600, 136, 40, "a product whose last tile has no row of the batch"),
    Shape(70, 8200, 40, "an fp32 product that finds statistics, and repairs and merges at once"),
    Shape(40, 1, 64, "one column"),
    Shape(0, 72, 64, "empty batch"),
    Shape(40, 0, 64, "no columns"),
)
# Rows that a batch norm keeps in shared memory, in groups of columns of each width.
ON_CHIP = (
    Shape(1100, 1032, 0, "ragged"),
    Shape(4100, 72, 0, "few columns"),
    Shape(300, 4104, 0, "few rows"),
)
LAYOUTS = (
    misalign_rows,
    offset_storage,
    cut_block,
    cut_aligned_block,
    transpose,
    repeat_first_row,
)


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


def run_all(op, numerics, single=False):
    """The number of launches for this op and these dtypes."""
    launches = 0
    for shape in TILED[:1] if single else TILED:
        call = make_call(
            op, shape, numerics, "cuda", bias="offset", scale="strided", vectors="fp32"
        )
        judge = Judge(call)
        for tile in list_tiles(call):
            launches += run_tile(tile, call, judge)
    for shape in OTHERS[:2] if single else OTHERS:
        launches += run(make_call(op, shape, numerics, "cuda"))
    call = make_call(op, TILED[0], numerics, "cuda", scale="scalar")
    for layout in (misalign_rows,) if single else LAYOUTS:
        launches += run(call.change(x=layout(call.x), weight=layout(call.weight)))
    # Infinities and NaN, which fp32 inputs compute a second time on CUDA cores.
    launches += run(make_special_call(op, numerics, "cuda"))
    return launches + (run_split_alone(call) if call.x.dtype == torch.float32 else 0)


def run_split_alone(call):
    """Only the split of weight is there, which also a row of x that is out of reach reads."""
    call.x[3, 0] = 1e30
    call.weight[:, 0] = 0  # so that the terms count of which row 3 lost all
    expected = call.run()
    split = torch.ops.cutlass_fused.split_weight(call.weight, call.precision)
    nothing = torch.full((), torch.nan, device="cuda").expand(call.weight.shape)
    alone = call.change(weight=nothing)
    result = alone.overload()(*alone.arguments(), weight_split=split)
    torch.cuda.synchronize()
    others = torch.arange(call.m, device="cuda") != 3
    assert torch.equal(result[others], expected[others])
    torch.testing.assert_close(result[3], expected[3], rtol=1e-2, atol=1e-2)
    return 1


def run_shares(single=False):
    """fp32 matrices as they lie: every tile, order of operands, and way to cut K."""
    launches = 0
    for m, n, k in ((130, 68, 52), (260, 132, 1036))[: 1 if single else 2]:
        x, weight = torch.randn(m, k, device="cuda"), torch.randn(n, k, device="cuda")
        for rows, other in itertools.product(
            (x, lay_along_rows(x)), (weight, lay_along_rows(weight))
        ):
            for tile in list_tf32x3(rows, other):
                depth = int(tile.split("x")[2].split("w")[0].split(".")[0])
                for shares in (shares for shares in (1, 2, 4, 16) if shares <= -(-k // depth)):
                    with force_tile(f"{tile}@k{shares}"):
                        y = torch.ops.cutlass_fused.linear(rows, other)
                    torch.cuda.synchronize()
                    check_product(y, rows, other)
                    launches += 1
    return launches


def run_sums(single=False):
    """A product and a sum, by every kernel that does both, over the sum and beside it."""
    launches = 0
    for shape in TILED[:1] if single else TILED:
        x, weight = (torch.randn(rows, shape.k, device="cuda") for rows in (shape.m, shape.n))
        for other in (weight, lay_along_rows(weight)):
            tiles = list_tf32x3(x, other)
            if has_sm90_kernels(x.device):
                tiles += read_build_info()["tiles_sm90_fp16x3"]
            for tile in ("cublas", "sm80", *tiles):
                if shape.n % 4 != 0 and "/" in tile and ".direct" not in tile:
                    continue  # TMA writes whole pieces
                y = torch.randn(shape.n, shape.m, device="cuda").t()
                expected = 2 * (x.double() @ other.double().t()) - y.double()
                with force_tile(tile):
                    y = torch.ops.cutlass_fused.addmm(y, x, other, -1.0, 2.0)
                    torch.ops.cutlass_fused.addmm_out(y, y, x, other, -1.0, 2.0)
                torch.cuda.synchronize()
                expected = 2 * (x.double() @ other.double().t()) - expected
                torch.testing.assert_close(y.double(), expected, rtol=1e-4, atol=1e-3)
                launches += 2
    return launches


def lay_along_rows(matrix):
    """Its columns lie side by side, and begin at multiples of 16 bytes."""
    rows, columns = matrix.shape
    memory = matrix.new_empty(columns, -(-rows // 4) * 4)
    return memory[:, :rows].t().copy_(matrix)


def run_mixed(dtype):
    """x of 16 bits beside an fp32 weight: kernels that read both in either order, and those that
    widen x, whose rows begin anywhere."""
    launches = 0
    tiles = read_build_info()["tiles_tf32x3"]
    tiles = [tile for tile in tiles if "x64" in tile and ".sm90" not in tile]
    for m, n, k in ((133, 264, 72), (70, 128, 1032), (37, 77, 51), (1, 1, 40)):
        x = torch.randn(m, k, device="cuda").to(dtype)
        weight = torch.randn(n, k, device="cuda") / k**0.5
        named = [f"{tile}@k{shares}" for tile in tiles for shares in (1, 4) if shares <= k // 64]
        for forced in ("", "split_rows", *(named if k % 8 == 0 else ())):
            for rows, other in ((x, weight), (x, weight.t().contiguous().t())):
                with force_tile(forced):
                    y = torch.ops.cutlass_fused.linear(rows, other)
                torch.cuda.synchronize()
                check_product(y, rows, other)
                launches += 1
    return launches


def run_gradients(dtype):
    """The kernels of backward passes, which read rows in pieces, or a number at a time."""
    launches, ops = 0, torch.ops.cutlass_fused
    for shape in ((1, 1), (5, 7), (133, 264), (700, 129), (3, 1000)):
        x, z = (torch.randn(shape, device="cuda").to(dtype) for _ in range(2))
        rstd, mean = torch.rand(2, shape[1], device="cuda")
        for each in (x, misalign_rows(x), transpose(x)):
            for op, arguments in (
                (ops.leaky_relu_gradient, (each, z > 0, 1.5, -0.25)),
                (ops.batch_norm_gradient, (each, z, mean, rstd, None)),
                (ops.batch_norm_gradient, (each, z, mean, rstd, rstd, mean)),
                (ops.batch_norm_scale_gradient, (each, z, mean, rstd, mean, rstd, mean)),
            ):
                results = op(*arguments)
                torch.cuda.synchronize()
                host = (v.cpu() if isinstance(v, torch.Tensor) else v for v in arguments)
                for result, expected in zip(results, op(*host), strict=True):
                    torch.testing.assert_close(result.cpu(), expected, rtol=2e-2, atol=2e-2)
                launches += 1
        launches += run_scale_gradient(x, z)
    return launches + run_softmax_gradient(dtype)


def run_scale_gradient(x, z):
    """With an eps of which half of the rows, or columns, have more in their variance."""
    ops, eps = torch.ops.cutlass_fused, 0.5
    of_rows, of_columns = (2 * torch.rand(size, device="cuda") for size in x.shape)
    for op, operands in (
        (ops.unscale_columns, (z, x.clone(), *[of_columns] * 4, eps, of_columns)),
        (ops.scale_gradient, (z, of_rows, of_rows, of_rows, eps, None)),
    ):
        written, host = x.clone(), x.cpu()
        op(written, *operands)
        torch.cuda.synchronize()
        op(host, *(v.cpu() if isinstance(v, torch.Tensor) else v for v in operands))
        torch.testing.assert_close(written.cpu(), host, rtol=2e-2, atol=2e-2)
    return 2


def run_softmax_gradient(dtype):
    """Rows of some lanes, of a warp, of a block, and longer ones."""
    launches, op = 0, torch.ops.cutlass_fused.softmax_gradient
    for shape in ((1, 1), (70, 3), (9, 24), (17, 33), (5, 264), (3, 1001), (3, 8192), (3, 20001)):
        x, y = torch.randn(shape, device="cuda"), torch.randn(shape, device="cuda").softmax(-1)
        x, y = x.to(dtype), y.to(dtype)
        for each in (x, offset_storage(x), transpose(x)):
            grad = op(each, y)
            torch.cuda.synchronize()
            torch.testing.assert_close(grad.cpu(), op(each.cpu(), y.cpu()), rtol=2e-2, atol=1e-4)
            launches += 1
    return launches


def run_statistics(call):
    """Everything that the op writes, close to float64: the accuracy is for other tests to judge."""
    results = call.run_all()
    torch.cuda.synchronize()
    truth = call.map_tensors(torch.Tensor.cpu).flatten().in_float64().refer_all()
    coarse = call.x.dtype.itemsize == 2 or call.precision == "tf32"
    rtol, atol = (0.25, 0.05) if coarse else (1e-3, 1e-4)
    if call.op in SOFTMAX_OPS:
        atol = 1e-5
    for name, result in results.items():
        exact = truth[name].double()
        found = result.cpu().double().reshape(exact.shape)
        limit = {"rtol": rtol, "atol": atol if name == "y" else max(atol, 0.05 * coarse)}
        torch.testing.assert_close(found, exact, **limit, msg=lambda m, n=name: f"{n}: {m}")
    return 1


def list_statistics_calls(op, numerics):
    """Calls that reach every kernel behind the product, or without one, for these dtypes."""

    def make(*arguments, **kinds):
        return make_statistics_call(op, *arguments, numerics, "cuda", **kinds)

    if op == SOFTMAX:
        for width in WIDTHS:
            yield make(Shape(5, width, 0, "one width"))
        for shape in MANY_WIDE:
            yield make(shape)
    for shape in MATRICES + (ON_CHIP if op == NORM_TRAIN else ()):
        yield make(shape)
        if op in TRAIN_OPS and op in PRODUCT_OPS:
            yield make(shape).change(keep_z=False)
            if numerics.dtype == torch.float32 and shape.m > 3 and shape.n > 0:
                call = make(shape)  # with a row that the kernel which merges repairs
                call.x[3, 0] = 1e30
                call.weight[:, 0] = 0
                yield call
    if op in (NORM_SOFTMAX_TRAIN, NORM_SOFTMAX):
        for width in WIDTHS_BEHIND_NORM:
            for scale in ("one", "own"):
                call = make(Shape(9, width, 16, "wide"), scale=scale)
                yield call
                if op in TRAIN_OPS:
                    yield call.change(keep_z=False)
    if op in TRAIN_OPS and op in PRODUCT_OPS and numerics in (BF16, FP16):
        # Tiles that store z less shifts of their own, which a merge makes one.
        far = make_far_call(op, Shape(5000, 264, 40, "far"), numerics, 1e4, 1.0, "x", "cuda", 1e-2)
        yield far.change(keep_z=False)
    kinds = {"bias": "offset", "scale": "strided", "vectors": "strided", "statistics": "strided"}
    if op == SCALE_NORM_TRAIN and numerics == BF16:
        yield make(Shape(16129, 2040, 64, "in strips, while the product runs")).change(keep_z=False)
    call = make(TILED[0], **kinds)
    for layout in LAYOUTS if op not in PRODUCT_OPS else ():
        yield call.change(x=layout(call.x))
    yield call
    if op in TRAIN_OPS:
        yield call.change(momentum=None, running_mean=None)
        yield call.change(num_batches_tracked=None, gamma=None, beta=None)


def main():
    wanted, total = [word for word in sys.argv[1:] if word != "--single"], 0
    single = "--single" in sys.argv
    for op in OPS:
        for numerics in NUMERICS if not wanted or op in wanted else ():
            launches = run_all(op, numerics, single)
            total += launches
            print(f"{op} {numerics}: {launches} calls", flush=True)
    for dtype in NARROW if not wanted or "mixed" in wanted else ():
        launches = run_mixed(dtype)
        total += launches
        print(f"mixed {dtype}: {launches} calls", flush=True)
    if not wanted or "shares" in wanted:
        launches = run_shares(single)
        total += launches
        print(f"shares: {launches} calls", flush=True)
    if not wanted or "sums" in wanted:
        launches = run_sums(single)
        total += launches
        print(f"sums: {launches} calls", flush=True)
    for dtype in (torch.float32, *NARROW) if not wanted or "gradients" in wanted else ():
        launches = run_gradients(dtype)
        total += launches
        print(f"gradients {dtype}: {launches} calls", flush=True)
    for op, numerics in OPS_AND_NUMERICS:
        if wanted and op not in wanted:
            continue
        launches = sum(map(run_statistics, list_statistics_calls(op, numerics)))
        total += launches
        print(f"{op} {numerics}: {launches} calls", flush=True)
    print(f"{total} calls, all results right")


if __name__ == "__main__":
    main()
