"""Calls that launch every kernel of fp32 matrices as they lie, of sums and batches of products, and
of 16-bit x beside an fp32 weight."""

import itertools

import torch
from judge_mixed import check_product
from sanitized_products import TILED
from sanitized_tiles import tell_tiles
from tiles import (
    force_tile,
    has_sm90_kernels,
    list_tf32x3,
    read_build_info,
)


def run_shares(single=False):
    """fp32 matrices as they lie: every tile, order of operands, and way to cut K."""
    launches = 0
    for m, n, k in ((130, 68, 52), (260, 132, 1036))[: 1 if single else 2]:
        x, weight = torch.randn(m, k, device="cuda"), torch.randn(n, k, device="cuda")
        for rows, other in itertools.product(
            (x, lay_along_rows(x)), (weight, lay_along_rows(weight))
        ):
            for tile in tell_tiles(list_tf32x3(rows, other)):
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
            for tile in tell_tiles(("cublas", "sm80", *tiles)):
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


def run_batches(single=False):
    """Products of batches, and with what is added, by every kernel that reads fp32 as it lies."""
    launches, ops = 0, torch.ops.cutlass_fused
    for batch, m, n, k in ((3, 33, 65, 100), (2, 130, 72, 1032))[: 1 if single else 2]:
        x, weight = torch.randn(batch, m, k, device="cuda"), torch.randn(batch, n, k, device="cuda")
        c = torch.randn(batch, m, n, device="cuda")
        turned = [each.mT.contiguous().mT for each in (x, weight)]
        for rows, other in itertools.product((x, turned[0]), (weight, turned[1])):
            exact = rows.double() @ other.double().mT
            for tile in tell_tiles(("", "split_rows", "cublas", *list_tf32x3(rows, other))):
                with force_tile(tile):
                    found = (
                        (ops.bmm(rows, other), exact),
                        (ops.baddbmm(c, rows, other, -1.0, 2.0), 2 * exact - c.double()),
                    )
                torch.cuda.synchronize()
                for y, expected in found:
                    torch.testing.assert_close(y.double(), expected, rtol=1e-4, atol=1e-3)
                launches += 2
        for dtype in (torch.bfloat16, torch.float16):
            y = ops.bmm(x.to(dtype), weight.to(dtype))
            expected = x.to(dtype).double() @ weight.to(dtype).double().mT
            torch.testing.assert_close(y.double(), expected, rtol=2e-2, atol=0.5)
            launches += 1
    return launches


def lay_along_rows(matrix):
    """Its columns lie side by side, and begin at multiples of 16 bytes. What lies between is NaN:
    a sanitizer takes a copy of 16 bytes that asks for fewer as one of all."""
    rows, columns = matrix.shape
    memory = matrix.new_full((columns, -(-rows // 4) * 4), torch.nan)
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
