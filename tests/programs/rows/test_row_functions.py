"""Functions that add and compare along rows: programs of them, beside PyTorch's own ops."""

import functools
import math

import pytest
import torch
import torch.nn.functional as F
import traced
from row_cases import COMPOSED, ROW_CASES, find_row_gradient, find_row_program

from cutlass_fused.programs.epilogue import epilogue
from cutlass_fused.programs.parse import parse
from cutlass_fused.programs.program import Acc, run_whole
from cutlass_fused.programs.recorded import NOTHING
from cutlass_fused.programs.traced import TracedFunction
from cutlass_fused.programs.tracing.layout import ROWS, join, relayout
from cutlass_fused.programs.tracing.trace import Refusal

ops = torch.ops.cutlass_fused
M, N, K = 7, 48, 12


def make(name, dtype=torch.float64, leading=(M,)):
    case = ROW_CASES[name]
    torch.manual_seed(4)
    x = torch.randn(*leading, K, dtype=dtype)
    weight = torch.randn(N, K, dtype=dtype)
    operands = traced.make_tensors(case, dtype, (M, N))[1:]
    return [each.requires_grad_() for each in (x, weight, *operands)]


def make_runs(name):
    case = ROW_CASES[name]
    made = epilogue(case.function)

    def ours(x, weight, *operands):
        return made(x, weight, **dict(zip(case.operands, operands, strict=True)))

    def eager(x, weight, *operands):
        return case.function(x @ weight.t(), **dict(zip(case.operands, operands, strict=True)))

    return ours, eager


def as_list(results):
    return list(results) if isinstance(results, tuple) else [results]


@pytest.mark.parametrize("name", ROW_CASES)
def test_program(name):
    """What the program computes is what the function does, and its text is read as it was."""
    case, traced_program = ROW_CASES[name], find_row_program(name, N)
    program = traced_program.program
    assert parse(program.text) == program and program.columns == N
    for tensors in (
        traced.make_tensors(case, torch.float64, (M, N)),
        traced.make_tensors(case, torch.float64, (M, N), torch.full((M, N), 900.0)),
    ):
        expected = traced.call(case, tensors)
        for found, each, output in zip(
            run_whole(program, tensors[0], tensors[1:]),
            expected,
            traced_program.outputs,
            strict=True,
        ):
            found = found.squeeze(-1) if output.is_row else found
            torch.testing.assert_close(found, each, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ROW_CASES)
def test_gradients(name):
    """Also second ones; and which of the first are programs."""
    ours, eager = make_runs(name)
    tensors = make(name)
    found, expected = as_list(ours(*tensors)), as_list(eager(*tensors))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
    grads = [torch.randn_like(each) for each in expected]
    both = []
    for results in (found, expected):
        first = torch.autograd.grad(results, tensors, grads, create_graph=True)
        total = sum(each.square().sum() for each in first)
        second = torch.autograd.grad(total, tensors, allow_unused=True, materialize_grads=True)
        both.append([*first, *second])
    for one, other in zip(*both, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-7)
    if name in COMPOSED:
        with pytest.raises(Refusal):
            find_row_gradient(name, N)
    else:
        gradient = find_row_gradient(name, N)
        assert gradient.is_first_order and parse(gradient.program.text) == gradient.program


MAXIMA = {
    "max": lambda acc: acc.max(dim=1).values,
    "max of sums": lambda acc: acc * acc.unflatten(1, (-1, 2)).sum(2).max(1, keepdim=True).values,
    "min": lambda acc: acc.unflatten(1, (4, -1)).min(dim=2).values.exp(),
    "max of max": lambda acc: acc.unflatten(1, (8, -1)).max(2).values.max(1).values,
    "max of windows": lambda acc: F.max_pool1d(F.relu(acc), 2).max(1, keepdim=True).values,
    "windows": lambda acc: F.max_pool1d(acc, 4),
    "windows of means": lambda acc: F.max_pool1d(F.avg_pool1d(acc, 2), 4),
    "adaptive": lambda acc: F.adaptive_max_pool1d(acc.unsqueeze(1), 2).squeeze(1),
    "squares": lambda acc: F.max_pool2d(acc.view(-1, 1, 4, 4), (1, 2)).flatten(1),
    "of one": lambda acc: acc.sum(1, keepdim=True).max(1).values,
    "of what lies elsewhere": lambda acc: (acc - acc.mean(1, keepdim=True)).max(1).values,
    "of expanded": lambda acc: (
        acc.max(1, keepdim=True).values.expand(-1, 4).unflatten(1, (-1, 1)).max(2).values
    ),
    "windows of one": lambda acc: (
        F.max_pool1d(acc.unflatten(1, (8, 2)).amax(2), 1).max(1, keepdim=True).values * acc
    ),
    "adaptive windows of one": lambda acc: F.adaptive_max_pool1d(
        acc.unflatten(1, (8, 2)).sum(2), 8
    ).sum(1),
    "means of one": lambda acc: F.avg_pool1d(acc.unflatten(1, (8, 2)).sum(2), 1).square().sum(1),
}


