"""x of 16 bits beside a weight of float32: gradients, graphs, streams, memory, compilation."""

import pytest
import torch
from judge_mixed import check_product, run_eager
from tiles import force_tile

from cutlass_fused import functional

pytestmark = pytest.mark.gpu

SIXTEEN_BIT = (torch.bfloat16, torch.float16)
OUT_DTYPES = (None, torch.float32)
TILES = ("", "tf32x3", "split_rows")
each_dtype = pytest.mark.parametrize("dtype", SIXTEEN_BIT, ids=str)
each_out_dtype = pytest.mark.parametrize("out_dtype", OUT_DTYPES, ids=str)
each_tile = pytest.mark.parametrize("tile", TILES)


def make_matrices(device, dtype, m=192, n=64, k=512):
    x = torch.randn(m, k, device=device).to(dtype)
    return x, torch.randn(n, k, device=device) / k**0.5


@each_out_dtype
@each_dtype
@pytest.mark.parametrize("shape", [(192, 64, 512), (2048, 128, 1024), (37, 77, 51)], ids=str)
def test_gradients(device, shape, dtype, out_dtype):
    """Beside those of the same numbers in float64, which are exact."""
    x, weight = (t.requires_grad_() for t in make_matrices(device, dtype, *shape))
    bias = torch.randn(shape[1], device=device, requires_grad=True)
    y = functional.linear(x, weight, bias, precision="ieee", out_dtype=out_dtype)
    grad_y = torch.randn(y.shape, device=device).to(y.dtype)
    ours = torch.autograd.grad(y, (x, weight, bias), grad_y)
    rows, wide = grad_y.double(), [t.detach().double() for t in (x, weight)]
    truth = rows @ wide[1], rows.t() @ wide[0], rows.sum(0)
    for given, gradient, expected in zip((x, weight, bias), ours, truth, strict=True):
        assert (gradient.dtype, gradient.shape) == (given.dtype, given.shape)
        error = (gradient.double() - expected).norm() / expected.norm()
        # Products of 16-bit numbers are summed by tensor cores, which truncate.
        assert error <= (1e-5 if given.dtype == torch.float32 else torch.finfo(dtype).eps)
    check_product(ours[0], grad_y, weight.detach().t())


@each_dtype
def test_gradients_of_other_functions(device, dtype):
    """Beside the same functions of x in float32."""
    x, weight = make_matrices(device, dtype)
    scale, mean = torch.randn(64, device=device), torch.randn(64, device=device)
    var = torch.rand(64, device=device) + 0.5

    def leaky(x, weight, scale):
        return functional.linear_scale_leaky_relu(
            x, weight, None, scale, 0.1, precision="ieee", out_dtype=torch.float32
        )

    def norm(x, weight, scale):
        return functional.linear_scale_batch_norm(
            x, weight, None, scale, mean, var, precision="ieee", out_dtype=torch.float32
        )

    for function in (leaky, norm):
        narrow = [t.clone().requires_grad_() for t in (x, weight, scale)]
        wide = [t.clone().requires_grad_() for t in (x.float(), weight, scale)]
        ours = torch.autograd.grad(function(*narrow).square().sum(), narrow)
        expected = torch.autograd.grad(function(*wide).square().sum(), wide)
        for a, b, given in zip(ours, expected, narrow, strict=True):
            assert a.dtype == given.dtype
            limit = 1e-5 if a.dtype == torch.float32 else torch.finfo(dtype).eps
            assert (a.float() - b).norm() <= limit * b.norm()


@each_out_dtype
@each_tile
@each_dtype
def test_graphs(device, dtype, tile, out_dtype):
    """A captured call reads what lies in its inputs when it runs, and gives the bits of a call."""
    x, weight = make_matrices(device, dtype)

    def call():
        return functional.linear(x, weight, precision="ieee", out_dtype=out_dtype)

    with force_tile(tile):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            call()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = call()
        x.copy_(torch.randn(x.shape, device=device))
        weight.copy_(torch.randn(weight.shape, device=device))
        expected = call()
        y.fill_(torch.nan)
        graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(y, expected)


@each_tile
def test_work_goes_to_the_current_stream(device, tile):
    """x is filled late on a side stream: a kernel on any other stream would read NaN."""
    x, weight = make_matrices(device, torch.bfloat16)
    late = torch.full_like(x, torch.nan)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with force_tile(tile), torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        late.copy_(x)
        y = functional.linear(late, weight, precision="ieee")
        late.fill_(torch.nan)
    stream.synchronize()
    check_product(y, x, weight)


@each_tile
@each_dtype
def test_the_same_bits_again(device, dtype, tile):
    x, weight = make_matrices(device, dtype, 1030, 264, 2048)
    with force_tile(tile):
        first = functional.linear(x, weight, precision="ieee")
        for _ in range(20):
            assert torch.equal(functional.linear(x, weight, precision="ieee"), first)


@each_tile
def test_memory_is_given_back(device, tile):
    x, weight = make_matrices(device, torch.bfloat16, 1030, 264, 2048)
    with force_tile(tile):
        functional.linear(x, weight, precision="ieee")
        before = torch.cuda.memory_allocated(device)
        for _ in range(3):
            functional.linear(x, weight, precision="ieee")
        assert torch.cuda.memory_allocated(device) == before


@each_dtype
def test_autocast_casts_both(device, dtype):
    x, weight = make_matrices(device, torch.float16)
    with torch.autocast("cuda", dtype):
        y = functional.linear(x, weight)
    assert y.dtype == dtype
    assert torch.equal(y, functional.linear(x.to(dtype), weight.to(dtype)))


def test_compiled(device):
    x, weight = make_matrices(device, torch.bfloat16)
    weight.requires_grad_()

    def step(x, weight):
        return functional.linear_scale_leaky_relu(x, weight, None, 2.0, 0.1, precision="ieee")

    expected = step(x, weight)
    (gradient,) = torch.autograd.grad(expected.float().sum(), weight)
    ours = torch.compile(step, fullgraph=True)(x, weight)
    assert torch.equal(ours, expected)
    (again,) = torch.autograd.grad(ours.float().sum(), weight)
    # TorchInductor rounds to 16 bits less often.
    limit = torch.finfo(torch.bfloat16).eps * gradient.norm()
    assert again.dtype == torch.float32 and (again - gradient).norm() <= limit


def test_opcheck(device):
    x, weight = make_matrices(device, torch.bfloat16)
    bias = torch.randn(64, device=device)
    torch.library.opcheck(torch.ops.cutlass_fused.linear.default, (x, weight, bias))


def test_as_accurate_as_eager(device):
    """As a whole, at sizes of a router and of a head; eager has x in float32."""
    for m, n, k in ((4096, 64, 4096), (1024, 4096, 4096)):
        x, weight = make_matrices(device, torch.bfloat16, m, n, k)
        truth = x.double() @ weight.double().t()
        ours = functional.linear(x, weight, precision="ieee", out_dtype=torch.float32)
        eager = run_eager(x, weight, "ieee")
        errors = [(y.double() - truth).norm().item() for y in (ours, eager)]
        assert errors[0] <= errors[1], errors
