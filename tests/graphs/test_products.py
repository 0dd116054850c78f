"""Products of a graph become calls of our ops, as the switch would serve them."""

import pytest
import torch
from accuracy import matmul_settings
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import cutlass_fused
from cutlass_fused.graphs import _products
from cutlass_fused.matmul import _by_pytorch, _left
from cutlass_fused.matmul._report import COMPILED

M, N, K = 40, 48, 64
A, B, W = (M, K), (K, N), (N, K)
X, Y = (3, M, K), (3, K, N)


def trace(function, shapes, device="cuda", dtype=torch.float32):
    """The graph of the function of tensors of these shapes, which need no GPU."""
    with FakeTensorMode():
        operands = [torch.empty(shape, device=device, dtype=dtype) for shape in shapes]
        return make_fx(function)(*operands)


def replace(traced, word="ieee"):
    _products.replace_products(traced.graph, word)
    traced.graph.lint()
    traced.recompile()
    return traced


def list_ops(traced, *without):
    """What the graph calls, in order, without views."""
    views = (
        "view",
        "sym_size",
        "t",
        "permute",
        "select",
        "unsqueeze",
        "expand",
        "slice",
        "transpose",
        "squeeze",
    )
    called = [n for n in traced.graph.nodes if n.op == "call_function"]
    ops = [n.target._schema.name.partition("::")[2] for n in called]
    return [op for op in ops if op not in (*views, *without)]


# What is called, of operands of which shapes, and which ops stand for it.
SERVED = {
    "mm": (torch.mm, [A, B], ["linear"]),
    "mm, transposed": (lambda a, w: a @ w.t(), [A, W], ["linear"]),
    "mm, both transposed": (lambda a, w: a.t() @ w.t(), [(K, M), W], ["linear"]),
    "addmm": (torch.addmm, [(N,), A, B], ["linear"]),
    "addmm, beta": (lambda c, a, b: torch.addmm(c, a, b, beta=3), [(N,), A, B], ["mul", "linear"]),
    "addmm, beta of 0": (lambda c, a, b: torch.addmm(c, a, b, beta=0), [(N,), A, B], ["linear"]),
    "addmm, alpha": (
        lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=-2),
        [(M, N), A, B],
        ["linear_scale_leaky_relu", "add"],
    ),
    "addmm, scales that are bools": (
        lambda c, a, b: torch.addmm(c, a, b, beta=True, alpha=True),
        [(M, N), A, B],
        ["linear", "add"],
    ),
    "addmm of a column": (torch.addmm, [(M, 1), A, B], ["linear", "add"]),
    "addmm of an expanded row": (
        lambda c, a, b: torch.addmm(c.expand(M, N), a, b),
        [(1, N), A, B],
        ["linear"],
    ),
    "_addmm_activation": (torch._addmm_activation, [(N,), A, B], ["linear", "relu"]),
    "bmm": (torch.bmm, [X, Y], ["bmm"]),
    "bmm of one": (torch.bmm, [(1, M, K), (1, K, N)], ["linear"]),
    "bmm of one matrix": (lambda a, b: a @ b, [X, B], ["linear"]),
    "bmm, expanded": (lambda a, b: torch.bmm(a, b.expand(3, K, N)), [X, B], ["linear"]),
    "baddbmm": (
        lambda c, a, b: torch.baddbmm(c, a, b, beta=0.5, alpha=2),
        [(M, N), X, Y],
        ["bmm", "mul", "add"],
    ),
}
each_served = pytest.mark.parametrize("function, shapes, ops", SERVED.values(), ids=SERVED)


@each_served
def test_ops_of_tensors_on_a_gpu(function, shapes, ops):
    traced = replace(trace(function, shapes))
    views = ("view", "_unsafe_view", "clone", "reshape")
    assert list_ops(traced, *views) == ops
    (y,) = (node.args[0] for node in traced.graph.nodes if node.op == "output")
    assert y.meta["val"].device.type == "cuda"


@each_served
def test_results(function, shapes, ops, on_cpu):
    traced = replace(trace(function, shapes, "cpu"))
    assert not set(list_ops(traced)) & set(_products._OPS.values()) - {"bmm"}
    operands = [torch.randn(shape) for shape in shapes]
    expected = function(*operands)
    y = traced(*operands)
    torch.testing.assert_close(y, expected)
    assert y.stride() == expected.stride()


LEFT = {
    _left.SHORT: (torch.mm, [(M, 32), (32, N)], torch.float32),
    _left.EMPTY: (torch.mm, [(0, K), B], torch.float32),
    _left.ALPHA: (lambda c, a, b: torch.addmm(c, a, b, alpha=0), [(N,), A, B], torch.float32),
    _left.OTHER_DTYPE: (torch.mm, [A, B], torch.bfloat16),
}


