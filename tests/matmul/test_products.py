"""The products that PyTorch is asked for, one op at a time: right, and by the ops of this package.

40 x 64 x 48 (M x K x N): K is beyond what is left to cuBLAS for being short, and no two are equal.
"""

import pytest
import torch
from switched import check_like_eager, count_under, outcomes

from cutlass_fused import fp32_matmul
from cutlass_fused.matmul import _left

M, N, K, BATCHES = 40, 48, 64, 3


def make(*shape):
    return torch.randn(shape)


LAYOUTS = {
    "rows": lambda *shape: make(*shape),
    "columns": lambda *shape: make(*shape[:-2], shape[-1], shape[-2]).mT,
    "strided": lambda *shape: make(*shape[:-1], 2 * shape[-1])[..., ::2],
    "offset": lambda *shape: make(*shape[:-1], shape[-1] + 3)[..., 3:],
    "one row for all": lambda *shape: make(*shape[:-2], 1, shape[-1]).expand(shape),
}


@pytest.mark.parametrize("b", LAYOUTS)
@pytest.mark.parametrize("a", LAYOUTS)
def test_layouts(a, b):
    check_like_eager(torch.mm, LAYOUTS[a](M, K), LAYOUTS[b](K, N), served=["mm"])


@pytest.mark.parametrize("word", ["ieee", "tf32"])
def test_words_reach_the_op(word, monkeypatch):
    words = []
    monkeypatch.setattr(
        "cutlass_fused.matmul._served._linear", lambda a, b, c, w: words.append(w) or a @ b.t()
    )
    with count_under(word):
        make(M, K) @ make(K, N)
    assert words == [word]


# c of addmm: of every shape that broadcasts to (M, N).
C_SHAPES = [(N,), (1, N), (M, N), (M, 1), (1,), (1, 1), ()]


@pytest.mark.parametrize("beta, alpha", [(1, 1), (0.5, 1), (1, -2), (2, 0.5), (0, 1), (0, 3)])
@pytest.mark.parametrize("shape", C_SHAPES)
def test_addmm(shape, beta, alpha):
    def addmm(c, a, b):
        return torch.addmm(c, a, b, beta=beta, alpha=alpha)

    check_like_eager(addmm, make(*shape), make(M, K), make(K, N), served=["addmm"])


@pytest.fixture
def calls(monkeypatch):
    """The ops that kernels in Python call, by name, with the shape of what is added."""
    calls = []

    def watch(module, name, added):
        op = getattr(torch.ops.cutlass_fused, name).default

        def call(*args):
            c = args[added]
            calls.append((name, None if c is None else tuple(c.shape)))
            return op(*args)

        monkeypatch.setattr(f"cutlass_fused.matmul.{module}._{name}", call)

    watch("_epilogue", "linear", 2)
    watch("_epilogue", "addmm", 0)
    watch("_batches", "baddbmm", 0)
    return calls


def test_addmm_is_one_call(calls):
    """A row for all is a bias; nothing is added by PyTorch behind the product."""
    rows = make(N), make(1, N), make(N).expand(M, N), make(2 * N)[::2]
    others = make(M, N), make(M, 1), make(1), make()
    for c in (*rows, *others):
        with count_under():  # else the op is called by C++
            torch.addmm(c, make(M, K), make(K, N))
    shapes = [tuple(c.shape) for c in others]
    assert calls == [("linear", (N,))] * 4 + [("addmm", shape) for shape in shapes]
    calls.clear()
    for beta, alpha in ((0, 1), (0, 2), (2, 1), (1, -1)):
        with count_under():
            torch.addmm(rows[0], make(M, K), make(K, N), beta=beta, alpha=alpha)
    assert calls == [("linear", None)] + [("addmm", (N,))] * 3


def test_baddbmm_is_one_call(calls):
    """Of matrices where it is one product: then of all rows, if what is added lies so."""
    x, y, b = make(BATCHES, M, K), make(BATCHES, K, N), make(K, N).expand(BATCHES, K, N)
    cases = [
        (make(BATCHES, M, N), x, y, ("baddbmm", (BATCHES, M, N))),
        (make(N), x, y, ("baddbmm", (N,))),
        (make(M, N), x[:1], y[:1], ("addmm", (M, N))),
        (make(1, M, 1), x[:1], y[:1], ("addmm", (M, 1))),
        (make(1, 1, N), x[:1], y[:1], ("linear", (N,))),
        (make(N), x, b, ("linear", (N,))),
        (make(BATCHES, M, N), x, b, ("addmm", (BATCHES * M, N))),
        (make(), x, b, ("addmm", ())),
        (make(M, N), x, b, ("baddbmm", (M, N))),
        (make(M, BATCHES, N).transpose(0, 1), x, b, ("baddbmm", (BATCHES, M, N))),
    ]
    for c, left, right, expected in cases:
        calls.clear()
        with count_under():
            torch.baddbmm(c, left, right)
        assert calls == [expected]


