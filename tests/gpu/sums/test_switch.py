"""PyTorch's addmm and baddbmm under the switch: one op each, whatever is added."""

import itertools

import pytest
import torch
from accuracy import round_to_tf32
from switched import check_like_eager, count_under, outcomes

from cutlass_fused import fp32_matmul

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("choose_freely")]

# M, N, K: small products, many rows, N that is odd, few rows.
SHAPES = ((133, 264, 96), (2100, 1032, 1032), (257, 521, 136), (16, 4096, 1024))
SCALES = [(1, 1), (0.5, -1), (0, 2), (2, 1)]
C_KINDS = {
    "matrix": lambda m, n: make(m, n),
    "row": lambda m, n: make(n),
    "column": lambda m, n: make(m, 1),
    "number": lambda m, n: make(),
    "transposed": lambda m, n: make(n, m).t(),
    "expanded": lambda m, n: make(m, 1).expand(m, n),
}


def make(*shape):
    return torch.randn(shape, device="cuda")


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.mark.parametrize("word", ["ieee", "tf32"])
@pytest.mark.parametrize("beta, alpha", SCALES)
@pytest.mark.parametrize("kind", C_KINDS)
def test_addmm(kind, beta, alpha, word):
    def addmm(c, a, b):
        return torch.addmm(c, a, b, beta=beta, alpha=alpha)

    def spell_out(c, a, b):
        return addmm(c, round_to_tf32(a), round_to_tf32(b))

    options = {
        "served": ["addmm"],
        "word": word,
        "spelt_out": spell_out if word == "tf32" else None,
    }
    for m, n, k in SHAPES:
        for b in (make(k, n), make(n, k).t()):
            check_like_eager(addmm, C_KINDS[kind](m, n), make(m, k), b, **options)


@pytest.mark.parametrize("beta, alpha", SCALES)
@pytest.mark.parametrize("batches", [1, 3])
def test_baddbmm(batches, beta, alpha):
    def baddbmm(c, a, b):
        return torch.baddbmm(c, a, b, beta=beta, alpha=alpha)

    for m, n, k in SHAPES:
        for shape in ((batches, m, n), (m, n), (batches, 1, n), (m, 1), ()):
            operands = make(*shape), make(batches, m, k), make(batches, k, n)
            check_like_eager(baddbmm, *operands, served=["baddbmm"])


def run(name, c, a, b, out, **scales):
    """With `out`, and in place."""
    if name == "out":
        op = torch.baddbmm if a.dim() == 3 else torch.addmm
        return op(c, a, b, out=out, **scales)
    op = torch.Tensor.baddbmm_ if a.dim() == 3 else torch.Tensor.addmm_
    return op(out.copy_(c), a, b, **scales)


@pytest.mark.parametrize("name", ["out", "in place"])
@pytest.mark.parametrize("beta, alpha", SCALES)
def test_results_in_the_callers_tensor(name, beta, alpha):
    scales = {"beta": beta, "alpha": alpha}
    for (m, n, k), batches in itertools.product(SHAPES, ((), (1,), (3,))):
        a, b, c = make(*batches, m, k), make(*batches, k, n), make(*batches, m, n)
        op = torch.baddbmm if batches else torch.addmm
        memory = make(c.numel() + 1)
        outs = make(*c.shape), make(*batches, n, m).mT, memory[1:].view(c.shape)
        with fp32_matmul("ieee"):
            expected = op(c, a, b, **scales)
            for out in outs:
                assert run(name, c, a, b, out, **scales) is out
                # At another address another kernel may serve.
                torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-4)
        with count_under() as report:
            run(name, c, a, b, outs[0], **scales)
        assert outcomes(report) == {"served"}


def test_in_place_takes_no_second_result():
    """Where the product reads its operands as they lie, and so writes each output once."""
    a, b, c = make(512, 256), make(256, 1024), make(512, 1024)
    with fp32_matmul("ieee"):
        c.addmm_(a, b)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        c.addmm_(a, b)
        assert torch.cuda.max_memory_allocated() - before < c.numel() * 4


def test_in_place_on_an_operand():
    a, b = make(264, 264), make(264, 264)
    with fp32_matmul("ieee"):
        expected = torch.addmm(a, a, b, beta=0.5)
        a.addmm_(a, b, beta=0.5)
    assert torch.equal(a, expected)


def test_autograd_counts_what_is_written_in_place():
    a, b, c = make(40, 64).requires_grad_(), make(64, 48), make(40, 48)
    with fp32_matmul("ieee"):
        squared = c.square()
        y = c.addmm_(a, b)
        y.sum().backward()
        torch.testing.assert_close(a.grad, b.sum(1).expand(40, 64), rtol=1e-5, atol=1e-4)
        x = squared.requires_grad_().exp()
        x.addmm_(a, b)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            x.sum().backward()


@pytest.mark.parametrize("name", ["addmm", "addmm_", "baddbmm", "baddbmm.out"])
def test_capture(name):
    a, b, c = make(3, 133, 96), make(3, 96, 264), make(3, 133, 264)
    out = make(3, 133, 264)
    calls = {
        "addmm": lambda: torch.addmm(c[0], a[0], b[0], beta=0.5),
        "addmm_": lambda: out.copy_(c)[0].addmm_(a[0], b[0], alpha=2),
        "baddbmm": lambda: torch.baddbmm(c, a, b, alpha=-1),
        "baddbmm.out": lambda: torch.baddbmm(c, a, b, out=out),
    }
    with fp32_matmul("ieee"):
        calls[name]()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = calls[name]()
        a.copy_(make(3, 133, 96))
        graph.replay()
        replayed = y.clone()
        assert torch.equal(replayed, calls[name]())


def test_nothing_runs_behind_the_product():
    """Where matrices are multiplied as they lie, whatever is added."""
    a, b = make(512, 256), make(256, 1024)
    for c in (make(512, 1024), make(512, 1), make(1024, 512).t()):
        with fp32_matmul("ieee"):
            torch.addmm(c, a, b, beta=0.5, alpha=2)
            torch.cuda.synchronize()
            with torch.profiler.profile(
                activities=[torch.profiler.ProfilerActivity.CUDA]
            ) as profile:
                torch.addmm(c, a, b, beta=0.5, alpha=2)
                torch.cuda.synchronize()
        names = [event.name for event in profile.events()]
        assert any("gemm_tf32x3" in name for name in names), names
        assert not any("elementwise" in name or "apply_epilogue" in name for name in names), names
