"""The gradients of a batch norm, with and without a scale, on the CPU: the references, the fakes,
bad input."""

import pytest
import torch

batch_norm_gradient = torch.ops.cutlass_fused.batch_norm_gradient
batch_norm_scale_gradient = torch.ops.cutlass_fused.batch_norm_scale_gradient


def make(shape=(6, 5), dtype=torch.float64):
    x, z = torch.randn(shape, dtype=dtype), torch.randn(shape, dtype=dtype)
    wide = torch.promote_types(dtype, torch.float32)
    rstd = (z.to(wide).var(0, correction=0) + 1e-5).rsqrt()
    return x, z, z.to(wide).mean(0), rstd, torch.rand(shape[1], dtype=wide) + 0.5


@pytest.mark.parametrize("has_gamma", [True, False])
def test_gradients_of_float64(has_gamma):
    x, z, mean, rstd, gamma = make()
    leaves = [z.requires_grad_(), gamma.requires_grad_(), torch.zeros(5).double().requires_grad_()]
    y = torch.nn.functional.batch_norm(
        z, None, None, gamma if has_gamma else None, leaves[2], training=True
    )
    expected = torch.autograd.grad(y, leaves, x, allow_unused=True)
    results = batch_norm_gradient(x, z.detach(), mean, rstd, gamma.detach() if has_gamma else None)
    torch.testing.assert_close(results[0], expected[0])
    torch.testing.assert_close(results[2], expected[2])
    if has_gamma:
        torch.testing.assert_close(results[1], expected[1])


each_scale = pytest.mark.parametrize("shape", [(), (1,), (5,)], ids=str)


@each_scale
def test_a_scale_in_front(shape):
    x, z, mean, rstd, gamma = make()
    u, scale = torch.randn(6, 5).double(), torch.rand(shape).double() + 0.5
    leaves = [u.requires_grad_(), gamma.requires_grad_()]
    v = u * scale
    y = torch.nn.functional.batch_norm(v, None, None, gamma, None, training=True)
    expected = torch.autograd.grad(y, leaves, x)
    v = v.detach()
    rstd = (v.var(0, correction=0) + 1e-5).rsqrt()
    results = batch_norm_gradient(x, v, v.mean(0), rstd, gamma.detach(), scale)
    torch.testing.assert_close(results[0], expected[0])
    torch.testing.assert_close(results[1], expected[1])


@each_scale
@pytest.mark.parametrize("has_affine", [True, False])
def test_a_scale_behind(shape, has_affine):
    x, z, mean, rstd, gamma = make()
    beta, scale = torch.randn(5).double(), torch.rand(shape).double() + 0.5
    leaves = [leaf.requires_grad_() for leaf in (z, scale, gamma, beta)]
    affine = (gamma, beta) if has_affine else (None, None)
    y = torch.nn.functional.batch_norm(z, None, None, *affine, training=True) * scale
    asked = leaves if has_affine else leaves[:2]
    expected = torch.autograd.grad(y, asked, x)
    affine = [None if vector is None else vector.detach() for vector in affine]
    results = batch_norm_scale_gradient(x, z.detach(), mean, rstd, scale.detach(), *affine)
    grad_scale = results[3].sum().reshape(shape) if scale.numel() == 1 else results[3]
    torch.testing.assert_close(results[0], expected[0])
    torch.testing.assert_close(grad_scale, expected[1])
    if has_affine:
        torch.testing.assert_close(results[1:3], expected[2:])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_vectors_of_any_dtype(dtype):
    x, z, mean, rstd, gamma = make(dtype=torch.float32)
    gamma, beta, scale = (gamma.to(dtype) + i for i in range(3))
    wide = [vector.float() for vector in (gamma, beta, scale)]
    for mine, theirs in (
        (
            batch_norm_gradient(x, z, mean, rstd, gamma, scale),
            batch_norm_gradient(x, z, mean, rstd, wide[0], wide[2]),
        ),
        (
            batch_norm_scale_gradient(x, z, mean, rstd, scale, gamma, beta),
            batch_norm_scale_gradient(x, z, mean, rstd, wide[2], *wide[:2]),
        ),
    ):
        assert all(map(torch.equal, mine, theirs))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_dtypes(dtype):
    x, z, mean, rstd, gamma = make(dtype=dtype)
    results = batch_norm_gradient(x, z, mean, rstd, gamma)
    assert [result.dtype for result in results] == [dtype, torch.float32, torch.float32]
    rounded = batch_norm_gradient(x, z, mean, rstd, gamma, round_vectors=True)
    assert all(map(torch.equal, rounded, (result.to(dtype) for result in results)))
    truth = batch_norm_gradient(*(tensor.double() for tensor in (x, z, mean, rstd, gamma)))
    for result, exact in zip(results, truth, strict=True):
        torch.testing.assert_close(result.double(), exact, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("shape", [(0, 5), (6, 0)])
def test_empty(shape):
    x, vector = torch.ones(shape), torch.ones(shape[1])
    grad_z, grad_gamma, grad_beta = batch_norm_gradient(x, x, vector, vector)
    assert grad_z.shape == shape
    assert torch.equal(grad_gamma, torch.zeros(shape[1])) and torch.equal(grad_beta, grad_gamma)
    results = batch_norm_scale_gradient(x, x, vector, vector, vector, vector, vector)
    assert results[0].shape == shape
    assert all(torch.equal(result, torch.zeros(shape[1])) for result in results[1:])


def test_opcheck():
    for gamma in (True, False):
        *arguments, vector = make(dtype=torch.float32)
        of_gamma = vector if gamma else None
        torch.library.opcheck(batch_norm_gradient, (*arguments, of_gamma))
        torch.library.opcheck(batch_norm_gradient, (*arguments, of_gamma, vector))
        torch.library.opcheck(batch_norm_gradient, (*arguments, of_gamma, vector, True))
        torch.library.opcheck(batch_norm_scale_gradient, (*arguments, vector, of_gamma))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": torch.ones(5)}, "x must have 2 dimensions"),
        ({"z": torch.ones(6, 5).bfloat16()}, "z must have the dtype of x, float32, got bfloat16"),
        ({"z": torch.ones(5, 6)}, r"z must have the shape of x, \(6, 5\), got shape \(5, 6\)"),
        ({"mean": torch.ones(5).half()}, "mean must be float32, got float16"),
        ({"rstd": torch.ones(6)}, r"rstd must have shape \(5,\), got shape \(6,\)"),
        ({"gamma": torch.ones(1, 5)}, r"gamma must have shape \(5,\), got shape \(1, 5\)"),
        ({"gamma": torch.ones(5).int()}, "gamma must be one of float16, .*, got int32"),
        ({"scale": torch.ones(1, 1)}, r"scale must have shape \(5,\), got shape \(1, 1\)"),
        ({"scale": torch.ones(3)}, r"scale must have shape \(5,\), got shape \(3,\)"),
    ],
)
def test_bad_input(change, message):
    names = ("x", "z", "mean", "rstd", "gamma")
    arguments = dict(zip(names, make(dtype=torch.float32), strict=True))
    arguments |= {"scale": torch.ones(5)} | change
    for op in (batch_norm_gradient, batch_norm_scale_gradient):
        with pytest.raises(RuntimeError, match=f"{op.__name__}: {message}"):
            op(**arguments)
