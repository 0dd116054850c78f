"""Derivatives and transforms: PyTorch's formulas multiply again, and each product is served."""

import threading

import pytest
import torch
from switched import check_like_eager, count_under, outcomes

M, N, K = 40, 48, 64


def make(*shape):
    return torch.randn(shape)


def differentiate(function):
    """The gradients of all inputs, by a backward pass."""

    def gradients(*inputs):
        inputs = [x.detach().requires_grad_() for x in inputs]
        grads = torch.autograd.grad(function(*inputs).square().sum(), inputs)
        return torch.cat([g.flatten() for g in grads])

    return gradients


def differentiate_twice(function):
    """As a potential's forces in training: the gradient of a gradient's square."""

    def gradients(*inputs):
        inputs = [x.detach().requires_grad_() for x in inputs]
        y = function(*inputs).tanh().sum()
        (first,) = torch.autograd.grad(y, inputs[:1], create_graph=True)
        grads = torch.autograd.grad(first.square().sum(), inputs)
        return torch.cat([g.flatten() for g in grads])

    return gradients


def linear(x, weight, bias):
    return torch.nn.functional.linear(x, weight, bias)


@pytest.mark.parametrize("differentiated", [differentiate, differentiate_twice])
def test_backward(differentiated):
    inputs = make(M, K), make(N, K), make(N)
    # The forward pass is `addmm`, all others are `mm`.
    check_like_eager(differentiated(linear), *inputs, served=["addmm", "mm"])


def test_gradcheck():
    """In double, which goes to PyTorch; that the kernels in between break no formula."""
    inputs = [make(*s).double().requires_grad_() for s in ((3, 4), (5, 4), (5,))]
    with count_under():
        assert torch.autograd.gradcheck(linear, inputs)
        assert torch.autograd.gradgradcheck(linear, inputs)


def test_a_backward_thread_of_its_own():
    """A backward pass that is called in another thread still is under the word."""
    x, weight = make(M, K).requires_grad_(), make(N, K).requires_grad_()
    with count_under() as report:
        y = linear(x, weight, None).sum()
        thread = threading.Thread(target=y.backward)
        thread.start()
        thread.join()
    assert outcomes(report) == {"served"} and report.rows.total() == 3


def test_vmap_of_grad():
    def loss(weight, x):
        return (x @ weight).square().sum()

    def per_sample(weight, x):
        return torch.func.vmap(torch.func.grad(loss), (None, 0))(weight, x)

    check_like_eager(per_sample, make(K, N), make(3, M, K))


def test_vmap_over_the_weight():
    check_like_eager(torch.func.vmap(torch.mm, (None, 0)), make(M, K), make(3, K, N))


def test_vmap_over_rows_is_one_product():
    report = check_like_eager(torch.func.vmap(torch.mm, (0, None)), make(3, M, K), make(K, N))
    assert outcomes(report) == {"served"} and report.rows.total() == 1


def test_jvp():
    def forward(x, weight, t):
        return torch.func.jvp(lambda x: linear(x, weight, None).sin(), (x,), (t,))[1]

    check_like_eager(forward, make(M, K), make(N, K), make(M, K), served=["mm"])


def test_hessian_vector_product():
    def product(x, weight, t):
        def loss(x):
            return linear(x, weight, None).sin().sum()

        return torch.func.jvp(torch.func.grad(loss), (x,), (t,))[1]

    check_like_eager(product, make(M, K), make(N, K), make(M, K), served=["mm"])


def test_results_have_no_history_of_their_own():
    """What runs inside a kernel is below autograd."""
    c = make(M, N).requires_grad_()
    with count_under():
        y = torch.addmm(c, make(M, K), make(K, N), beta=2, alpha=3)
    assert type(y.grad_fn).__name__ == "AddmmBackward0"


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients(mode):
    c = torch.nn.Parameter(make(M, N))
    with mode(), count_under() as report:
        y = torch.addmm(c, make(M, K), make(K, N), beta=2, alpha=3)
    assert not y.requires_grad and y.is_inference() == (mode is torch.inference_mode)
    assert outcomes(report) == {"served"}


def test_conjugate_and_negative_views():
    """They are resolved above the kernels."""
    a, b = torch.complex(make(M, K), make(M, K)).conj().imag, make(K, N)
    assert a.is_neg()
    with count_under() as report:
        y = a @ b
    torch.testing.assert_close(y, a.resolve_neg() @ b)
    assert outcomes(report) == {"served"}
