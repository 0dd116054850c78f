"""Calls that are as an earlier one was: what is not done again, and what is."""

import inspect
import math

import pytest
import torch
from torch.autograd import forward_ad
from torch.nn import functional

from cutlass_fused.programs import epilogue as module
from cutlass_fused.programs import traced
from cutlass_fused.programs.epilogue import epilogue

M, N, K = 6, 5, 8


def make_gated():
    def gated(acc, bias, gate=None, slope=0.1):
        y = functional.leaky_relu(acc + bias, slope)
        return y if gate is None else y * gate

    return epilogue(gated)


def make(dtype=torch.float32, m=M, **options):
    torch.manual_seed(5)
    options = {"dtype": dtype} | options
    return [torch.randn(*shape, **options) for shape in ((m, K), (N, K), (N,), (m, 1))]


def compose(x, weight, bias, gate=None, slope=0.1):
    y = functional.leaky_relu(x @ weight.t() + bias, slope)
    return y if gate is None else y * gate


def refuse(*args, **kwargs):
    raise AssertionError("done again")


@pytest.fixture
def nothing_found(monkeypatch):
    """What finds a call's program, and checks its arguments, is not there."""

    def hide():
        for name in ("check_matrices", "check_operand", "find_kind", "find_text", "find_recorded"):
            monkeypatch.setattr(module, name, refuse)
        # In torch.autograd.Function.apply.
        monkeypatch.setattr(inspect, "signature", refuse)
        monkeypatch.setattr(traced, "_identify", refuse)

    return hide


@pytest.mark.parametrize("requires_grad", [False, True])
def test_found_once(nothing_found, requires_grad):
    """For other rows too, and other tensors."""
    gated = make_gated()
    for m in (M, 3, 1, 0, 7):
        if m == 3:
            gated(*make(m=1)[:2], bias=make()[2], gate=make(m=1)[3])
            leaves = make(m=1, requires_grad=True)
            gated(*leaves[:2], bias=leaves[2], gate=leaves[3])
            nothing_found()
        tensors = make(m=m, requires_grad=requires_grad)
        x, weight, bias, gate = tensors
        y, expected = gated(x, weight, bias=bias, gate=gate), compose(*tensors)
        torch.testing.assert_close(y, expected)
        if requires_grad:
            grads = (torch.autograd.grad(each.sum(), tensors) for each in (y, expected))
            for one, other in zip(*grads, strict=True):
                torch.testing.assert_close(one, other)


def make_telling():
    """Of which each result tells all that a function can know of its arguments."""

    def telling(acc, a=3.0, b=3.0):
        def tell(value):
            if value is None:
                return 5.0
            if not isinstance(value, torch.Tensor):
                return 7.0 * value * {int: 2, float: 3, bool: 5}[type(value)]
            sizes = (value.shape == acc.shape, value.shape[-1:] == acc.shape[-1:], value.dim())
            return value * (11 + hash(sizes) % 97)

        return acc + 2 * tell(a) + tell(b)

    return epilogue(telling)


def test_one_row():
    """What is a tile beside more rows is a row of columns there."""
    made = make_telling()
    for m in (M, 1, M, 1):
        x, weight, *_ = make(m=m)
        tile = torch.rand(m, N)
        assert torch.equal(made(x, weight, a=tile), make_telling()(x, weight, a=tile))


def test_leading_dimensions():
    made, (x, weight, bias, gate) = make_telling(), make()
    for leading in [(M,), (), (1,), (2, 3), (3, 2), (1, M), (M,), (1, 1), (M,), (0,), (3, 0)]:
        count = math.prod(leading)
        each = x[:count].reshape(*leading, K)
        tile = torch.rand(*leading, N)
        for a in (gate[:count].reshape(*leading, 1), gate[0], gate[0, 0], bias, tile, None, 3.0):
            operands = {"a": a, "b": bias}
            assert torch.equal(
                made(each, weight, **operands), make_telling()(each, weight, **operands)
            )


def test_numbers():
    """Equal ones may be others, and None is not what is left to its default."""
    made, (x, weight, *_) = make_telling(), make()
    infinite = epilogue(lambda acc, a: acc.abs() / a)
    for _ in range(2):
        for operands in ({"a": 1}, {"a": True}, {"a": 1.0}, {"b": 1}, {"a": 1, "b": 1.0}):
            assert torch.equal(made(x, weight, **operands), make_telling()(x, weight, **operands))
        for operands in ({}, {"a": None}, {"b": None}):
            assert torch.equal(made(x, weight, **operands), make_telling()(x, weight, **operands))
        assert (infinite(x, weight, a=0.0) == math.inf).all()
        assert (infinite(x, weight, a=-0.0) == -math.inf).all()
        assert infinite(x, weight, a=math.nan).isnan().all()


