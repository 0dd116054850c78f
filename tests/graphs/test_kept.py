"""Graphs of torch.compile for inference split an unchanged weight once, and a changed one anew."""

import shutil

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.flop_counter import FlopCounterMode

from cutlass_fused import fp32_matmul, nn
from cutlass_fused.graphs import _kept
from cutlass_fused.programs.epilogue import epilogue
from cutlass_fused.weights import kept, splits

IN, OUT, ROWS = 64, 48, 5
ops = torch.ops.cutlass_fused
needs_compiler = pytest.mark.skipif(shutil.which("c++") is None, reason="needs a host compiler")
silu = epilogue(torch.nn.functional.silu)


class LinearSiLU(nn.Linear):
    def forward(self, x):
        return silu(x, self.weight)


MODULES = {
    "linear": lambda: nn.Linear(IN, OUT),
    "linear_scale_leaky_relu": lambda: nn.LinearScaleLeakyReLU(IN, OUT, 2.0, 0.1),
    "linear_scale_batch_norm_inference": lambda: nn.LinearScaleBatchNorm1d(IN, OUT, (OUT,)),
    "linear_batch_norm_scale_softmax_inference": lambda: nn.LinearBatchNorm1dScaleSoftmax(IN, OUT),
    "linear_epilogue": lambda: LinearSiLU(IN, OUT),
}


@pytest.fixture
def made(monkeypatch):
    """The weights that were split, in order. A split is a copy here, seen to be right when read."""
    made = []

    def split(weight, precision):
        made.append(weight)
        return weight.detach().clone()

    cache = splits.SplitCache(split)

    def find(weight, precision):
        if splits._is_recorded():
            return None
        found = cache.find(weight, precision)
        assert torch.equal(found, weight)
        return found

    monkeypatch.setattr(splits, "_cache", cache)
    monkeypatch.setattr(kept, "find_split", find)
    return made


def compile_module(module):
    return torch.compile(module.eval(), fullgraph=True)


@pytest.mark.parametrize("op", MODULES)
@torch.no_grad()
def test_an_unchanged_weight_is_split_once(op, on_cpu, made):
    module = MODULES[op]()
    compiled = compile_module(module)
    with torch.profiler.profile() as profile:
        for _ in range(4):
            x = torch.randn(ROWS, IN)
            torch.testing.assert_close(compiled(x), module(x))
    # The very parameter: what is kept is found by the object.
    assert len(made) == 1 and made[0] is getattr(module, "gemm", module).weight
    assert f"cutlass_fused::{op}_kept" in {event.name for event in profile.events()}


def test_all_ops_that_take_a_split_and_write_nothing_are_there():
    assert {op._schema.name for op in kept.KEEPING} == {f"cutlass_fused::{op}" for op in MODULES}


def load(module):
    module.load_state_dict(MODULES["linear"]().state_dict())


def make_step(make, compiled=False):
    def step(module):
        optimizer = make(module.parameters())
        with torch.enable_grad():
            module(torch.randn(ROWS, IN)).square().sum().backward()
        (torch.compile(optimizer.step) if compiled else optimizer.step)()

    return step


def write_compiled(module):
    torch.compile(lambda weight: weight.mul_(2))(module.weight)


def replace(module):
    module.weight = torch.nn.Parameter(torch.randn(OUT, IN))


CHANGES = {
    "write": lambda module: module.weight.mul_(2),
    "write to a view": lambda module: module.weight[3].zero_(),
    "load": load,
    "replace": replace,
    "replace data": lambda module: setattr(module.weight, "data", torch.randn(OUT, IN)),
    "step": make_step(lambda weights: torch.optim.SGD(weights, lr=0.5)),
    "fused step": make_step(lambda weights: torch.optim.AdamW(weights, lr=0.5, fused=True)),
    "compiled step": make_step(lambda weights: torch.optim.SGD(weights, lr=0.5), compiled=True),
    "compiled write": write_compiled,
}


@pytest.mark.parametrize("change", CHANGES)
@torch.no_grad()
def test_a_changed_weight_is_split_anew(change, on_cpu, made):
    if "compiled" in change and shutil.which("c++") is None:
        pytest.skip("needs a host compiler")
    module, x = MODULES["linear"](), torch.randn(ROWS, IN)
    compiled = compile_module(module)
    compiled(x)
    before = compiled(x).clone()
    CHANGES[change](module)
    for _ in range(2):
        y = compiled(x)
        torch.testing.assert_close(y, module(x))
    assert len(made) == 2 and not torch.allclose(y, before)


def test_nothing_is_kept_of_a_weight_that_is_trained(on_cpu, made):
    module, x = MODULES["linear"](), torch.randn(ROWS, IN)
    compiled = torch.compile(module)
    compiled(x).sum().backward()
    assert not made
    with torch.no_grad():
        compiled(x)
    assert len(made) == 1


@torch.no_grad()
def test_the_switch_under_max_autotune(on_cpu, made):
    """Its products read the parameter transposed, and back."""
    module, x = torch.nn.Linear(IN, OUT), torch.randn(ROWS, IN)
    compiled = torch.compile(module, options={"max_autotune_gemm": True})
    with fp32_matmul("ieee"):
        for _ in range(3):
            torch.testing.assert_close(compiled(x), module(x))
    assert len(made) == 1 and made[0] is module.weight


