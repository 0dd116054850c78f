"""The kernels for the gradient of a softmax, thread by thread on the host: what they write."""

import pytest
import torch
from host_program import compile_host_program

softmax_gradient = torch.ops.cutlass_fused.softmax_gradient
# (M, N), and whether the first rows begin at multiples of 16 bytes.
CASES = {
    "one number": ((1, 1), True),
    "a lane to a row, more rows than those of a block": ((1030, 1), False),
    "two lanes": ((5, 2), False),
    "lanes that have nothing": ((70, 3), False),
    "a piece to a row": ((600, 8), True),
    "lanes without a piece": ((9, 24), True),
    "as many numbers as lanes": ((33, 32), False),
    "more, not aligned": ((17, 33), True),
    "as many as four to a lane": ((5, 128), False),
    "a piece to each lane": ((19, 128), True),
    "the same of 16 bits": ((19, 256), True),
    "a warp to a row, not aligned": ((5, 129), True),
    "a warp to a row, and rows that are missing": ((5, 264), True),
    "a warp to a row, whole": ((2, 1024), True),
    "two warps, the second not whole": ((3, 1032), True),
    "the same, number by number": ((3, 513), False),
    "all that a block holds": ((1, 8192), True),
    "and a little more": ((2, 8200), True),
    "more than that, number by number": ((2, 8195), False),
    "three parts in fp32": ((1, 16640), True),
    "three parts, number by number": ((1, 16501), True),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """run(dtype, aligned, x, y) -> grad_v"""
    options = ("-Wno-unknown-pragmas",)
    folder = tmp_path_factory.mktemp("softmax_gradient")
    program = compile_host_program("kernels/softmax_gradient", folder, options=options)

    def run(aligned, x, y):
        words = [str(x.dtype).removeprefix("torch."), int(aligned), *x.shape]
        words += x.flatten().tolist() + y.flatten().tolist()
        (line,) = program([" ".join(map(str, words))])
        return torch.tensor([float(word) for word in line.split()]).double().view(x.shape)

    return run


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("case", CASES)
def test_values(run, case, dtype):
    shape, aligned = CASES[case]
    torch.manual_seed(0)
    x, y = torch.randn(shape).to(dtype), torch.softmax(torch.randn(shape), -1).to(dtype)
    grad = run(aligned, x, y)
    x, y = x.double(), y.double()
    size = y * (x.abs() + (x * y).abs().sum(-1, keepdim=True))
    rounding = torch.finfo(dtype).eps * softmax_gradient(x, y).abs()
    # The least number of fp16 that is no subnormal is large beside a y of many columns.
    least = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
    error = (grad - softmax_gradient(x, y)).abs()
    assert (error <= 1e-6 * size + rounding / 2 + least).all()


def test_what_is_not_finite(run):
    inf, nan = torch.inf, torch.nan
    for n in (4, 7, 300):
        x, y = torch.ones(4, n), torch.full((4, n), 0.25)
        x[0, 0], x[1, 1], x[2, 2], y[3, 3] = inf, nan, -inf, 0
        expected = softmax_gradient(x, y)
        torch.testing.assert_close(run(False, x, y).float(), expected, equal_nan=True)
