"""What the SM90 kernels alone have: what TMA cannot write, rasters, ends of grids, TMA's strides.

Every tile is held against the truth in test_tiles.py, and those that the heuristic chooses in the
tests of the ops.
"""

import re

import pytest
import torch
from accuracy import Judge, Rejected
from calls import LEAKY, LINEAR
from cases import BF16, BF16_FP32, FP16, FP16_FP32, LAYOUT_SHAPE, Shape, make_call
from check_call import run_poisoned
from large_shapes import LARGE_SHAPES, pick_rows
from layouts import cut_aligned_block, widen_rows
from logged import run_logged
from tiles import (
    MAX_COLUMN_TILES,
    force_tile,
    has_sm90_kernels,
    is_persistent,
    list_sm90_tiles,
    read_build_info,
    slices_k,
)

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("choose_freely")]

REFUSED = "linear: the forced tile must be one that"


@pytest.fixture(autouse=True)
def need_sm90(device):
    if not has_sm90_kernels(device):
        pytest.skip(
            "no SM90 kernels: the GPU is not of compute capability 9.0, or the library has none"
        )


def judge_tiles(call, rows=None):
    """The call with every SM90 tile that serves it; `rows` as in Judge."""
    judge, failures = Judge(call, rows), []
    tiles = list_sm90_tiles(call)
    assert tiles
    for tile in tiles:
        with force_tile(tile):
            result = run_poisoned(call)
        try:
            judge.check(result)
        except Rejected as rejection:
            failures.append(f"{tile}: {rejection}")
        if result.isnan().any():
            failures.append(f"{tile}: elements were not written")
    assert not failures, "\n".join(failures)


# ---- which tiles serve a call ----


@pytest.mark.parametrize(
    ("numerics", "shape"),
    [
        (BF16, Shape(65, 129, 64, "odd N")),
        (FP16, Shape(65, 132, 64, "N of whole pairs")),
        (BF16_FP32, Shape(65, 136, 64, "fp32 rows of whole 16 bytes")),
        (FP16_FP32, Shape(65, 129, 64, "odd N in fp32")),
    ],
    ids=str,
)
def test_what_tma_cannot_write_is_refused(device, numerics, shape):
    """A tile that writes directly serves them all; so does the call that forces none."""
    call = make_call(LINEAR, shape, numerics, device)
    direct = list_sm90_tiles(call)
    others = set(read_build_info()["tiles_sm90"]) - set(direct)
    assert direct and others
    for tile in sorted(others):
        with force_tile(tile), pytest.raises(RuntimeError, match=REFUSED):
            call.run()
    judge_tiles(call)
    Judge(call).check(run_poisoned(call))


def test_grid_of_one_block_per_tile_ends(device):
    """At its last column tile; one row behind it only persistent tiles serve."""
    single = [tile for tile in read_build_info()["tiles_sm90"] if not is_persistent(tile)]
    assert single and all(".swapped" in tile for tile in single)  # x's rows are their columns
    ends = {tile: MAX_COLUMN_TILES * int(re.match(r"\d+x(\d+)x", tile)[1]) for tile in single}
    call = make_call(LINEAR, Shape(max(ends.values()) + 8, 8, 8, "many rows"), BF16, device)
    assert not ends.keys() & set(list_sm90_tiles(call))
    judge_tiles(call, pick_rows(call.m, 8, 8).to(device))
    for tile, end in ends.items():
        whole = call.take_rows(slice(0, end))
        judge = Judge(whole, pick_rows(end, 8, 8).to(device))
        with force_tile(tile):
            result = run_poisoned(whole)
            judge.check(result)
            assert not result.isnan().any(), tile
            with pytest.raises(RuntimeError, match=REFUSED):
                call.take_rows(slice(0, end + 1)).run()


def test_which_kernels_serve_a_call():
    """The log tells, which is switched on when the process starts, with no tile forced."""
    code = """
        from calls import LINEAR
        from cases import BF16, BF16_FP32, FP16, IEEE, TF32, Shape, make_call
        from layouts import cut_aligned_block, misalign_rows, offset_storage, repeat_first_row

        def run(arch, numerics, shape, layout=None, name="x"):
            call = make_call(LINEAR, Shape(*shape, "small"), numerics, "cuda")
            if layout is not None:
                call = call.change(**{name: layout(getattr(call, name))})
            call.run()
            print(arch)

        for numerics in (FP16, BF16, BF16_FP32):
            run("sm90", numerics, (70, 136, 64))
            run("sm90", numerics, (1, 129, 8))
        for name in ("x", "weight"):
            run("sm90", BF16, (70, 136, 64), cut_aligned_block, name)
            run("sm90", BF16, (70, 136, 64), repeat_first_row, name)  # which the op copies
            for layout in (misalign_rows, offset_storage):  # likewise
                run("sm90", BF16, (70, 136, 64), layout, name)
        for numerics, k in ((FP16, 1), (BF16, 68), (BF16, 1001)):
            run("sm90", numerics, (70, 136, k))
        run("sm90", BF16, (1030, 129, 72))
        for numerics in (IEEE, TF32):
            run("sm90", numerics, (4096, 1024, 1024))
            run("tf32x3", numerics, (70, 136, 64))
        for numerics, k in ((BF16, 0), (IEEE, 32), (TF32, 32)):
            run("simt", numerics, (70, 136, k))
    """
    expected, log = run_logged(code)
    assert [line.split()[1] for line in log] == expected


