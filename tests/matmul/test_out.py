"""The forms that write to a tensor of the caller's."""

import pytest
import torch
from switched import check_like_eager, count_under, outcomes

M, N, K, BATCHES = 40, 48, 64, 1


def make(*shape):
    return torch.randn(shape)


CALLS = {
    "mm": lambda: (make(M, K), make(K, N)),
    "addmm": lambda: (make(N), make(M, K), make(K, N)),
    "_addmm_activation": lambda: (make(N), make(M, K), make(K, N)),
    "bmm": lambda: (make(BATCHES, M, K), make(BATCHES, K, N)),
    "baddbmm": lambda: (make(M, N), make(BATCHES, M, K), make(BATCHES, K, N)),
}


def shape_of(op):
    return (BATCHES, M, N) if "bmm" in op else (M, N)


def run(op, operands, out):
    """The result, and that it is `out` itself."""
    y = getattr(torch, op)(*operands, out=out)
    assert y is out
    return y


@pytest.mark.parametrize("op", CALLS)
def test_out(op):
    def call(*operands):
        return run(op, operands, torch.full(shape_of(op), torch.nan, dtype=operands[0].dtype))

    check_like_eager(call, *CALLS[op](), served=[f"{op}.out"])


@pytest.mark.parametrize("op", CALLS)
def test_strides_of_out_stay(op):
    def call(*operands):
        shape = shape_of(op)
        return run(op, operands, torch.empty(*shape[:-2], N, M, dtype=operands[0].dtype).mT)

    check_like_eager(call, *CALLS[op](), served=[f"{op}.out"])


@pytest.mark.parametrize("op", CALLS)
def test_an_empty_out_is_resized(op, recwarn):
    check_like_eager(
        lambda *operands: run(op, operands, operands[0].new_empty(0)),
        *CALLS[op](),
        served=[f"{op}.out"],
    )
    assert not recwarn.list


@pytest.mark.parametrize("op", CALLS)
def test_an_out_of_another_shape_is_resized_with_pytorchs_warning(op):
    operands, shape = CALLS[op](), shape_of(op)
    with count_under(), pytest.warns(UserWarning, match="An output with one or more elements was"):
        y = run(op, operands, torch.zeros(3, 5))
    assert y.shape == shape and torch.equal(y, run(op, operands, torch.empty(shape)))


def test_out_may_be_an_operand():
    """PyTorch would read what it has already written."""
    a = make(K, K)
    truth = a.double() @ a.double()
    with count_under() as report:
        torch.mm(a, a, out=a)
    torch.testing.assert_close(a, truth.float(), rtol=1e-4, atol=1e-4)
    assert outcomes(report) == {"served"}


@pytest.mark.parametrize("beta, alpha", [(1, 1), (0.5, 2), (0, 1)])
def test_in_place(beta, alpha):
    def addmm(c, a, b):
        return c.clone().addmm_(a, b, beta=beta, alpha=alpha)

    def baddbmm(c, a, b):
        return c.clone().baddbmm_(a, b, beta=beta, alpha=alpha)

    check_like_eager(addmm, make(M, N), make(M, K), make(K, N), served=["addmm_"])
    operands = make(1, M, K), make(1, K, N)
    check_like_eager(baddbmm, make(1, M, N), *operands, served=["baddbmm_"])


def test_out_without_the_op_is_eager_bit_for_bit():
    """What is left is what PyTorch writes, into the very tensor."""
    operands, out = (make(M, 16), make(16, N)), make(M, N)
    with count_under() as report:
        assert torch.mm(*operands, out=out) is out
    assert torch.equal(out, torch.mm(*operands)) and "served" not in outcomes(report)