def test_what_a_call_depends_on():
    """In turns: each call gives what it gives alone."""
    made, (x, weight, a, b) = make_telling(), make()
    half = [each.bfloat16() for each in (x, weight, a, b)]
    wide = [each.double() for each in (x, weight, a, b)]
    calls = [
        ((x, weight), {"a": a}),
        ((x, weight), {"b": a}),
        ((x, weight), {"a": a, "b": b}),
        ((x, weight), {"b": b, "a": a}),
        ((x, weight), {"a": b, "b": a}),
        ((x, weight), {"a": b.sum(), "b": a[None]}),
        ((x, weight), {"a": a, "precision": "tf32"}),
        ((x, weight), {"a": a.double().sum(), "b": b}),
        ((x, weight), {"a": a.bfloat16()}),
        ((x[:, 1:], weight[:, 1:]), {"a": a}),
        ((x, weight[1:]), {"a": a[1:]}),
        (half[:2], {"a": half[2]}),
        (half[:2], {"a": a}),
        (half[:2], {"a": half[2], "out_dtype": torch.float32}),
        ((half[0], weight), {"a": half[2]}),
        (wide[:2], {"a": wide[2], "b": wide[3]}),
        ((x.to("meta"), weight.to("meta")), {"a": a.to("meta")}),
    ]
    alone = [make_telling()(*matrices, **options) for matrices, options in calls]
    for _ in range(3):
        for (matrices, options), expected in zip(calls, alone, strict=True):
            y = made(*matrices, **options)
            assert (y.dtype, y.device) == (expected.dtype, expected.device)
            assert y.is_meta or torch.equal(y, expected)


def test_gradients_that_are_asked_for():
    gated = make_gated()
    for wanted in (0b0000, 0b0010, 0b1111, 0b0001, 0b0100, 0b1111, 0b1010, 0b1001, 0b1011, 0):
        tensors = [each.requires_grad_(bool(wanted >> i & 1)) for i, each in enumerate(make())]
        x, weight, bias, gate = tensors
        for is_enabled in (True, False, True):
            with torch.set_grad_enabled(is_enabled):
                y = gated(x, weight, bias=bias, gate=gate)
            assert y.requires_grad == (is_enabled and wanted > 0)
        leaves = [each for each in tensors if each.requires_grad]
        if leaves:
            expected = torch.autograd.grad(compose(*tensors).sum(), leaves)
            for found, each in zip(torch.autograd.grad(y.sum(), leaves), expected, strict=True):
                torch.testing.assert_close(found, each)


def test_setting(monkeypatch):
    """A precision that is not given is asked for in every call."""
    precisions = []
    op = module._linear_epilogue_op
    gated, (x, weight, bias, _) = make_gated(), make()

    def run(*arguments):
        precisions.append(arguments[4])
        return op(*arguments)

    monkeypatch.setattr(module, "_linear_epilogue_op", run)
    before = torch.get_float32_matmul_precision()
    try:
        for setting in ("highest", "high", "highest"):
            torch.set_float32_matmul_precision(setting)
            gated(x, weight, bias=bias)
    finally:
        torch.set_float32_matmul_precision(before)
    assert precisions == ["ieee", "tf32", "ieee"]


def test_refused_afterwards():
    """In the words of the first call."""
    gated, (x, weight, bias, gate) = make_gated(), make()
    good = (
        ((x, weight), {"bias": bias, "gate": gate}),
        ((x[:1], weight), {"bias": bias[None], "gate": None}),
    )
    nested = torch.nested.nested_tensor([x, x])
    quantized = torch.quantize_per_tensor(bias, 0.1, 0, torch.qint8)
    for matrices, operands in (
        *[((x, weight), {"more": gate}), ((x, weight), {"slope": gate})],
        *[((x, weight), {"gate": each}) for each in ("no", gate[:3], gate.long(), nested)],
        *[((x, weight), {"bias": each}) for each in (bias[:3], bias.to("meta"), quantized)],
        *[((x, weight), {"bias": each.to_sparse()}) for each in (bias, gate)],
        *[((each, weight), {}) for each in (x[:3], x.to_sparse(), nested, x.double(), x.sum())],
        *[((each, weight), {}) for each in (x[:, 1:], x.to("meta"), x.long(), x.to_mkldnn())],
        *[((x, each), {}) for each in (weight[:, 1:], weight[0], weight.double(), nested)],
        *[((x, each), {}) for each in (weight.to("meta"), weight.to_sparse(), weight[1:])],
        # Beside one row of two dimensions this bias is one.
        ((x[0], weight), {"bias": bias[None], "gate": None}),
        ((x, weight), {"precision": "no"}),
        ((x, weight), {"out_dtype": torch.float64}),
    ):
        operands = {"bias": bias, "gate": gate} | operands
        with pytest.raises((TypeError, ValueError, RuntimeError)) as expected:
            make_gated()(*matrices, **operands)
        for _ in range(2):
            with pytest.raises(expected.type) as found:
                gated(*matrices, **operands)
            assert str(found.value) == str(expected.value)
            for others, options in good:
                gated(*others, **options)
    with pytest.raises(TypeError, match="bias must be given, got no such operand"):
        gated(x, weight, gate=gate)