@pytest.mark.parametrize("reason", LEFT)
def test_what_is_left(reason):
    function, shapes, dtype = LEFT[reason]
    traced = trace(function, shapes, dtype=dtype)
    before = str(traced.graph)
    with cutlass_fused.matmul_report() as report:
        replace(traced)
    assert str(traced.graph) == before
    assert [outcome for _, _, outcome in report.rows] == [reason]


def test_a_short_k_is_served_where_pytorch_allows_less():
    traced = trace(torch.mm, [(M, 32), (32, N)])
    with matmul_settings("tf32"):
        assert list_ops(replace(traced)) == ["linear"]


def test_products_of_the_cpu_stay():
    traced = replace(trace(torch.mm, [A, B], "cpu"))
    assert list_ops(traced) == ["mm"]


@pytest.mark.parametrize("word", ["ieee", "tf32"])
def test_the_word(word):
    traced = replace(trace(torch.mm, [A, B]), word)
    (node,) = (n for n in traced.graph.nodes if n.target is torch.ops.cutlass_fused.linear.default)
    assert dict(enumerate(node.args)).get(3, "ieee") == word


def test_a_report_counts_products_once():
    traced = trace(lambda a, b: (a @ b, a @ b, (a @ b).relu()), [A, B])
    with cutlass_fused.matmul_report() as report:
        replace(traced)
    assert report.rows == {("mm", (A, B), "served by the graph, when it runs"): 3}
    assert "Compiled into graphs:\n        3 mm 40x64, 64x48\n" in str(report)


def trace_symbols(function, *operands):
    """With sizes that are symbols, and the environment that holds what was asked of them."""
    env = ShapeEnv()
    fake_mode = FakeTensorMode(shape_env=env, allow_non_fake_inputs=True)
    with fake_mode as mode, enable_python_dispatcher():
        fakes = [mode.from_tensor(x, static_shapes=False) for x in operands]
        return make_fx(function)(*fakes), env


def test_symbols(on_cpu):
    """The number of rows is asked for nothing that the symbol does not tell already."""
    x, weight = torch.randn(A), torch.randn(W)
    traced, env = trace_symbols(lambda a, w: a @ w.t(), x, weight)
    with cutlass_fused.matmul_report() as report:
        replace(traced)
    assert list_ops(traced) == ["linear"]
    (((_, shapes, _), _),) = report.rows.items()
    assert all(isinstance(size, str) for shape in shapes for size in shape)
    for rows in (5, 40):
        x = torch.randn(rows, K)
        torch.testing.assert_close(traced(x, weight), x @ weight.t())
    # That K is not short, and nothing else.
    asked = [str(guard.expr) for guard in env.guards if "32" in str(guard.expr)]
    assert len(asked) == 1


def find_positive(x):
    return (x > 0).nonzero()[:, 0]


def pick(at, function):
    """function(operands, indices), of which only the run knows how many there are."""
    return lambda *operands: function(*operands, find_positive(at(*operands)))


ADD = {"beta": 0.5, "alpha": 2}
ROWS, COLUMNS = (lambda *xs: xs[-2][:, 0]), (lambda *xs: xs[-1][0])
UNKNOWN = {
    "M": (pick(ROWS, lambda a, b, i: a[i] @ b), [A, B], ["linear"]),
    "N": (pick(COLUMNS, lambda a, b, i: a @ b[:, i]), [A, B], ["linear"]),
    "K": (pick(lambda a, b: a[0], lambda a, b, i: a[:, i] @ b[i]), [A, B], ["linear"]),
    "M, none": (lambda a, b: a[find_positive(a[:, 0] * 0)] @ b, [A, B], ["linear"]),
    "addmm": (
        pick(ROWS, lambda c, a, b, i: torch.addmm(c, a[i], b)),
        [(N,), A, B],
        ["linear", "add"],
    ),
    "addmm, N": (
        pick(COLUMNS, lambda c, a, b, i: torch.addmm(c[:, i], a, b[:, i], **ADD)),
        [(M, N), A, B],
        ["linear", "mul", "add"],
    ),
    "_addmm_activation": (
        pick(ROWS, lambda c, a, b, i: torch._addmm_activation(c, a[i], b)),
        [(N,), A, B],
        ["linear", "add", "relu"],
    ),
    "bmm": (
        pick(lambda a, b: a[:, 0, 0], lambda a, b, i: torch.bmm(a[i], b[i])),
        [X, Y],
        ["bmm"],
    ),
    "baddbmm": (
        pick(lambda c, a, b: a[0, :, 0], lambda c, a, b, i: torch.baddbmm(c, a[:, i], b, **ADD)),
        [(1, N), X, Y],
        ["bmm", "mul", "add"],
    ),
}


@pytest.mark.parametrize("function, shapes, ops", UNKNOWN.values(), ids=UNKNOWN)
def test_sizes_that_only_the_run_knows(function, shapes, ops, on_cpu):
    """PyTorch's product of them could be of TF32."""
    operands = [torch.randn(shape) for shape in shapes]
    traced, _ = trace_symbols(function, *operands)
    before = list_ops(traced)
    with cutlass_fused.matmul_report() as report, matmul_settings("tf32"):
        replace(traced)
    assert {outcome for _, _, outcome in report.rows} == {COMPILED}
    assert list_ops(traced) == [*before[:-1], *ops]
    torch.testing.assert_close(traced(*operands), function(*operands))