@pytest.mark.parametrize("name", MAXIMA)
def test_gradients_of_equal_elements(name):
    """To the first of equal elements, and where NaN has been taken, as PyTorch has it."""
    function = MAXIMA[name]
    gradient = TracedFunction(name, function).find_gradient((), (True,), n=16)
    acc = torch.randint(-3, 4, (20, 16), generator=torch.Generator().manual_seed(2)).double()
    acc[1, [5, 6, 14]], acc[2], acc[3, 2:4] = math.nan, math.nan, math.inf
    acc[4], acc[5] = -math.inf, 0.0
    y = function(acc.requires_grad_())
    grad = torch.randn_like(y)
    (expected,) = torch.autograd.grad(y, acc, grad)
    groups = 1 if grad.dim() == 1 else grad.shape[1]
    spread = grad.view(20, groups).repeat_interleave(-(-16 // groups), 1)[:, :16]
    given = acc.detach() if gradient.first == NOTHING else spread
    read = [acc.detach() if each == Acc() else spread for each in gradient.operands]
    (found,) = run_whole(gradient.program, given, read)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12, equal_nan=True)


class Scattered(torch.autograd.Function):
    """The largest of each pair, with a gradient by `scatter(x, indices, grad)`."""

    @staticmethod
    def forward(ctx, x, scatter):
        largest, ctx.indices = x.unflatten(1, (-1, 2)).max(2, keepdim=True)
        ctx.scatter, ctx.shape = scatter, x.shape
        return largest.flatten(1)

    @staticmethod
    def backward(ctx, grad):
        zeros = grad.new_zeros(*grad.shape, 2)
        return ctx.scatter(zeros, ctx.indices, grad.unsqueeze(2)).reshape(ctx.shape), None


SCATTERED = {
    "along another dimension": lambda x, i, grad: x.transpose(1, 2).scatter(1, i.mT, grad.mT),
    "into ones": lambda x, i, grad: (x + 1).scatter(2, i, grad),
    "by other indices": lambda x, i, grad: x.flatten(1).scatter(1, i.flatten(1), grad.flatten(1)),
    "of a wider source": lambda x, i, grad: x.scatter(2, i, grad.expand(-1, -1, 2)),
}
NO_WORDS = {
    "repeated": lambda acc: acc.unsqueeze(1).expand(-1, 4, -1).max(2).values,
    "repeated windows": lambda acc: F.max_pool1d(acc.unsqueeze(1).expand(-1, 4, -1), 16).squeeze(2),
    "repeated means": lambda acc: F.avg_pool1d(acc.sum(1, keepdim=True).expand(-1, 16), 4),
    "of one column": lambda acc: acc.sum(1, keepdim=True).expand(-1, 4).max(1).values,
    "sorted": lambda acc: acc + torch.zeros_like(acc).scatter(1, acc.argsort(1)[:, :1], 1.0),
    "indices": lambda acc: acc * acc.max(1, keepdim=True).indices,
} | {
    name: functools.partial(lambda scatter, acc: Scattered.apply(acc, scatter), scatter)
    for name, scatter in SCATTERED.items()
}


@pytest.mark.parametrize("name", NO_WORDS)
def test_places_that_no_word_tells(name):
    with pytest.raises(Refusal):
        TracedFunction(name, NO_WORDS[name]).find_gradient((), (True,), n=16)


def test_a_scatter_of_places():
    """What those that are refused are beside."""
    function = functools.partial(
        lambda scatter, acc: Scattered.apply(acc, scatter),
        lambda x, i, grad: x.scatter(2, i, grad),
    )
    gradient = TracedFunction("scattered", function).find_gradient((), (True,), n=16)
    assert "row_first" in gradient.program.text


@pytest.mark.parametrize("name", ["three", "layer_norm", "amax"])
def test_gradients_of_some(name):
    """Of some inputs; and some results without one."""
    ours, eager = make_runs(name)
    tensors = make(name)
    tensors[1].requires_grad_(False)
    inputs = [tensors[0], *tensors[2:]]
    for chosen in range(len(as_list(eager(*tensors)))):
        found, expected = (as_list(run(*tensors))[chosen] for run in (ours, eager))
        grad = torch.randn_like(expected)
        grads = (torch.autograd.grad(each, inputs, grad) for each in (found, expected))
        for one, other in zip(*grads, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


SPECIAL = ("amax", "amin", "log_sum_exp", "softmax", "log_softmax", "sum", "layer_norm", "mean")


@pytest.mark.parametrize("name", SPECIAL)
def test_special_values(name):
    """Rows of infinities and NaN, alone and among numbers."""
    case, program = ROW_CASES[name], find_row_program(name, N).program
    acc = torch.randn(12, N, generator=torch.Generator().manual_seed(1))
    inf, nan = math.inf, math.nan
    for row, values in enumerate(
        ([inf], [-inf], [nan], [inf, -inf], [inf, nan], [inf] * N, [-inf] * N, [nan] * N, [0.0] * N)
    ):
        acc[row, : len(values)] = torch.tensor(values)
    tensors = traced.make_tensors(case, torch.float32, acc.shape, acc)
    for found, each in zip(
        run_whole(program, tensors[0], tensors[1:]), traced.call(case, tensors), strict=True
    ):
        torch.testing.assert_close(found.view_as(each), each, equal_nan=True)


@pytest.mark.parametrize("name", ["log_sum_exp", "softmax", "group_norm", "three", "stages"])
@pytest.mark.parametrize("leading", [(), (0,), (1,), (2, 3)])
def test_leading_dimensions(name, leading):
    case = ROW_CASES[name]
    ours, _ = make_runs(name)
    x, weight, *operands = make(name, torch.float32, leading)
    found = as_list(ours(x, weight, *operands))
    rows = (x.reshape(-1, K) @ weight.t()).detach()
    expected = traced.call(case, [rows, *(each.detach() for each in operands)])
    for one, other in zip(found, expected, strict=True):
        other = other.reshape((*leading, *other.shape[1:]))
        torch.testing.assert_close(one.detach(), other, rtol=1e-4, atol=1e-4)


def test_other_numbers_of_columns():
    """A program of each."""
    made = epilogue(lambda acc: F.group_norm(acc, 4))
    x = torch.randn(3, K, dtype=torch.float64)
    for n in (16, 64, 16):
        weight = torch.randn(n, K, dtype=torch.float64)
        torch.testing.assert_close(made(x, weight), F.group_norm(x @ weight.t(), 4))
    one = torch.randn(1, K, dtype=torch.float64)
    made = epilogue(lambda acc: (acc.softmax(1), acc.logsumexp(1), acc.amax(1, keepdim=True)))
    y, z, w = made(x, one)
    torch.testing.assert_close(y, torch.ones(3, 1, dtype=torch.float64))
    torch.testing.assert_close((z, w.squeeze(1)), ((x @ one.t()).squeeze(1),) * 2)


@pytest.mark.parametrize("name", ["log_sum_exp", "softmax", "layer_norm", "window_maximum"])
def test_opcheck(name):
    program = find_row_program(name, N).program
    x, weight, *operands = (each.detach() for each in make(name, torch.float32))
    acc = x @ weight.t()
    torch.library.opcheck(ops.apply_program.default, (acc, operands, program.text))
    torch.library.opcheck(ops.linear_epilogue.default, (x, weight, operands, program.text))
    with pytest.raises(RuntimeError, match="N must be 48, as the program says, got 47"):
        ops.linear_epilogue(x, weight[:-1], operands, program.text)


@pytest.mark.parametrize("name", ["log_sum_exp", "softmax", "three"])
def test_compiled(name):
    torch._dynamo.reset()
    ours, _ = make_runs(name)
    tensors = make(name, torch.float32)
    both = []
    for run in (ours, torch.compile(ours, fullgraph=True)):
        results = as_list(run(*tensors))
        grads = torch.autograd.grad([each.square().sum() for each in results], tensors)
        both.append([*results, *grads])
    for one, other in zip(*both, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_exported():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(K, N)
            self.made = epilogue(lambda acc, bias: (acc + bias).logsumexp(1))

        def forward(self, x):
            return self.made(x, self.linear.weight, bias=self.linear.bias)

    model, x = Model(), torch.randn(M, K)
    with torch.no_grad():
        program = torch.export.export(model, (x,)).module()
        torch.testing.assert_close(program(x), model.linear(x).logsumexp(1))


def test_faults_are_found(monkeypatch):
    """Without the shift, and with a variance of other columns, results differ."""
    from cutlass_fused.programs.tracing import rows

    monkeypatch.setattr(rows.Span, "maximum", lambda self, x: 0.0)
    with pytest.raises(AssertionError):
        test_program("softmax")
    monkeypatch.undo()
    monkeypatch.setattr(rows.Span, "mean", lambda self, x: self.builder.add("mul", x, 0.0))
    with pytest.raises(AssertionError):
        test_program("layer_norm")


REFUSED = {
    "over rows": (lambda z: z - z.sum(0), "adds or compares rows, where a program"),
    "over all": (lambda z: z / z.sum(), "adds or compares rows, where a program"),
    "cumsum": (lambda z: z.softmax(1).cumsum(1), "calls aten.cumsum, which no word"),
    "sort": (lambda z: z.softmax(1).sort(1).values, "calls aten.sort, which no word"),
    "argmax": (lambda z: z - z.argmax(1, keepdim=True), "calls aten.argmax, which no word"),
    "places": (lambda z: z + z.max(1).indices[:, None], "reads where an element lies"),
    "far apart": (
        lambda z: z.view(-1, 4, 12).mean(1).repeat(1, 4),
        "adds or compares columns that do not lie side by side",
    ),
    "overlap": (
        lambda z: F.max_pool1d(z, 3, stride=1, padding=1),
        "pools over other windows than such as divide",
    ),
    "transposed": (lambda z: z.softmax(1).t(), "calls aten.t, which no word"),
    "columns and rows": (lambda z: z.sum(1) + z, "raises RuntimeError"),
    "groups of three": (lambda z: z.view(-1, 4, 12).sum(-1, keepdim=True), r"it must return \(M,"),
    "rows merged": (lambda z: z.view(-1, 12).softmax(1).view_as(z), "moves elements to other"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    function, message = REFUSED[name]
    with pytest.raises(Refusal, match=message):
        epilogue(function)(torch.randn(M, K), torch.randn(N, K))


def test_layouts():
    wide, groups = (ROWS, 1), (ROWS, 8, 1)
    assert relayout((9, 48), wide, (9, 6, 8)) == groups
    assert relayout((9, 6, 8), groups, (9, 48)) == wide
    assert relayout((9, 48), wide, (9, 1, 48, 1)) == (ROWS, 0, 1, 0)
    assert relayout((9, 6, 8), (ROWS, 8, 0), (9, 48)) == wide  # expanded over its own columns
    assert relayout((9, 6, 8), (ROWS, 0, 1), (9, 48)) is None  # repeated
    assert relayout((9, 48), wide, (54, 8)) is None
    assert relayout((9, 48), wide, (3, 3, 48)) is None
    assert join([((9, 48), wide), ((48,), (1,)), ((9, 1), (ROWS, 0))], (9, 48)) == wide
    assert join([((9, 48), wide), ((48,), (8,))], (9, 48)) is None
    assert join([((48, 1), (1, 0)), ((48,), (1,))], (48, 48)) is None
    assert join([((9, 6, 1), (ROWS, 8, 0)), ((48,), (1,))], (9, 6, 48)) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_eps_that_is_left_to_pytorch(dtype):
    """That of float64 is not that of fp32, in which programs are."""
    torch.manual_seed(4)
    x = (torch.randn(M, K) * 1e-4).to(dtype).requires_grad_()
    weight = torch.randn(N, K).to(dtype)
    ours = epilogue(lambda acc: F.rms_norm(acc, (N,)))(x, weight)
    theirs = F.rms_norm(x @ weight.t(), (N,))
    torch.testing.assert_close(ours, theirs)
    grads = [torch.autograd.grad(each.sin().sum(), x)[0] for each in (ours, theirs)]
    scale = grads[1].abs().max()
    torch.testing.assert_close(grads[0] / scale, grads[1] / scale)
