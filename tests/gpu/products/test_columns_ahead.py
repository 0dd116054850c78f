"""Vectors that a warp of their own reads while a tile is multiplied. That they are what the kernel
before wrote: test_launch_order.py."""

import pytest
import torch
from accuracy import Judge
from calls import BATCH_NORM
from cases import BF16, FP16, Shape, make_call
from check_call import run_poisoned
from tiles import force_tile, list_sm90_tiles

pytestmark = pytest.mark.gpu

# Several tiles to a block, each of other columns; a tile takes less time than its vectors, or more.
SHAPES = (Shape(2100, 9000, 72, "a short K"), Shape(2100, 9000, 1032, "a long K"))


@pytest.mark.parametrize("numerics", [FP16, BF16], ids=str)
@pytest.mark.parametrize("raster", ["@m1", "@n1", "@n4"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_each_tile_has_its_own(device, shape, raster, numerics):
    call = make_call(BATCH_NORM, shape, numerics, device)
    judge = Judge(call)
    tiles = [tile for tile in list_sm90_tiles(call) if ".cooperative" in tile]
    if not tiles:
        pytest.skip("kernels of compute capability 9.0 alone")
    for tile in tiles:
        with force_tile(tile + raster):
            result = run_poisoned(call)
            judge.check(result)
            for _ in range(20):
                assert torch.equal(call.run(), result)