@pytest.mark.parametrize("name", ["addmm", "baddbmm"])
def test_a_scale_that_only_the_run_knows(name, on_cpu):
    """PyTorch's to compute, also where the sizes are as unknown."""
    operands = [torch.randn(shape) for shape in ((1,), X, Y)]

    def scale(c, x, y):
        i = find_positive(x[0, :, 0])
        a, b = (x[:, i], y) if name == "baddbmm" else (x[0, i], y[0])
        return getattr(torch, name)(c, a, b, alpha=i.shape[0])

    traced, _ = trace_symbols(scale, *operands)
    with cutlass_fused.matmul_report() as report:
        replace(traced)
    assert [outcome for *_, outcome in report.rows] == [_left.SCALES]
    torch.testing.assert_close(traced(*operands), scale(*operands))


@pytest.mark.parametrize("name", ["addmm", "baddbmm"])
def test_a_scale_that_is_a_symbol(name, on_cpu):
    """The report says that it is the scale, and not the shapes, for which a product is left."""
    operands = [torch.randn(shape) for shape in ((N,), X, Y)]

    def scale(c, x, y):
        a, b = (x, y) if name == "baddbmm" else (x[0], y[0])
        return getattr(torch, name)(c, a, b, alpha=a.shape[-2])

    traced, _ = trace_symbols(scale, *operands)
    with cutlass_fused.matmul_report() as report:
        replace(traced)
    assert [outcome for *_, outcome in report.rows] == [_left.SCALES]
    torch.testing.assert_close(traced(*operands), scale(*operands))


def test_a_short_k_beside_a_size_that_only_the_run_knows(on_cpu):
    function, operands = UNKNOWN["M"][0], (torch.randn(M, 8), torch.randn(8, N))
    for allowed, op in (("ieee", "mm"), ("tf32", "linear")):
        traced, _ = trace_symbols(function, *operands)
        with matmul_settings(allowed):
            assert list_ops(replace(traced))[-1] == op


def test_a_product_of_a_tensor_that_nobody_tells_of():
    traced = trace(lambda a, b: a.relu() @ b, [A, B])
    (relu,) = (n for n in traced.graph.nodes if n.target is torch.ops.aten.relu.default)
    del relu.meta["val"]
    with cutlass_fused.matmul_report() as report:
        assert list_ops(replace(traced)) == ["relu", "mm"]
    assert report.rows == {("mm", (B,), _products.UNTOLD): 1}


def test_a_product_of_operands_by_name():
    traced = trace(torch.mm, [A, B])
    (node,) = (n for n in traced.graph.nodes if n.target is torch.ops.aten.mm.default)
    node.args, node.kwargs = node.args[:1], {"mat2": node.args[1]}
    assert list_ops(replace(traced)) == ["linear"]


def test_lines_of_the_user_stay():
    traced = trace(torch.addmm, [(M, N), A, B])
    (node,) = (n for n in traced.graph.nodes if n.op == "call_function")
    node.meta["stack_trace"] = "here"
    replace(traced)
    made = [n for n in traced.graph.nodes if n.op == "call_function"]
    assert len(made) > 1 and {n.meta["stack_trace"] for n in made} == {"here"}


@pytest.mark.parametrize("name", ["mm", "addmm", "bmm", "baddbmm"])
@pytest.mark.parametrize("mode", ["static", "dynamic"])
def test_what_cublas_computes_is_ours_in_graphs(name, mode, monkeypatch):
    """Nobody is asked, who would look at memory: what is left may become a Triton template."""
    monkeypatch.setattr(_by_pytorch, "find_function", lambda: lambda _: True)
    calls = {
        "mm": (torch.mm, [A, B]),
        "addmm": (torch.addmm, [(N,), A, B]),
        "bmm": (torch.bmm, [X, Y]),
        "baddbmm": (lambda c, x, y: torch.baddbmm(c, x, y, beta=0), [(N,), X, Y]),
    }
    function, shapes = calls[name]
    with FakeTensorMode(shape_env=ShapeEnv()) as fake:
        operands = [torch.empty(shape, device="cuda") for shape in shapes]
        if mode == "dynamic":
            operands = [fake.from_tensor(x, static_shapes=False) for x in operands]
        traced = make_fx(function, tracing_mode="real" if mode == "static" else "symbolic")(
            *operands
        )
    setting = torch.backends.cuda.matmul.fp32_precision == "tf32"
    replace(traced, "tf32" if setting else "ieee")
    targets = [n.target for n in traced.graph.nodes if n.op == "call_function"]
    assert any(target.namespace == "cutlass_fused" for target in targets)
    assert getattr(torch.ops.aten, name).default not in targets
