"""Graphs that hold our ops in place of Triton templates, under the switch."""

import pytest
import torch
from switched import count_under, outcomes

from cutlass_fused import fp32_matmul
from cutlass_fused.matmul import _left
from cutlass_fused.matmul._report import COMPILED

pytestmark = pytest.mark.gpu

M, N, K = 133, 264, 96
ops = torch.ops.cutlass_fused
# Two templates for a product that is left to PyTorch: all of them take minutes.
# And no trial of padded operands, which calls products while a graph compiles.
TUNED = {"max_autotune": True, "test_configs.max_mm_configs": 2, "shape_padding": False}


def make(*shape):
    return torch.randn(shape, device="cuda")


@pytest.fixture(autouse=True)
def fresh():
    """PyTorch allows TF32 beside the switch, so that the bits tell what has multiplied."""
    torch._dynamo.reset()
    torch.backends.cuda.matmul.allow_tf32 = True
    with torch._inductor.config.patch(force_disable_caches=True):
        yield
    torch._dynamo.reset()


# PyTorch's call, its operands, and what has its bits.
CALLS = {
    "mm": (torch.mm, [(M, K), (K, N)], lambda a, b, w: ops.linear(a, b.t(), None, w)),
    "mm of columns": (
        lambda a, b: torch.mm(a.t(), b.t()),
        [(K, M), (N, K)],
        lambda a, b, w: ops.linear(a.t(), b, None, w),
    ),
    "addmm": (torch.addmm, [(N,), (M, K), (K, N)], lambda c, a, b, w: ops.linear(a, b.t(), c, w)),
    "bmm": (torch.bmm, [(3, M, K), (3, K, N)], lambda a, b, w: ops.bmm(a, b.transpose(1, 2), w)),
    "bmm of one matrix": (
        torch.matmul,
        [(3, M, K), (K, N)],
        lambda a, b, w: ops.linear(a, b.t(), None, w),
    ),
}


@pytest.mark.parametrize("word", ["ieee", "tf32"])
@pytest.mark.parametrize("name", CALLS)
def test_bits(name, word):
    function, shapes, ours = CALLS[name]
    operands = [make(*shape) for shape in shapes]
    with count_under(word) as report:
        y = torch.compile(function, options=TUNED, fullgraph=True)(*operands)
    assert outcomes(report) == {COMPILED}
    assert torch.equal(y, ours(*operands, word))


def fused(c, a, b):
    """With code around the product that Inductor fuses, into operands too."""
    y = torch.addmm(c, (a * 2).t().contiguous().t(), b.relu(), beta=0.5, alpha=-2)
    return torch.softmax(y[::2] + 1, dim=1)


@pytest.mark.parametrize("c", [(N,), (M, 1), (M, N)], ids=str)
def test_code_around_it(c):
    operands = make(*c), make(M, K) / 8, make(K, N) / 8
    with count_under() as report:
        y = torch.compile(fused, options=TUNED)(*operands)
    assert outcomes(report) == {COMPILED}
    truth = fused(*(x.double() for x in operands))
    torch.testing.assert_close(y.double(), truth, rtol=1e-5, atol=1e-7)


def test_baddbmm():
    operands = make(M, N), make(3, M, K), make(3, K, N)

    def call(c, a, b):
        return torch.baddbmm(c, a, b, beta=0.5, alpha=2)

    with count_under() as report:
        y = torch.compile(call, options=TUNED)(*operands)
    truth = call(*(x.double() for x in operands))
    assert outcomes(report) == {COMPILED}
    torch.testing.assert_close(y.double(), truth, rtol=1e-5, atol=1e-4)


def test_words_in_turn():
    """Each word has a graph of its own, and off means PyTorch's."""
    a, b = make(M, K), make(K, N)
    compiled = torch.compile(lambda a, b: a @ b, options=TUNED)
    ieee, tf32 = (ops.linear(a, b.t(), None, word) for word in ("ieee", "tf32"))
    for word in ("ieee", None, "tf32", "ieee", None):
        with fp32_matmul(word):
            y = compiled(a, b)
        assert torch.equal(y, ieee) == (word == "ieee")
        assert torch.equal(y, tf32) == (word == "tf32")


def test_a_number_of_rows_that_is_a_symbol():
    b = make(K, N)
    compiled = torch.compile(lambda a: a @ b, options=TUNED, dynamic=True)
    with fp32_matmul("ieee"):
        for rows in (5, 133, 1024):
            a = make(rows, K)
            assert torch.equal(compiled(a), ops.linear(a, b.t(), None, "ieee"))


def test_what_is_left_is_as_exact():
    a, b = make(M, 16), make(16, N)
    torch.backends.cuda.matmul.allow_tf32 = False
    with count_under() as report:
        y = torch.compile(lambda a, b: a @ b, options=TUNED)(a, b)
    assert outcomes(report) == {_left.SHORT}
    torch.testing.assert_close(y.double(), a.double() @ b.double(), rtol=1e-5, atol=1e-5)


def test_replays():
    """mode="max-autotune" captures what it compiled."""
    model = torch.nn.Sequential(torch.nn.Linear(K, N), torch.nn.Linear(N, M)).cuda()
    compiled = torch.compile(model, options=TUNED | {"triton.cudagraphs": True})
    with torch.no_grad(), fp32_matmul("ieee"):
        for _ in range(5):
            x = make(M, K)
            torch.compiler.cudagraph_mark_step_begin()
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)
            model[0].weight.mul_(1.5)  # split in each run, so that it is noticed


def test_cpp_wrapper():
    options = {"cpp_wrapper": True, "shape_padding": False}
    model, x = torch.nn.Linear(K, N).cuda(), make(M, K)
    with torch.no_grad(), count_under() as report:
        y = torch.compile(model, options=options)(x)
    assert outcomes(report) == {COMPILED}
    assert torch.equal(y, ops.linear(x, model.weight, model.bias, "ieee"))
