"""Captures, and torch.compile with them, under the switch."""

import pytest
import torch
from switched import count_under, outcomes

import cutlass_fused
from cutlass_fused import fp32_matmul
from cutlass_fused.matmul._report import COMPILED

pytestmark = pytest.mark.gpu

M, N, K = 133, 264, 96


def make(*shape):
    return torch.randn(shape, device="cuda")


def multiply_ours(a, b, word="ieee"):
    return torch.ops.cutlass_fused.linear(a, b.t(), None, word)


def capture(function):
    """A CUDA graph of the function, and its result."""
    function()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = function()
    return graph, y


@pytest.mark.parametrize("name", ["mm", "addmm", "mm.out", "bmm"])
def test_capture(name):
    a, b, c = make(M, K), make(K, N), make(M, N)
    out = make(M, N)
    calls = {
        "mm": lambda: torch.mm(a, b),
        "addmm": lambda: torch.addmm(c, a, b, beta=0.5),
        "mm.out": lambda: torch.mm(a, b, out=out),
        "bmm": lambda: torch.bmm(a.expand(3, M, K), b.expand(3, K, N)),
    }
    with fp32_matmul("ieee"):
        graph, y = capture(calls[name])
        y.fill_(torch.nan)
        a.copy_(make(M, K))
        graph.replay()
        assert torch.equal(y, calls[name]())


def test_a_capture_keeps_what_was_recorded():
    a, b = make(M, K), make(K, N)
    torch.backends.cuda.matmul.allow_tf32 = True
    with fp32_matmul("ieee"):
        graph, y = capture(lambda: a @ b)
    y.fill_(torch.nan)
    graph.replay()
    assert torch.equal(y, multiply_ours(a, b))


MODES = ["default", "reduce-overhead", "max-autotune-no-cudagraphs"]


@pytest.fixture
def fresh_compiler():
    """Without caches: a report counts what a graph serves when it is compiled. And without trials
    of padded operands, which call products at that time."""
    torch._dynamo.reset()
    with torch._inductor.config.patch(force_disable_caches=True, shape_padding=False):
        yield
    torch._dynamo.reset()


@pytest.mark.parametrize("first", [None, "ieee"])
@pytest.mark.parametrize("mode", MODES[:2])
def test_compiled_under_one_called_under_the_other(mode, first, fresh_compiler):
    """A CUDA graph would replay the other's products, were it not for the guard."""
    a, b = make(M, K), make(K, N)
    torch.backends.cuda.matmul.allow_tf32 = True
    compiled = torch.compile(lambda a, b: torch.mm(a, b), mode=mode)
    ours, eager = multiply_ours(a, b), a @ b
    # Inductor may give its operands another alignment, and so cuBLAS another kernel.
    tf32_error = (eager - ours).abs().max()
    assert tf32_error > 1e-3
    other = "ieee" if first is None else None
    for word in (first, other, first):
        with fp32_matmul(word):
            for _ in range(4):  # warm up, record, replay
                torch.compiler.cudagraph_mark_step_begin()
                y = compiled(a, b).clone()
        expected = eager if word is None else ours
        assert (y - expected).abs().max() < 0.05 * tf32_error, word


@pytest.mark.parametrize("mode", MODES)
def test_training(mode, fresh_compiler):
    """Forward and backward in the `with`, in each mode beside eager under the switch."""
    model = torch.nn.Sequential(torch.nn.Linear(K, N), torch.nn.ReLU(), torch.nn.Linear(N, M))
    model, x = model.cuda(), make(M, K)
    compiled = torch.compile(model, mode=mode)
    with count_under() as report:
        for _ in range(4):
            model.zero_grad()
            torch.compiler.cudagraph_mark_step_begin()
            compiled(x).square().sum().backward()
    grads = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    with fp32_matmul("ieee"):
        model(x).square().sum().backward()
    for got, p in zip(grads, model.parameters(), strict=True):
        torch.testing.assert_close(got, p.grad, rtol=1e-3, atol=1e-3 * p.grad.abs().max().item())
    assert outcomes(report) == {COMPILED if mode == MODES[2] else "served"}


def test_no_synchronisation():
    a, b, c = make(M, K), make(K, N), make(M, N)
    with fp32_matmul("ieee"):
        a @ b  # loads the kernels
        torch.cuda.set_sync_debug_mode("error")
        try:
            torch.addmm(c, a, b, beta=0.5, alpha=2)
            torch.mm(a, b, out=c)
        finally:
            torch.cuda.set_sync_debug_mode("default")


def test_a_report_in_a_capture():
    """Counting allocates nothing on the GPU."""
    a, b = make(M, K), make(K, N)
    with cutlass_fused.matmul_report() as report, fp32_matmul("ieee"):
        capture(lambda: a @ b)
    assert report.rows.total() == 2
