"""The ops behind autotune, as far as they need no GPU. What they do to a product is in
tests/tuning/test_tuned_tiles.py and tests/gpu/surroundings/test_autotune.py."""

import json

import pytest
import torch

from cutlass_fused import _library

OPS = torch.ops.cutlass_fused
KEY = "bf16 M=1 N=2 K=8 y=bfloat16"

pytestmark = pytest.mark.skipif(not _library.is_loaded(), reason="the library is not loaded")


@pytest.fixture(autouse=True)
def forget():
    yield
    OPS.tune_tile(0, KEY, "")
    OPS.record_products(False)


def test_all_tiles_are_taken():
    build = json.loads(OPS.build_info())
    sm80, sm90 = (
        {tile for table, tiles in build.items() if table.startswith(arch) for tile in tiles}
        for arch in ("tiles_sm80", "tiles_sm90")
    )
    for tile in sm80 | sm90:
        OPS.tune_tile(0, KEY, tile)
    for tile in sm90:
        OPS.tune_tile(0, KEY, f"{tile}@{'k3' if '.split' in tile else 'n4'}")


@pytest.mark.parametrize("tile", ["7x7x7B", "128x256", " ", "128x256x64B@m1"])
def test_unknown_tile(tile):
    with pytest.raises(RuntimeError, match=f"tune_tile: tile must be one of .*, got '{tile}'"):
        OPS.tune_tile(0, KEY, tile)


@pytest.mark.parametrize(
    ("device", "key"),
    [(-1, KEY), (2**31, KEY), (0, ""), (0, "bf16"), (0, KEY + " "), (0, KEY.replace("8", "-"))],
    ids=str,
)
def test_unknown_product(device, key):
    for tile in ("128x256x64B", ""):
        with pytest.raises(RuntimeError, match=f"tune_tile: device must .*, got {device} and '"):
            OPS.tune_tile(device, key, tile)


def test_products_of_the_cpu_are_not_recorded():
    """The kernels there have no tiles."""
    assert json.loads(OPS.record_products(True)) == []
    OPS.linear(torch.randn(16, 64), torch.randn(16, 64))
    assert json.loads(OPS.record_products(True)) == json.loads(OPS.record_products(False)) == []


def test_schemas():
    for op, arguments in ((OPS.tune_tile, (0, KEY, "")), (OPS.record_products, (False,))):
        torch.library.opcheck(op.default, arguments, test_utils="test_schema")