def test_transforms_afterwards(monkeypatch):
    """They find nothing of an eager call, nor leave anything for one."""
    gated, (x, weight, bias, gate) = make_gated(), make(torch.float64)
    expected = compose(x, weight, bias, gate)
    for _ in range(2):
        torch.testing.assert_close(gated(x, weight, bias=bias, gate=gate), expected)
        _, tangent = torch.func.jvp(lambda x: gated(x, weight, bias=bias, gate=gate), (x,), (x,))
        torch.testing.assert_close(
            tangent, torch.func.jvp(lambda x: compose(x, weight, bias, gate), (x,), (x,))[1]
        )
        mapped = torch.func.vmap(lambda x: gated(x, weight, bias=bias, gate=gate))
        torch.testing.assert_close(mapped(x[None])[0], expected)
        # The op has no tangents, though on the CPU its parts have.
        with forward_ad.dual_level(), monkeypatch.context() as patch:
            patch.setattr(module, "_linear_epilogue_op", refuse)
            y = gated(forward_ad.make_dual(x, x), weight, bias=bias, gate=gate)
            torch.testing.assert_close(forward_ad.unpack_dual(y).tangent, tangent)


def test_traced_afterwards():
    gated, tensors = make_gated(), make(requires_grad=True)[:3]

    def call(x, weight, bias):
        return gated(x, weight, bias=bias)

    for _ in range(2):
        call(*tensors)
        with pytest.raises(RuntimeError, match="must be called under torch.no_grad"):
            torch.jit.trace(call, tuple(tensors), check_trace=False)
    before = len(gated.seen)
    with torch.no_grad():
        torch.jit.trace(call, tuple(tensors), check_trace=False)
    assert len(gated.seen) == before


def test_left_of_a_transform():
    """A tensor that outlives it counts as the one within."""
    gated, (x, weight, bias, gate) = make_gated(), make()
    weight.requires_grad_()
    kept = []
    torch.func.grad(lambda x: (kept.append(x), x.sum())[1])(x)
    for each in (x, *kept, x, *kept):
        y = gated(each, weight, bias=bias, gate=gate)
        torch.testing.assert_close(y, compose(x, weight, bias, gate))
        (found,) = torch.autograd.grad(y.sum(), weight)
        expected = torch.autograd.grad(compose(x, weight, bias, gate).sum(), weight)
        torch.testing.assert_close(found, *expected)


def test_memory_is_bounded():
    scaled = epilogue(lambda acc, s=None: acc if s is None else acc * s)
    x, weight, *_ = make()
    for n in range(1, 600):
        scaled(x, weight[:1].expand(n, K))
    assert 0 < len(scaled.seen) <= 256


def test_programs_are_bounded():
    """A number that is another one in each call, and rows of another number of columns: what comes
    again behind many others is right."""
    scaled = epilogue(lambda acc, s: (acc * s).softmax(-1))
    x, weight, *_ = make()
    weight = weight.detach().requires_grad_()
    for turn in range(2):
        for i in range(600):
            scale = 1.0 + i / 7
            if turn == 0 or i % 60 == 0:
                y = scaled(x, weight, s=scale)
            if i % 60 == 0:
                expected = ((x @ weight.t()) * scale).softmax(-1)
                torch.testing.assert_close(y, expected)
                ours = torch.autograd.grad(y.square().sum(), weight)
                theirs = torch.autograd.grad(expected.square().sum(), weight)
                torch.testing.assert_close(ours, theirs)
    kept = scaled.traced._programs, scaled.traced._gradients
    assert all(0 < len(each) <= 512 for each in kept)