# ---- the order of the tiles ----


@pytest.mark.parametrize("numerics", [BF16, FP16_FP32], ids=str)
def test_rasters_give_the_same_bits(device, numerics):
    """Each tile of the table is there more often than an H200 has SMs, 33 x 21 times if it has 128
    rows and columns: the last cluster along a side may not be whole."""
    call = make_call(LEAKY, Shape(4136, 2632, 72, "many tiles"), numerics, device)
    judge = Judge(call)
    tiles = [tile for tile in list_sm90_tiles(call) if is_persistent(tile)]
    assert tiles
    for tile in tiles:
        with force_tile(f"{tile}@m1"):
            first = run_poisoned(call)
        judge.check(first)
        for raster in ("m2", "m4", "m8", "n1", "n2", "n4", "n8"):
            with force_tile(f"{tile}@{raster}"):
                assert torch.equal(run_poisoned(call), first), f"{tile}@{raster}"


# ---- slices of K ----


@pytest.mark.parametrize(
    "shape",
    [
        Shape(70, 136, 2056, "a long K that no stage divides"),
        Shape(9, 264, 72, "fewer stages than slices"),
        Shape(259, 72, 1032, "several row tiles"),
    ],
    ids=str,
)
@pytest.mark.parametrize("numerics", [BF16, FP16_FP32], ids=str)
def test_slices(device, numerics, shape):
    """Any number of them, to more than there are stages of K; two runs give the same bits."""
    call = make_call(LEAKY, shape, numerics, device)
    judge = Judge(call)
    tiles = [tile for tile in list_sm90_tiles(call) if slices_k(tile)]
    assert tiles
    for tile in tiles:
        for slices in range(1, 9):
            with force_tile(f"{tile}@k{slices}"):
                result, again = run_poisoned(call), run_poisoned(call)
            judge.check(result)
            assert torch.equal(result, again), f"{tile}@k{slices}"


@pytest.mark.parametrize("raster", ["m1", "n2", "k2"])
def test_raster_of_another_kind_is_unknown(device, raster):
    for tile in read_build_info()["tiles_sm90"]:
        if slices_k(tile) != (raster[0] == "k"):
            with pytest.raises(RuntimeError, match=re.escape(f"got '{tile}@{raster}'")):
                torch.ops.cutlass_fused.force_tile(f"{tile}@{raster}")


# ---- TMA's addresses ----


@pytest.mark.parametrize("layout", [widen_rows, cut_aligned_block], ids=lambda f: f.__name__)
@pytest.mark.parametrize("numerics", [FP16, BF16_FP32], ids=str)
def test_rows_among_nan(device, numerics, layout):
    """What lies around the rows, and behind K where a stage goes on, is not read as theirs."""
    call = make_call(LINEAR, Shape(133, 264, 72, "ragged"), numerics, device)
    judge_tiles(call.change(x=layout(call.x)))
    judge_tiles(call.change(weight=layout(call.weight)))
    judge_tiles(call.change(x=layout(call.x), weight=layout(call.weight)))


@pytest.mark.parametrize("stride", [67, 1, 0])
def test_a_single_row_has_any_stride(device, stride):
    """TMA asks for a distance of whole 16 bytes, also where there is no second row."""
    call = make_call(LINEAR, Shape(1, 264, 64, "M = 1"), BF16, device)
    judge_tiles(call.change(x=torch.as_strided(call.x, (1, 64), (stride, 1))))
    call = make_call(LINEAR, Shape(70, 1, 64, "N = 1"), BF16, device)
    judge_tiles(call.change(weight=torch.as_strided(call.weight, (1, 64), (stride, 1))))


def test_addresses_may_change_from_call_to_call(device):
    """One shape comes at other addresses, and other strides at the same address."""
    calls = []
    for seed in range(3):
        call = make_call(LINEAR, LAYOUT_SHAPE, BF16, device, seed=seed)
        calls += [call, call.change(x=widen_rows(call.x)), call.change(weight=call.weight.clone())]
        # Every other row of what was read as a whole just now.
        calls.append(call.change(x=call.x[::2], weight=call.weight[::2], bias=call.bias[::2]))
    judges = [Judge(call) for call in calls]
    for _ in range(2):
        results = [run_poisoned(call) for call in calls]
        for judge, result in zip(judges, results, strict=True):
            judge.check(result)


@pytest.mark.parametrize("shape", LARGE_SHAPES, ids=lambda s: s.reason.replace(" ", "_"))
@pytest.mark.parametrize("numerics", [BF16, BF16_FP32], ids=str)
def test_large(device, numerics, shape):
    """In fp32 only tiles that write directly serve: both kinds of offsets pass 2^31."""
    call = make_call(LINEAR, shape, numerics, device)
    judge_tiles(call, pick_rows(shape.m, shape.n, shape.k).to(device))
