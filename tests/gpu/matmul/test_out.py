"""Results in the caller's tensor, under the switch: written there by the kernel, if they can be."""

import pytest
import torch

from cutlass_fused import fp32_matmul

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
    }
    for name, make_out in outs.items():
        a, b = make(N, N), make(N, N)
        out = make_out(a)
        with fp32_matmul("ieee"):
            expected = a @ b
            torch.mm(a, b, out=out)
        assert torch.equal(out, expected), name