def test_scales_of_other_types():
    """Those that PyTorch takes beside fp32, and those that it refuses."""
    operands = make(M, N), make(M, K), make(K, N)
    for switched in (count_under(), fp32_matmul("ieee")):
        with switched:
            y = torch.addmm(*operands, beta=True, alpha=True)
            assert torch.equal(y, torch.addmm(*operands))
            with pytest.raises(RuntimeError):
                torch.addmm(*operands, alpha=1j)


@pytest.mark.parametrize("beta, alpha", [(1, 1), (0.5, 1), (1, -2), (2, 0.5), (0, 1), (0, 3)])
@pytest.mark.parametrize("shape", [(BATCHES, M, N), (BATCHES, 1, N), (BATCHES, M, 1), (M, N), ()])
def test_baddbmm(shape, beta, alpha):
    def baddbmm(c, a, b):
        return torch.baddbmm(c, a, b, beta=beta, alpha=alpha)

    operands = make(BATCHES, M, K), make(BATCHES, K, N)
    check_like_eager(baddbmm, make(*shape), *operands, served=["baddbmm"])


@pytest.mark.parametrize("shape", C_SHAPES)
@pytest.mark.parametrize("alpha", [1, 2])
def test_nan_in_c_is_nothing_where_beta_is_0(shape, alpha):
    c, x, y = torch.full(shape, torch.nan), make(BATCHES, M, K), make(BATCHES, K, N)
    scales = {"beta": 0, "alpha": alpha}
    for switched in (fp32_matmul("ieee"), count_under()):
        with switched as report:
            assert torch.addmm(c, x[0], y[0], **scales).isfinite().all()
            assert torch.baddbmm(c, x, y, **scales).isfinite().all()
            assert torch.baddbmm(c, x[:1], y[:1], **scales).isfinite().all()
    assert outcomes(report) == {"served"}


@pytest.mark.parametrize("use_gelu", [False, True])
@pytest.mark.parametrize("c", [(N,), (M, N)])
def test_addmm_activation(c, use_gelu):
    def activation(c, a, b):
        return torch._addmm_activation(c, a, b, use_gelu=use_gelu)

    check_like_eager(activation, make(*c), make(M, K), make(K, N), served=["_addmm_activation"])


def test_relu_of_minus_infinity_is_0():
    c = torch.full((N,), -torch.inf)
    with count_under():
        assert not torch._addmm_activation(c, make(M, K), make(K, N)).any()


# A batch of one, and the same b for all, are one product.
ONE_PRODUCT = [
    lambda: (make(1, M, K), make(1, K, N)),
    lambda: (make(1, K, M).mT, make(1, N, K).mT),
    lambda: (make(BATCHES, M, K), make(K, N).expand(BATCHES, K, N)),
    lambda: (make(M, BATCHES, K).transpose(0, 1), make(K, N).expand(BATCHES, K, N)),
]


@pytest.mark.parametrize("operands", ONE_PRODUCT)
def test_batches_that_are_one_product(operands):
    a, b = operands()
    check_like_eager(torch.bmm, a, b, served=["bmm"])

    def baddbmm(c, a, b):
        return torch.baddbmm(c, a, b, beta=2, alpha=0.5)

    for shape in ((len(a), M, N), (M, N), (N,), (len(a), 1, 1)):
        check_like_eager(baddbmm, make(*shape), a, b, served=["baddbmm"])


@pytest.mark.parametrize("allowed", ["ieee", "tf32"])
def test_batches_of_different_matrices(allowed):
    """By the op for batches, in any order of operands."""
    x, weight = make(BATCHES, M, K), make(BATCHES, K, N)
    for a in (x, x.mT.contiguous().mT):
        for b in (weight, weight.mT.contiguous().mT):
            check_like_eager(torch.bmm, a, b, served=["bmm"], allowed=allowed)


