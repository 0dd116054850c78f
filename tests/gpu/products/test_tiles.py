"""Every tile, forced in turn, on shapes that no tile divides."""

import re

import pytest
import torch
from accuracy import Judge, Rejected
from calls import LEAKY, LINEAR, OPS
from cases import BF16, IEEE, NUMERICS, ONE_OUTPUT, make_call
from check_call import run_poisoned
from logged import run_logged
from tiles import (
    TILE_SHAPES,
    force_tile,
    has_sm90_kernels,
    is_persistent,
    list_sm80_tiles,
    list_sm90_tiles,
    list_tiles,
    read_build_info,
    slices_k,
)

pytestmark = pytest.mark.gpu

REFUSED = "linear: the forced tile must be one that"


@pytest.mark.parametrize("shape", TILE_SHAPES, ids=str)
@pytest.mark.parametrize("numerics", NUMERICS, ids=str)
@pytest.mark.parametrize("op", OPS)
def test_every_tile(device, op, numerics, shape):
    call = make_call(op, shape, numerics, device)
    judge, failures = Judge(call), []
    for tile in list_tiles(call):
        with force_tile(tile):
            result, again = run_poisoned(call), run_poisoned(call)
        try:
            judge.check(result)
        except Rejected as rejection:
            failures.append(f"{tile}: {rejection}")
        if not torch.equal(result, again):
            failures.append(f"{tile}: two runs differ")
    assert not failures, "\n".join(failures)


def test_there_are_tiles_to_force(device):
    for numerics in NUMERICS:
        call = make_call(LINEAR, TILE_SHAPES[0], numerics, device)
        tiles = list_sm80_tiles(call)
        assert len(tiles) == len(set(tiles)) >= 3
        assert any("streamk" in tile for tile in tiles)
        assert bool(list_sm90_tiles(call)) == has_sm90_kernels(device)


@pytest.mark.parametrize("name", ["7x7x7B", "128x128", " ", "128x256x64B@m1"])
def test_unknown_tile(device, name):
    with pytest.raises(RuntimeError, match=re.escape(f"got '{name}'")):
        torch.ops.cutlass_fused.force_tile(name)
    make_call(LINEAR, TILE_SHAPES[0], BF16, device).run()


@pytest.mark.parametrize("end", [".swap", "@", "@m", "@m3", "@x1", "@m1@m1"])
def test_unknown_raster(end):
    tiles = read_build_info()["tiles_sm90"]
    if not tiles:
        pytest.skip("the library has no SM90 kernels")
    with pytest.raises(RuntimeError, match=re.escape(f"got '{tiles[0]}{end}'")):
        torch.ops.cutlass_fused.force_tile(tiles[0] + end)


def test_tile_of_another_engine(device):
    """A forced tile is used or refused, never silently replaced."""
    call, narrow = (make_call(LINEAR, TILE_SHAPES[0], kind, device) for kind in (IEEE, BF16))
    foreign = [tile for tile in list_sm80_tiles(narrow) if tile not in list_sm80_tiles(call)]
    assert foreign
    others = [tile for tile in list_sm90_tiles(narrow) if tile not in list_sm90_tiles(call)]
    for tile in (foreign[0], *others):
        with force_tile(tile), pytest.raises(RuntimeError, match=REFUSED):
            call.run()
    Judge(call).check(call.run())


def test_forced_tile_is_the_one_that_runs():
    """The log tells, which is switched on when the process starts. The estimates choose the raster
    of an SM90 tile, where none is named and there is a choice."""
    code = """
        import torch
        from calls import OPS
        from cases import NUMERICS, make_call
        from tiles import TILE_SHAPES, force_tile, list_sm90_tiles, list_tiles, name_raster
        for op in OPS:
            for numerics in NUMERICS:
                call = make_call(op, TILE_SHAPES[1], numerics, "cuda")
                rasters = [f"{tile}{name_raster(tile, 2)}" for tile in list_sm90_tiles(call)]
                for tile in (*list_tiles(call), *rasters):
                    with force_tile(tile):
                        call.run()
                    print(tile)
        torch.cuda.synchronize()
    """
    forced, logged = run_logged(code)
    assert len(logged) == len(forced) > 0
    for line, tile in zip(logged, forced, strict=True):
        arch = "sm90" if "/" in tile else "sm80" if tile != "cublas" else tile
        chosen = arch == "sm90" and "@" not in tile and (is_persistent(tile) or slices_k(tile))
        raster = "@([mn][1248]|k[1-8])" if chosen else ""
        if tile.endswith(".tf32x3"):
            arch, raster = "tf32x3", "@k1"
        assert re.fullmatch(
            rf"cutlass_fused: {arch} .*: {re.escape(tile)}{raster}(; repair of rows)?", line
        )


@pytest.mark.parametrize("numerics", ONE_OUTPUT, ids=str)
def test_the_heuristic_chooses_what_can_be_forced(device, numerics):
    """Left alone, a call gives the bits of one of the tiles."""
    for shape in TILE_SHAPES[1:5]:
        call = make_call(LEAKY, shape, numerics, device)
        free, forced = call.run(), []
        for tile in list_tiles(call):
            with force_tile(tile):
                forced.append(call.run())
        assert any(torch.equal(free, result) for result in forced)
