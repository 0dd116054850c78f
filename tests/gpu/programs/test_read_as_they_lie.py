"""What kernels of programs read as it lies: columns of a matrix, and groups of any width."""

import contextlib

import pytest
import torch
import torch.nn.functional as F
from tiles import force_tile

from cutlass_fused import epilogue

pytestmark = pytest.mark.gpu


@epilogue
def of_columns(acc, bias, column):
    return F.softplus(acc + bias) * column


@epilogue
def of_rows(acc, bias, column):
    return F.softmax((acc + bias) * column, -1)


def make(m, n, k, dtype=torch.float32):
    x, weight = torch.randn(m, k), torch.randn(n, k) / k**0.5
    return [each.to("cuda", dtype) for each in (x, weight, torch.randn(n))]


def list_kernels(run):
    run()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        run()
        torch.cuda.synchronize()
    return [event.name for event in profile.events()]


@pytest.mark.parametrize("tile", [None, "cublas", "split_rows"])
@pytest.mark.parametrize("function", [of_columns, of_rows], ids=lambda each: each.name)
def test_a_column_of_a_matrix(function, tile):
    """Within a product and behind it: no copy, and the bits of a column by itself."""
    x, weight, bias = make(300, 520, 256)
    matrix = torch.rand(300, 7, device="cuda") + 0.5
    columns = matrix[:, 3:4], matrix[:1, 3:4].expand(300, 1)

    def run(column):
        return function(x, weight, bias=bias, column=column, precision="ieee")

    with force_tile(tile) if tile else contextlib.nullcontext():
        for column in columns:
            expected = run(column.contiguous())
            names = list_kernels(lambda column=column: run(column))
            assert torch.equal(run(column), expected)
            assert not any("copy" in name or "elementwise" in name for name in names), names


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("width", [2, 3, 5, 6, 12, 15, 24, 40, 96, 120, 192, 320, 480])
def test_groups_of_any_width(width, dtype):
    """Windows and norms: within a thread, by threads side by side, and through shared memory."""
    n = 960
    x, weight, bias = make(131, n, 64, dtype)

    @epilogue
    def windows(acc, bias):
        return F.gelu(F.avg_pool1d((acc + bias).unsqueeze(1), width).squeeze(1)) * 2.0

    @epilogue
    def groups(acc, bias):
        return F.hardtanh(F.group_norm(acc + bias, n // width))

    z = x.double() @ weight.double().t() + bias.double()
    truths = (
        F.gelu(F.avg_pool1d(z.unsqueeze(1), width).squeeze(1)) * 2.0,
        F.hardtanh(F.group_norm(z, n // width)),
    )
    close = {"rtol": 2e-5, "atol": 2e-5} if dtype == torch.float32 else {"rtol": 0.02, "atol": 0.03}
    # Of a few elements a variance may be nothing but roundings.
    count = 2 if width >= 12 else 1
    for function, truth in list(zip((windows, groups), truths, strict=True))[:count]:
        y = function(x, weight, bias=bias)
        assert torch.equal(function(x, weight, bias=bias), y)
        torch.testing.assert_close(y.double(), truth, **close)


@pytest.mark.parametrize(
    "word", [F.mish, F.softplus, F.logsigmoid, F.elu, F.selu, F.silu, torch.sigmoid]
)
def test_words_without_a_branch(word):
    """Of any x, to a few units in the last place of results that are far from subnormal numbers;
    of others no worse than PyTorch's, whose exponentials overflow."""

    @epilogue
    def behind(acc):
        return word(acc)

    x = torch.cat([torch.linspace(-110, 110, 3**11), 10 ** torch.linspace(-30, 2, 3**9)])
    x = torch.cat([x, -x]).cuda().unsqueeze(1)
    one = torch.ones(1, 1, device="cuda")
    y, truth = behind(x, one).double(), word(x.double())
    is_large = truth.abs() > 1e-35
    error = (y - truth).abs() / truth.abs()
    assert error[is_large].max() < 8 * 2.0**-24
    eager = (word(x).double() - truth).abs()
    assert ((y - truth).abs() <= eager + 1e-40)[~is_large].all()