def test_a_batch_of_one_is_a_product_of_matrices(monkeypatch):
    """In any order of operands: the op reads transposed matrices, and copies larger views."""
    given = []

    def linear(x, weight, *others):
        given.append((x, weight))
        return torch.ops.cutlass_fused.linear(x, weight, *others)

    monkeypatch.setattr("cutlass_fused.matmul._batches._linear", linear)
    a, b = make(1, K, M).mT, make(1, N, K).mT
    with count_under():  # else the op is called by C++
        torch.bmm(a, b)
    ((x, weight),) = given
    assert x.stride() == a[0].stride() and weight.stride() == b[0].t().stride()


# What has no product, or is left by its sizes. (op, operands, reason)
EMPTY = [
    (torch.mm, (make(0, K), make(K, N)), _left.EMPTY),
    (torch.mm, (make(M, K), make(K, 0)), _left.EMPTY),
    (torch.mm, (make(M, 0), make(0, N)), _left.EMPTY),
    (torch.addmm, (make(N), make(M, 0), make(0, N)), _left.EMPTY),
    (torch.bmm, (make(0, M, K), make(0, K, N)), _left.EMPTY),
    (torch.bmm, (make(2, M, 0), make(2, 0, N)), _left.EMPTY),
    (torch.baddbmm, (make(2, M, N), make(2, M, 0), make(2, 0, N)), _left.EMPTY),
    (torch.mm, (make(M, 32), make(32, N)), _left.SHORT),
]


@pytest.mark.parametrize("op, operands, reason", EMPTY)
def test_what_is_left_by_its_sizes(op, operands, reason):
    with count_under() as report:
        y = op(*operands)
    assert torch.equal(y, op(*operands))
    assert outcomes(report) == {reason}


def test_nothing_is_left_for_its_speed_where_pytorch_is_less_exact():
    for _, operands, reason in EMPTY:
        if reason == _left.SHORT:
            check_like_eager(torch.mm, *operands, served=["mm"], allowed="tf32")


def test_alpha_of_0_reads_no_operand():
    a = torch.full((M, K), torch.nan)
    with count_under() as report:
        assert torch.equal(torch.addmm(make(N), a, make(K, N), alpha=0, beta=0), torch.zeros(M, N))
    assert outcomes(report) == {_left.ALPHA}


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.complex64]
)
def test_other_dtypes_are_left(dtype):
    a, b = (10 * make(M, K)).to(dtype), (10 * make(K, N)).to(dtype)
    with count_under() as report:
        y = a @ b
    assert torch.equal(y, a @ b) and outcomes(report) == {_left.OTHER_DTYPE}


def test_names_are_kept_above_the_kernels():
    a, b = make(M, K).rename("M", "K"), make(K, N).rename("K", "N")
    with count_under() as report:
        assert (a @ b).names == ("M", "N")
    assert outcomes(report) == {"served"}


# What PyTorch refuses: its own message comes out.
BAD = [
    lambda: torch.mm(make(M, K), make(N, K)),
    lambda: torch.mm(make(M, K), make(K, N).double()),
    lambda: torch.mm(make(M, K), make(K)),
    lambda: torch.bmm(make(2, M, K), make(3, K, N)),
    lambda: torch.bmm(make(2, M, K), make(2, N, K)),
    lambda: torch.addmm(make(M), make(M, K), make(K, N)),
    lambda: torch.addmm(make(N).double(), make(M, K), make(K, N)),
    lambda: torch.addmm(make(N), make(M, K).double(), make(K, N)),
    lambda: torch.addmm(make(M, N), make(M, K).double(), make(K, N)),
    lambda: torch.addmm(make(2, M, N), make(M, K), make(K, N)),
    lambda: torch.baddbmm(make(M), make(1, M, K), make(1, K, N)),
    lambda: torch.mm(make(M, K), make(K, N), out=make(M, N).double()),
    lambda: torch.mm(make(M, K), make(K, N), out=make(1, N).expand(M, N)),
    lambda: make(N).addmm_(make(M, K), make(K, N)),
    lambda: make(1, N).addmm_(make(M, K), make(K, N)),
]


@pytest.mark.parametrize("call", BAD)
def test_what_pytorch_refuses(call):
    with pytest.raises(Exception) as eager:  # noqa: B017 (RuntimeError or ValueError, as in eager)
        call()
    for switched in (count_under(), fp32_matmul("ieee")):
        with switched, pytest.raises(type(eager.value)) as ours:
            call()
        assert str(ours.value) == str(eager.value)
