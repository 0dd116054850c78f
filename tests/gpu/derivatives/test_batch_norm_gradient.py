"""The kernels for the gradients of a batch norm in training."""

import pytest
import torch
from judge_gradients import differentiate, judge_norms
from layouts import misalign_rows, transpose

from cutlass_fused import functional

pytestmark = pytest.mark.gpu

batch_norm_gradient = torch.ops.cutlass_fused.batch_norm_gradient
batch_norm_scale_gradient = torch.ops.cutlass_fused.batch_norm_scale_gradient
each_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
SHAPES = [(2, 1), (5, 7), (64, 256), (1024, 8192), (4097, 130), (33, 1001), (16384, 8), (3, 70000)]
# Columns of a cluster, whose last block has fewer rows; strips that take many waves of blocks.
SHAPES += [(4001, 264), (8192, 40), (9001, 512), (20000, 264), (300, 40009)]


def make(shape, dtype, shift=0.0):
    torch.manual_seed(0)
    x, z = (torch.randn(shape, device="cuda").to(dtype) for _ in range(2))
    z = (z.float() + shift).to(dtype)
    mean = z.double().mean(0).float()
    rstd = (z.double().var(0, correction=0) + 1e-5).rsqrt().float()
    return x, z, mean, rstd, torch.rand(shape[1], device="cuda") + 0.5


def find_truth(x, z, mean, rstd, gamma):
    return batch_norm_gradient(
        *(None if tensor is None else tensor.cpu().double() for tensor in (x, z, mean, rstd, gamma))
    )


def find_sizes(arguments):
    """Of what is added up to the results."""
    x, z, mean, rstd, gamma = (None if t is None else t.cpu().double() for t in arguments)
    n = (z - mean) * rstd
    factor = rstd if gamma is None else gamma * rstd
    return (
        factor.abs() * (x.abs() + (x.abs().mean(0) + n.abs() * (x * n).abs().mean(0))),
        (x * n).abs().sum(0),
        x.abs().sum(0),
    )


def check(results, arguments):
    truth, sizes = find_truth(*arguments), find_sizes(arguments)
    eps = torch.finfo(arguments[0].dtype).eps
    for i, (result, exact, size) in enumerate(zip(results, truth, sizes, strict=True)):
        error = (result.cpu().double() - exact).abs()
        assert (error <= 1e-5 * size + (eps * exact.abs() + 1e-7 if i == 0 else 0)).all(), i


@each_dtype
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values(shape, dtype):
    x, z, mean, rstd, gamma = make(shape, dtype)
    for each in (
        (x, z, mean, rstd, gamma),
        (x, z, mean, rstd, None),
        (misalign_rows(x), z, mean, rstd, gamma),
        (x, transpose(z), mean, rstd, gamma),
        (x[:1].expand(shape), z, mean, rstd, gamma),
        (x, z, mean[:1].expand(shape[1]), rstd[:1].expand(shape[1]), gamma),
    ):
        results = batch_norm_gradient(*each)
        assert [r.dtype for r in results] == [dtype, torch.float32, torch.float32]
        check(results, each)
        assert all(map(torch.equal, results, batch_norm_gradient(*each)))
    rounded = batch_norm_gradient(x, z, mean, rstd, gamma, round_vectors=True)
    expected = batch_norm_gradient(x, z, mean, rstd, gamma)
    assert all(map(torch.equal, rounded, (vector.to(dtype) for vector in expected)))


