"""Results in the caller's tensor, under the switch: written there by the kernel, if they can be."""

import contextlib

import pytest
import torch

from cutlass_fused import fp32_matmul, matmul_report

pytestmark = pytest.mark.gpu

M, N, K = 512, 1024, 256


def make(*shape):
    return torch.randn(shape, device="cuda")


CALLS = {
    "mm": lambda a, b, c, out: torch.mm(a, b, out=out),
    "addmm": lambda a, b, c, out: torch.addmm(c, a, b, out=out),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_result_is_written_to_it(name):
    a, b, c, call = make(M, K), make(K, N), make(N), CALLS[name]
    with fp32_matmul("ieee"):
        expected = call(a, b, c, None)
        out = torch.full((M, N), torch.nan, device="cuda")
        call(a, b, c, out)  # splits may be kept from here on
        torch.cuda.synchronize()
        out.fill_(torch.nan)
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        assert call(a, b, c, out) is out
        taken = torch.cuda.max_memory_allocated() - before
    assert torch.equal(out, expected)
    # The product reads its operands as they lie: it takes no memory of its own.
    assert taken < 4 * M * N


def test_tensors_that_a_kernel_cannot_write_to():
    """Over an operand, in columns, with gaps."""
    outs = {
        "an operand": lambda a: a,
        "a part of one": lambda a: a[:, :],
        "columns": lambda a: make(N, N).t(),
        "gaps": lambda a: make(N, 2 * N)[:, ::2],
        "an address": lambda a: make(N * N + 1)[1:].view(N, N),
    }
    for name, make_out in outs.items():
        a, b = make(N, N), make(N, N)
        out = make_out(a)
        with fp32_matmul("ieee"):
            expected = a @ b
            torch.mm(a, b, out=out)
        assert torch.equal(out, expected), name


linear_out = torch.ops.cutlass_fused.linear_out


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_the_op(dtype, bias):
    """Also of leading dimensions, of nothing, and at any address."""
    for shape, n, k in (
        ((5,), 7, 64),
        ((2, 33), 65, 100),
        ((0,), 7, 64),
        ((5,), 0, 64),
        ((5,), 7, 0),
    ):
        x, weight = make(*shape, k).to(dtype), make(n, k).to(dtype)
        vector = make(n) if bias else None
        for y_dtype in {dtype, torch.float32}:
            count = x[..., 0].numel() * n if k else shape[0] * n
            memory = torch.full((count + 1,), torch.nan, device="cuda", dtype=y_dtype)
            expected = torch.ops.cutlass_fused.linear(x, weight, vector, out_dtype=y_dtype)
            y = memory[1:].view(*shape, n)
            linear_out(y, x, weight, vector)
            torch.testing.assert_close(y, expected)
            assert memory[:1].isnan().all()


def test_bad_input_leaves_it_as_it_was():
    y = torch.full((5, 7), 3.0, device="cuda")
    x, weight = make(5, 64), make(7, 64)
    for wrong, message in (
        (torch.full((5, 8), 3.0, device="cuda"), r"y must have the shape of the product, \(5, 7\)"),
        (torch.full((7, 5), 3.0, device="cuda").t(), "y must be contiguous"),
        (y.double(), "y must be float32 or have x's dtype, got float64"),
        (y.cpu(), "y must be on"),
    ):
        with pytest.raises(RuntimeError, match=f"linear_out: .*{message}"):
            linear_out(wrong, x, weight)
        assert (wrong == 3).all()
    with pytest.raises(RuntimeError, match="linear_out: weight must have the dtype of x"):
        linear_out(y, x.bfloat16(), weight)
    assert (y == 3).all()


@pytest.mark.parametrize("report", [False, True], ids=["C++", "Python"])
def test_what_pytorch_computes_may_lie_over_an_operand_too(report):
    """Where our plan is cuBLAS, PyTorch's call would write to what it reads."""
    torch.ops.cutlass_fused.force_tile("cublas")
    counted = matmul_report() if report else contextlib.nullcontext()
    try:
        with fp32_matmul("ieee"), counted:
            a, b = make(N, N), make(N, N)
            expected = torch.mm(a, b)
            torch.mm(a, b, out=a)
            assert torch.equal(a, expected)
            a, b, out = make(N, N), make(N, N), make(N, N)
            expected = torch.addmm(out[1].clone(), a, b)
            torch.addmm(out[1], a, b, out=out)
            torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-4)
            a, b = make(3, N, N), make(3, N, N)
            expected = torch.bmm(a, b)
            torch.bmm(a, b, out=b)
            assert torch.equal(b, expected)
            a, b, apart = make(N, N), make(N, N), make(N, N)
            assert torch.equal(torch.mm(a, b, out=apart), torch.mm(a, b))
    finally:
        torch.ops.cutlass_fused.force_tile("")