@torch.no_grad()
def test_other_backends_are_as_they_were(on_cpu, made):
    torch.compile(MODULES["linear"](), backend="aot_eager")(torch.randn(ROWS, IN))
    assert not made


@torch.no_grad()
def test_an_exported_program_holds_no_op_in_python(on_cpu, made):
    program = torch.export.export(MODULES["linear"](), (torch.randn(ROWS, IN),))
    targets = {n.target for n in program.graph.nodes if n.op == "call_function"}
    assert targets == {ops.linear.default}
    program.module()(torch.randn(ROWS, IN))
    assert not made


def test_of_tensors_that_are_no_parameters_nothing_is_kept(made):
    """As of a DTensor's part, or of what a graph has in its own memory."""
    x, weight = torch.randn(ROWS, IN), torch.randn(OUT, IN)
    for each in (weight, torch.nn.Parameter(weight, requires_grad=False)):
        torch.testing.assert_close(ops.linear_kept(x, each), ops.linear(x, weight))
    assert len(made) == 1


def test_arguments_are_handed_on(made):
    weight = torch.nn.Parameter(torch.randn(OUT, IN), requires_grad=False)
    x, bias = torch.randn(3, ROWS, IN), torch.randn(OUT)
    arguments = (x, weight, bias, None, -3.0, 0.5, "tf32", None, None, "float32")
    expected = ops.linear_scale_leaky_relu(*arguments)
    assert torch.equal(ops.linear_scale_leaky_relu_kept(*arguments), expected)
    options = {"bias": bias, "multiplier": -3.0, "negative_slope": 0.5}
    assert torch.equal(ops.linear_scale_leaky_relu_kept(x, weight, **options), expected)
    torch.library.opcheck(ops.linear_kept, (x, weight.detach(), bias, "tf32"))


@torch.no_grad()
def test_operations_are_counted(on_cpu):
    x, weight = torch.randn(ROWS, IN), torch.randn(OUT, IN)
    with FlopCounterMode(display=False) as counter:
        ops.linear_kept(x, weight)
    assert counter.get_total_flops() == 2 * ROWS * OUT * IN


# ---- which weights of a graph ----


def find_targets(function, *shapes, device="cuda", least=1, dtype=torch.float32):
    """The ops of ours in the graph of a function of tensors of these shapes."""
    with FakeTensorMode(), torch.no_grad():
        operands = [torch.empty(shape, device=device, dtype=dtype) for shape in shapes]
        graph = make_fx(torch.func.functionalize(function))(*operands).graph
    _kept.keep_splits(graph, least)
    graph.lint()
    targets = [n.target for n in graph.nodes if n.op == "call_function"]
    return [t._schema.name.partition("::")[2] for t in targets if t.namespace == "cutlass_fused"]


X, W = (ROWS, IN), (OUT, IN)


def write_behind(x, weight):
    y = ops.linear(x, weight)
    weight.mul_(2)
    return y


# Function, and whether its weight's split is kept.
GRAPHS = {
    "a weight": (lambda x, w: ops.linear(x, w), True),
    "with all arguments": (lambda x, w: ops.linear(x, w, None, "tf32", None, None), True),
    "by names": (lambda x, w: ops.linear(x, weight=w), True),
    "transposed and back": (lambda x, w: ops.linear(x, w.t().t()), True),
    "two products": (lambda x, w: ops.linear(x, w) + ops.linear(x * 2, w), True),
    "read elsewhere": (lambda x, w: ops.linear(x, w) + w.sum(), True),
    "returned": (lambda x, w: (ops.linear(x, w), w), True),
    "transposed": (lambda x, w: ops.linear(x @ w.t(), w.t()), False),
    "a part": (lambda x, w: ops.linear(x, w[3:]), False),
    "computed": (lambda x, w: ops.linear(x, w * 2), False),
    "written before": (lambda x, w: ops.linear(x, w.mul_(2)), False),
    "written behind": (write_behind, False),
    "split already": (lambda x, w: ops.linear(x, w, weight_split=w.sum(1)), False),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_graphs(name):
    function, is_kept = GRAPHS[name]
    found = [op for op in find_targets(function, X, W) if op.startswith("linear")]
    assert set(found) == {"linear_kept" if is_kept else "linear"}


def test_other_weights():
    def function(x, w):
        return ops.linear(x, w)

    assert find_targets(function, X, W, least=OUT * IN) == ["linear_kept"]
    assert find_targets(function, X, W, least=OUT * IN + 1) == ["linear"]
    assert find_targets(function, X, W, dtype=torch.bfloat16) == ["linear"]
    assert find_targets(function, X, W, device="cpu") == ["linear"]


@torch.no_grad()
def test_a_weight_handed_to_a_branch(on_cpu, made):
    """It may be of the graph's own memory: nothing is kept in graphs of several parts."""
    module = MODULES["linear"]()

    def function(x):
        pick = lambda x: module(x)  # noqa: E731
        return torch.cond(x.sum() > 0, pick, lambda x: module(x) * 2, (x,))

    compiled, x = torch.compile(function), torch.rand(ROWS, IN)
    if shutil.which("c++") is None:
        pytest.skip("needs a host compiler")
    torch.testing.assert_close(compiled(x), function(x))
    assert not made
