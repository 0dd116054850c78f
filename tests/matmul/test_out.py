"""The forms that write to a tensor of the caller's."""

import pytest
import torch
from switched import check_like_eager, count_under, outcomes

from cutlass_fused import fp32_matmul
from cutlass_fused.matmul import _by_pytorch, _left, _served

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


def test_what_writes_over_an_operand_is_never_left_to_pytorch(monkeypatch):
    """Also where cuBLAS would compute it; behind it, products that share nothing are left again."""

    def is_by_pytorch(word, a, b):
        return not _by_pytorch._thread.never

    monkeypatch.setattr(_served, "is_by_pytorch", is_by_pytorch)
    a, b, row = make(N, N), make(N, N), make(N)
    z = a.clone()
    calls = [
        (torch.mm(a, b), lambda x, y: torch.mm(x, y, out=y), "served"),
        (torch.addmm(row, a, b), lambda x, y: torch.addmm(row, x, y, out=x.view(N, N)), "served"),
        (torch.addmm(a[0], a, b), lambda x, y: torch.addmm(z[0], x, y, out=z), "served"),
        (torch.addmm(a, a, b, beta=0), lambda x, y: x.addmm_(x, y, beta=0), "served"),
        (torch.mm(a, b), lambda x, y: torch.mm(x, y, out=make(N, N)), _left.CUBLAS),
        # What is not read may be written over.
        (torch.mm(a, b), lambda x, y: make(N, N).addmm_(x, y, beta=0), _left.CUBLAS),
    ]
    for expected, call, outcome in calls:
        with count_under() as report:
            y = call(a.clone(), b.clone())
        torch.testing.assert_close(y, expected)
        assert [found for *_, found in report.rows] == [outcome]
    with pytest.raises(ZeroDivisionError), _by_pytorch.never():
        raise ZeroDivisionError
    assert not _by_pytorch._thread.never


# Where c lies in the memory of `out`.
OVERLAPS = {
    "out itself": lambda out: out,
    "a view of it": lambda out: out[:],
    "transposed": lambda out: out.mT,
    "a row of it": lambda out: out[..., :1, :],
    "a column of it": lambda out: out[..., :, :1],
    "an element of it": lambda out: out.flatten()[7],
    "in another order": lambda out: out.flatten()[N * N // 2 :][:N],
}


@pytest.mark.parametrize("beta, alpha", [(1, 1), (0.5, 2), (0, 1), (0, 2)])
@pytest.mark.parametrize("overlap", OVERLAPS)
def test_c_may_lie_in_out(overlap, beta, alpha):
    """Each element of c is read before the result is written over it."""
    scales = {"beta": beta, "alpha": alpha}
    for batches in ((), (1,), (3,)):
        op = torch.baddbmm if batches else torch.addmm
        a, b = make(*batches, N, K), make(*batches, K, N)
        filled = make(*batches, N, N)
        expected = op(OVERLAPS[overlap](filled).clone(), a, b, **scales)
        for switched in (count_under(), fp32_matmul("ieee")):
            out = filled.clone()
            with switched:
                assert op(OVERLAPS[overlap](out), a, b, **scales, out=out) is out
            torch.testing.assert_close(out, expected)


@pytest.mark.parametrize("beta, alpha", [(1, 1), (0.5, 2), (0, 1), (-1, 1), (0, 2)])
def test_in_place(beta, alpha):
    def addmm(c, a, b):
        return c.clone().addmm_(a, b, beta=beta, alpha=alpha)

    def baddbmm(c, a, b):
        return c.clone().baddbmm_(a, b, beta=beta, alpha=alpha)

    check_like_eager(addmm, make(M, N), make(M, K), make(K, N), served=["addmm_"])
    for batches in (1, 3):
        operands = make(batches, M, K), make(batches, K, N)
        check_like_eager(baddbmm, make(batches, M, N), *operands, served=["baddbmm_"])


def test_in_place_on_an_operand():
    """What is multiplied is read before it is written over, too."""
    a, b = make(N, N), make(N, N)
    expected = torch.addmm(a, a, b), torch.addmm(b, a, b, beta=0, alpha=2)
    for switched in (count_under(), fp32_matmul("ieee")):
        x, y = a.clone(), b.clone()
        with switched:
            assert x.addmm_(x, b) is x and y.addmm_(a, y, beta=0, alpha=2) is y
        torch.testing.assert_close((x, y), expected)


def test_a_c_that_must_grow_is_refused_in_place():
    for c in (make(N), make(1, N), make(M, 1)):
        for switched in (count_under(), fp32_matmul("ieee")):
            with switched, pytest.raises(RuntimeError):
                c.addmm_(make(M, K), make(K, N))


def test_out_without_the_op_is_eager_bit_for_bit():
    """What is left is what PyTorch writes, into the very tensor."""
    operands, out = (make(M, 16), make(16, N)), make(M, N)
    with count_under() as report:
        assert torch.mm(*operands, out=out) is out
    assert torch.equal(out, torch.mm(*operands)) and "served" not in outcomes(report)
