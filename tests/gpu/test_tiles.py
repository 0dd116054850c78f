"""Every tile, forced in turn, on shapes that no tile divides."""

import os
import re
import subprocess
import sys
import textwrap

import pytest
import torch
from accuracy import Judge, Rejected
from calls import LEAKY, LINEAR, OPS
from cases import BF16, IEEE, NUMERICS, ONE_OUTPUT, make_call
from check_call import run_poisoned
from tiles import TILE_SHAPES, force_tile, list_tiles

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("shape", TILE_SHAPES, ids=str)
@pytest.mark.parametrize("numerics", NUMERICS, ids=str)
@pytest.mark.parametrize("op", OPS)
def test_every_tile(device, op, numerics, shape):
    call = make_call(op, shape, numerics, device)
    judge, failures = Judge(call), []
    for tile in list_tiles(numerics):
        with force_tile(tile):
            result, again = run_poisoned(call), run_poisoned(call)
        try:
            judge.check(result)
        except Rejected as rejection:
            failures.append(f"{tile}: {rejection}")
        if not torch.equal(result, again):
            failures.append(f"{tile}: two runs differ")
    assert not failures, "\n".join(failures)


def test_there_are_tiles_to_force():
    for numerics in ONE_OUTPUT:
        tiles = list_tiles(numerics)
        assert len(tiles) == len(set(tiles)) >= 3
        assert any("streamk" in tile for tile in tiles)


@pytest.mark.parametrize("name", ["7x7x7B", "128x128", " "])
def test_unknown_tile(device, name):
    with pytest.raises(RuntimeError, match=re.escape(f"got '{name}'")):
        torch.ops.cutlass_fused.force_tile(name)
    make_call(LINEAR, TILE_SHAPES[0], BF16, device).run()


def test_tile_of_another_engine(device):
    """A forced tile is used or refused, never silently replaced."""
    foreign = [tile for tile in list_tiles(BF16) if tile not in list_tiles(IEEE)]
    assert foreign
    call = make_call(LINEAR, TILE_SHAPES[0], IEEE, device)
    with (
        force_tile(foreign[0]),
        pytest.raises(RuntimeError, match="linear: the forced tile must be one that"),
    ):
        call.run()
    Judge(call).check(call.run())


def test_forced_tile_is_the_one_that_runs():
    """By the log, which is switched on when the process starts."""
    code = """
        import torch
        from calls import OPS
        from cases import NUMERICS, make_call
        from tiles import TILE_SHAPES, force_tile, list_tiles
        for op in OPS:
            for numerics in NUMERICS:
                call = make_call(op, TILE_SHAPES[1], numerics, "cuda")
                for tile in list_tiles(numerics):
                    with force_tile(tile):
                        call.run()
                    print(tile)
        torch.cuda.synchronize()
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=os.environ | {"CUTLASS_FUSED_LOG": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    logged = [line for line in done.stderr.splitlines() if line.startswith("cutlass_fused:")]
    forced = done.stdout.split()
    assert len(logged) == len(forced) > 0
    for line, tile in zip(logged, forced, strict=True):
        assert line.endswith(f": {tile}")


@pytest.mark.parametrize("numerics", ONE_OUTPUT, ids=str)
def test_the_heuristic_chooses_what_can_be_forced(device, numerics):
    """Left alone, a call gives the bits of one of the tiles."""
    for shape in TILE_SHAPES[1:5]:
        call = make_call(LEAKY, shape, numerics, device)
        free, forced = call.run(), []
        for tile in list_tiles(numerics):
            with force_tile(tile):
                forced.append(call.run())
        assert any(torch.equal(free, result) for result in forced)