@each_dtype
@pytest.mark.parametrize("elements", [0, 1, None], ids=["number", "one", "columns"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_scale(shape, dtype, elements):
    """In front or behind; the vectors have the dtype of x or float32."""
    x, z, mean, rstd, gamma = make(shape, dtype)
    n = shape[1]
    scale = torch.randn({0: (), 1: (1,), None: (n,)}[elements], device="cuda").to(dtype)
    beta = torch.randn(n, device="cuda").to(dtype)
    wide = [vector.float() for vector in (gamma, beta, scale)]
    factor = (wide[0] * wide[2]).expand(n)
    plain = batch_norm_gradient(x, z, mean, rstd, factor)
    in_front = batch_norm_gradient(x, z, mean, rstd, gamma, scale)
    behind = batch_norm_scale_gradient(x, z, mean, rstd, scale, gamma, beta)
    eps, size_of_grad = torch.finfo(dtype).eps, find_sizes((x, z, mean, rstd, factor))[0]
    for grad_z in (in_front[0], behind[0]):
        exact = plain[0].double().cpu()
        assert ((grad_z.cpu() - exact).abs() <= eps * exact.abs() + 1e-6 * size_of_grad).all()
    assert torch.equal(in_front[1], plain[1]) and torch.equal(in_front[2], plain[2])
    assert torch.equal(behind[1], plain[1] * wide[2])
    assert torch.equal(behind[2], plain[2] * wide[2])
    of_scale = plain[1].double() * gamma.double() + plain[2].double() * beta.double()
    size = (plain[1].double() * gamma).abs() + (plain[2].double() * beta.double()).abs()
    assert ((behind[3] - of_scale).abs() <= 1e-6 * size).all()


def test_a_mean_that_is_far():
    arguments = make((4096, 64), torch.float32, shift=1000.0)
    results = batch_norm_gradient(*arguments)
    check(results, arguments)


@pytest.mark.parametrize("shape", [(0, 16), (16, 0)])
def test_empty(shape):
    x, vector = torch.ones(shape, device="cuda"), torch.ones(shape[1], device="cuda")
    grad_z, grad_gamma, grad_beta = batch_norm_gradient(x, x, vector, vector)
    assert grad_z.shape == shape and torch.equal(grad_gamma, torch.zeros_like(vector))
    assert torch.equal(grad_beta, grad_gamma)


@pytest.mark.parametrize(
    "shape, on_chip",
    [
        ((64, 48), "always"),
        ((1024, 8192), "always"),
        ((1024, 64), "in clusters"),
        ((8192, 512), "in clusters"),
        ((16384, 512), "never"),
        ((64, 47), "never"),
    ],
)
@each_dtype
def test_the_function_calls_it(dtype, shape, on_chip):
    """Columns that fit on a multiprocessor, and enough of them, or on those of a cluster, are read
    once."""
    has_clusters = torch.cuda.get_device_capability() == (9, 0)
    is_on_chip = on_chip == "always" or (on_chip == "in clusters" and has_clusters)
    kernel = "differentiate_batch_norm_on_chip" if is_on_chip else "apply_batch_norm_gradient"
    x = torch.randn(shape, device="cuda").to(dtype).requires_grad_()
    gamma = torch.rand(shape[1], device="cuda", requires_grad=True)
    y = functional.batch_norm(x, None, None, gamma, None, training=True)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        torch.autograd.grad(y.float().square().sum(), [x, gamma])
        torch.cuda.synchronize()
    names = " ".join(event.name for event in profile.events())
    assert kernel in names


@pytest.mark.parametrize("of_vectors", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(1024, 64), (256, 40), (8192, 512)], ids=str)
def test_the_function_of_far_means(shape, of_vectors):
    """Beside eager, of bf16 and vectors of either dtype."""
    x, z, *_ = make(shape, torch.bfloat16, shift=100.0)
    gamma, beta = (torch.rand(shape[1], device="cuda").to(of_vectors) for _ in range(2))
    leaves = {"z": z, "gamma": gamma, "beta": beta}
    leaves = {name: each.requires_grad_() for name, each in leaves.items()}
    wide = {name: each.detach().double().requires_grad_() for name, each in leaves.items()}

    def run(function, given):
        return lambda: function(given["z"], None, None, given["gamma"], given["beta"], True)

    mine = run(functional.batch_norm, leaves)
    assert type(mine().grad_fn).__name__ == "CppFunction"
    judge_norms(
        differentiate(mine, leaves, x),
        differentiate(run(torch.nn.functional.batch_norm, leaves), leaves, x),
        differentiate(run(torch.nn.functional.batch_norm, wide), wide, x.double()),
    )


def test_bad_input():
    x, z, mean, rstd, gamma = make((6, 5), torch.float32)
    for arguments, message in (
        ((x, z.half(), mean, rstd, gamma), "z must have the dtype of x, float32, got float16"),
        (
            (x, z.t(), mean, rstd, gamma),
            r"z must have the shape of x, \(6, 5\), got shape \(5, 6\)",
        ),
        ((x, z, mean.half(), rstd, gamma), "mean must be float32, got float16"),
        ((x, z, mean, rstd[:4], gamma), r"rstd must have shape \(5,\), got shape \(4,\)"),
        ((x, z, mean, rstd, gamma.cpu()), "gamma must be on the device of x, cuda:0"),
    ):
        with pytest.raises(RuntimeError, match=f"batch_norm_gradient: {message}"):
            batch_norm_gradient(*arguments)
