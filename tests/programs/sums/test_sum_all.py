"""Sums over the rows of what a backward pass leaves in memory: one program for all of them."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import cutlass_fused
from cutlass_fused.build_epilogues.calls import Operand, record_calls
from cutlass_fused.programs import differentiable, native
from cutlass_fused.programs.differentiable import sum_all

M, N = 12, 6


@pytest.fixture
def served(monkeypatch):
    """As on a GPU."""
    monkeypatch.setattr(differentiable, "is_recorded", True)


class Programs(TorchDispatchMode):
    """The programs that apply_program is asked for, and what they give."""

    def __enter__(self):
        self.found = []
        return super().__enter__()

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        if function is torch.ops.cutlass_fused.apply_program.default:
            self.found.append(arguments[2:4])
        return function(*arguments, **(options or {}))


def draw(*shape, dtype=torch.float32):
    return torch.randn(shape).to(dtype)


def sum_alone(grads, likes):
    return [
        None if grad is None else grad.double().sum_to_size(shape).to(dtype)
        for grad, (shape, dtype) in zip(grads, likes, strict=True)
    ]


def like(*shape, dtype=torch.float32):
    return torch.Size(shape), dtype


def test_one_program_for_all(served):
    """Of two that are one tensor one sum; each rounded once, to its own dtype."""
    one, other = draw(M, N), draw(M, N, dtype=torch.bfloat16)
    grads = [one, None, other, one, one, draw(N)]
    half = torch.bfloat16
    likes = [like(N), like(N), like(N), like(N), like(N, dtype=half), like(N)]
    with Programs() as programs:
        found = sum_all(grads, likes, composed=False)
    expected = "program 1\noperands 2\nreturn acc p0 p1\n"
    assert programs.found == [(expected, "sum:float32,sum:float32,sum:bfloat16")]
    assert found[1] is None and found[0] is found[3] and found[5] is grads[5]
    for each, truth, (shape, dtype) in zip(found, sum_alone(grads, likes), likes, strict=True):
        if each is not None:
            assert each.shape == shape and each.dtype == dtype
            torch.testing.assert_close(each, truth)


LEFT = {
    "float64": (lambda: draw(M, N, dtype=torch.float64), (N,), torch.float64),
    "of a scalar": (lambda: draw(M, N), (), torch.float32),
    "of one element": (lambda: draw(M, N), (1,), torch.float32),
    "of a column": (lambda: draw(M, N), (M, 1), torch.float32),
    "of a row of two dimensions": (lambda: draw(M, N), (1, N), torch.float32),
    "nothing to add": (lambda: draw(M, N), (M, N), torch.float32),
    "no rows": (lambda: draw(0, N), (N,), torch.float32),
    "one row for all": (lambda: draw(1, N).expand(M, N), (N,), torch.float32),
    "in columns": (lambda: draw(N, M).t(), (N,), torch.float32),
    "a sum already": (lambda: draw(N), (N,), torch.bfloat16),
}


@pytest.mark.parametrize("make, shape, dtype", LEFT.values(), ids=LEFT)
def test_what_is_left_to_pytorch(make, shape, dtype, served):
    grad = make()
    with Programs() as programs:
        (found,) = sum_all([grad], [like(*shape, dtype=dtype)], composed=False)
    assert not programs.found and found.shape == shape and found.dtype == dtype
    torch.testing.assert_close(found, sum_alone([grad], [like(*shape, dtype=dtype)])[0])


def test_composed(served):
    grad = draw(M, N).requires_grad_()
    with Programs() as programs:
        (found,) = sum_all([grad], [like(N)], composed=True)
    assert found.requires_grad and not programs.found


def test_others_than_the_first(served):
    """Of another shape, and more than a program has outputs."""
    grads = [draw(M, N), draw(M + 1, N), *(draw(M, N) for _ in range(8))]
    likes = [like(N)] * len(grads)
    with Programs() as programs:
        found = sum_all(grads, likes, composed=False)
    ((text, out),) = programs.found
    assert text.splitlines()[-1] == "return acc p0 p1 p2 p3 p4 p5 p6" and out.count("sum:") == 8
    torch.testing.assert_close(found, sum_alone(grads, likes))


def test_leading_dimensions(served):
    grads = [draw(2, 3, N), draw(2, 3, N)]
    with Programs() as programs:
        found = sum_all(grads, [like(N)] * 2, composed=False)
    assert len(programs.found) == 1
    torch.testing.assert_close(found, sum_alone(grads, [like(N)] * 2))


def test_where_nothing_can_be_linked(served, monkeypatch):
    """As in a graph that is captured: PyTorch adds up."""

    def refuse(*given):
        raise RuntimeError("must run once before a graph is captured")

    monkeypatch.setattr(differentiable, "_apply_program_op", refuse)
    grads = [draw(M, N), draw(M, N)]
    found = sum_all(grads, [like(N)] * 2, composed=False)
    torch.testing.assert_close(found, sum_alone(grads, [like(N)] * 2))


@cutlass_fused.epilogue
def norm(acc, bias, gamma, beta):
    return torch.nn.functional.layer_norm(acc + bias, acc.shape[1:], gamma, beta)


def test_it_is_linked_ahead_of_time():
    names = "bias", "gamma", "beta"
    operands = {name: Operand("N", None) for name in names}
    calls = record_calls(norm, operands, "bf16", (64, 48, 32), names)
    found = [call for call in calls if call.out.startswith("sum:")]
    assert [call.out.count("sum:") for call in found] == [3]
    assert not differentiable.is_recorded


def test_of_a_layer(served, monkeypatch):
    """The gradients of a function of rows, in Python."""
    monkeypatch.setattr(native, "takes", lambda: False)
    x, grad = draw(M, 5), draw(M, N)
    leaves = [draw(N, 5).requires_grad_(), *(draw(N).requires_grad_() for _ in range(3))]
    y = norm(x, leaves[0], **dict(zip(("bias", "gamma", "beta"), leaves[1:], strict=True)))
    with Programs() as programs:
        found = torch.autograd.grad(y, leaves, grad)
    assert [out.count("sum:") for _, out in programs.found] == [0, 3]
    z = torch.nn.functional.linear(x, *leaves[:2])
    expected = torch.nn.functional.layer_norm(z, (N,), *leaves[2:])
    torch.testing.assert_close(found, torch.autograd.grad(expected, leaves, grad))
