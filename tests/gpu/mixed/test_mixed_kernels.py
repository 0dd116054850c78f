"""The kernels that read x of 16 bits and an fp32 weight as they lie: every tile and cut of K."""

import re

import pytest
import torch
from check_call import poison_memory
from judge_mixed import check_product
from logged import run_logged
from tiles import force_tile, read_build_info

from cutlass_fused import functional

pytestmark = pytest.mark.gpu

SIXTEEN_BIT = (torch.bfloat16, torch.float16)
OUT_DTYPES = (None, torch.float32)
# (M, N, K): rows of whole 16 bytes, which these kernels read, with the reason.
SHAPES = {
    (1, 1, 40): "one output, less than a stage",
    (33, 65, 104): "one row and column more than a warp has",
    (129, 66, 1000): "K ends inside a stage, and each slice of K has several",
    (70, 8, 4104): "few columns, sums that are moved many times",
    (700, 264, 136): "blocks take several tiles",
}
each_dtype = pytest.mark.parametrize("dtype", SIXTEEN_BIT, ids=str)
each_out_dtype = pytest.mark.parametrize("out_dtype", OUT_DTYPES, ids=str)
each_major = pytest.mark.parametrize("along_n", [False, True], ids=["along K", "along N"])


def list_forced(k):
    """Each tile, with K as it is, cut into slices of a cluster, and into parts of several."""
    tiles = [t for t in read_build_info()["tiles_tf32x3"] if re.match(r"\d+x\d+x64\D", t)]
    assert len(tiles) == 3
    return [f"{tile}@k{n}" for tile in tiles for n in (1, 2, 4, 8, 16, 64) if n <= -(-k // 64)]


def make_matrices(device, dtype, shape, along_n=False):
    m, n, k = shape
    x = torch.randn(m, k, device=device).to(dtype)
    weight = torch.randn(n, k, device=device) / k**0.5
    if along_n:
        # Columns of whole 16 bytes.
        columns = torch.full((k, -(-n // 4) * 4), torch.nan, device=device)
        columns[:, :n] = weight.t()
        weight = columns[:, :n].t()
    return x, weight


def run(x, weight, bias=None, **options):
    """In memory that held NaN before."""
    poison_memory((x.shape[0], weight.shape[0]), options.get("out_dtype") or x.dtype, x.device)
    return functional.linear(x, weight, bias, precision="ieee", **options)


def list_kernels(call):
    """The names of what it launches."""
    call()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        call()
        torch.cuda.synchronize()
    on_gpu = torch.autograd.DeviceType.CUDA  # others are calls of the runtime
    names = [event.name for event in profile.events() if event.device_type == on_gpu]
    return [name for name in names if "Memset" not in name]


@each_major
@each_out_dtype
@each_dtype
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_tile_and_cut(device, shape, dtype, out_dtype, along_n):
    x, weight = make_matrices(device, dtype, shape, along_n)
    bias = torch.randn(shape[1], device=device)
    for forced in list_forced(shape[2]):
        with force_tile(forced):
            y, again = (run(x, weight, bias, out_dtype=out_dtype) for _ in range(2))
            bare = run(x, weight, out_dtype=out_dtype)
        check_product(y, x, weight, bias)
        check_product(bare, x, weight)
        assert torch.equal(y, again), forced


@each_major
@each_dtype
def test_special_values(device, dtype, along_n):
    info = torch.finfo(dtype)
    values = (torch.inf, -torch.inf, torch.nan, info.max, -info.max, info.smallest_normal)
    x, weight = make_matrices(device, dtype, (70, 72, 200), along_n)
    for i, value in enumerate((*values, info.smallest_normal / 8)):
        x[3 + i, 5 + i] = value
    x[40] = torch.inf
    x[41] = torch.nan
    weight[7] = 0
    weight[8, 9] = torch.inf
    weight[9, 10] = torch.nan
    weight[10, 11] = 3e38
    for forced in list_forced(200):
        with force_tile(forced):
            check_product(run(x, weight, out_dtype=torch.float32), x, weight)


@each_dtype
def test_every_magnitude_keeps_its_digits(device, dtype):
    """Subnormal numbers of either operand, and large ones."""
    info = torch.finfo(dtype)
    for of_x, of_weight in ((info.smallest_normal / 4, 2.0**40), (1.0, 2.0**-130), (2.0**12, 2e30)):
        x, weight = make_matrices(device, dtype, (70, 72, 200))
        x, weight = (x.float().clamp(-3, 3) * of_x).to(dtype), weight * of_weight
        for forced in list_forced(200):
            with force_tile(forced):
                check_product(run(x, weight, out_dtype=torch.float32), x, weight)


@each_dtype
def test_results_that_begin_anywhere(device, dtype):
    """Rows of y are of no whole pieces where N is no multiple of four."""
    for n in (61, 62, 63, 64, 65):
        x, weight = make_matrices(device, dtype, (70, n, 128))
        for forced in list_forced(128):
            with force_tile(forced):
                check_product(run(x, weight), x, weight)


@each_dtype
def test_one_launch(device, dtype):
    x, weight = make_matrices(device, dtype, (1024, 64, 256))  # K is not cut into parts
    with force_tile("tf32x3"):
        (kernel,) = list_kernels(lambda: run_once(x, weight))
    assert "gemm_mixed" in kernel
    with force_tile("split_rows"):
        names = list_kernels(lambda: run_once(x, weight))
    assert any("copy" in name for name in names)  # PyTorch's
    assert not any("gemm_mixed" in name for name in names)


def run_once(x, weight):
    return functional.linear(x, weight, precision="ieee")


def test_log():
    code = """
        import torch
        from cutlass_fused import functional
        torch.ops.cutlass_fused.force_tile("tf32x3")
        x = torch.randn(64, 256, device="cuda", dtype=torch.bfloat16)
        functional.linear(x, torch.randn(64, 256, device="cuda"), precision="ieee")
    """
    _, (line,) = run_logged(code)
    assert line.startswith("cutlass_fused: tf32x3 mixed linear M=64 N=64 K=256: ")
