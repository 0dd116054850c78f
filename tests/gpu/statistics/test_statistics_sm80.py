"""Batch norm in training behind SM80 products that find the statistics themselves: each tile
forced, on any GPU."""

import pytest
import torch
from calls import NORM_SOFTMAX_TRAIN, SCALE_NORM_TRAIN
from cases import BF16, FP16, IEEE, TF32, Shape
from cases_statistics import make_distant_call, make_special_statistics_call, make_statistics_call
from judge_tiles import judge_tiles
from logged import read_plan, run_logged

pytestmark = pytest.mark.gpu

SHAPES = (
    Shape(2, 264, 40, "the smallest batch; the last columns ragged"),
    Shape(129, 136, 64, "a second tile of one row"),
    Shape(1000, 1032, 72, "ragged both ways"),
    Shape(300, 129, 64, "odd N: vectors and z are unaligned"),
    Shape(5000, 264, 64, "many tiles of a column"),
    Shape(2100, 2056, 136, "more tiles than blocks fit on the GPU"),
)
of_both = pytest.mark.parametrize("op", (SCALE_NORM_TRAIN, NORM_SOFTMAX_TRAIN))
of_all_numerics = pytest.mark.parametrize("numerics", [IEEE, TF32, BF16, FP16], ids=str)


@pytest.mark.parametrize("keep_z", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@of_all_numerics
@of_both
def test_shapes(device, op, numerics, shape, keep_z):
    judge_tiles(make_statistics_call(op, shape, numerics, device).change(keep_z=keep_z))


@pytest.mark.parametrize("kind", ["none", "fp32", "strided", "offset"])
@of_all_numerics
@of_both
def test_vectors(device, op, numerics, kind):
    statistics = "fp32" if kind == "none" else kind
    kinds = {"bias": kind, "vectors": kind, "statistics": statistics}
    judge_tiles(make_statistics_call(op, SHAPES[2], numerics, device, **kinds))


@pytest.mark.parametrize("ratio", [1.0, 1e2, 1e4])
@of_all_numerics
def test_distant_means(device, numerics, ratio):
    """The bias is the mean: what is left is the error of the statistics."""
    call = make_distant_call(
        SCALE_NORM_TRAIN, numerics, ratio, device, shape=Shape(1000, 264, 40, "an exact product")
    )
    out = torch.float32 if numerics in (BF16, FP16) and ratio > 1 else call.out_dtype
    judge_tiles(call.change(out_dtype=out, keep_z=False))


@of_all_numerics
@of_both
def test_special_values(device, op, numerics):
    judge_tiles(make_special_statistics_call(op, numerics, device).change(keep_z=False))


@of_both
def test_repaired_elements_count(device, op):
    """Those of SM90 kernels count, too (test_product_statistics.py)."""
    call = make_statistics_call(op, SHAPES[2], IEEE, device)
    call.x[300:310, 0] = 1e30
    call.weight[:, 0] = 0
    call.x[:, 1] *= 1e-3
    judge_tiles(call)


def test_these_kernels_run(device):
    _, log = run_logged("""
        import torch
        from cutlass_fused import nn
        x = torch.rand(1024, 1024, device="cuda")
        for tile, dtype in (
            ("128x256x64B", torch.bfloat16),
            ("128x128x64B", torch.float16),
            ("128x128x128B", torch.float32),
            ("128x128x64B.streamk", torch.bfloat16),
        ):
            model = nn.LinearScaleBatchNorm1d(1024, 2048, (2048,), precision="ieee")
            torch.ops.cutlass_fused.force_tile(tile)
            with torch.no_grad():
                model.cuda().to(dtype)(x.to(dtype))
        """)
    *found, (separate, by) = [read_plan(line)[:2] for line in log]
    assert found == [
        ["128x256x64B", "statistics: product"],
        ["128x128x64B", "statistics: product"],
        ["128x128x128B", "statistics: product"],
    ]
    # On a GPU of 9.0 one kernel keeps z on chip.
    assert separate == "128x128x64B.streamk" and by in (
        "statistics: columns",
        "statistics: on chip",
    )
