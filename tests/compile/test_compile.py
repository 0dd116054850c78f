"""torch.compile and torch.export: one graph, one compilation for every batch, the same results."""

import shutil

import pytest
import torch
from compile_once import compile_once
from plain import run_plain

from cutlass_fused import functional, nn

IN, OUT = 12, 20
BATCHES = (4, 7, 9, 64)


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def make_vectors():
    return {
        "number": -1.5,
        "0-dim": torch.tensor(2.0),
        "(1,)": torch.tensor([2.0]),
        "(N,)": torch.randn(OUT),
    }


def assert_same(function, backend="aot_eager", batches=BATCHES, **tolerance):
    run, counter = compile_once(function, backend)
    for batch in batches:
        x = torch.randn(batch, IN)
        ours, expected = run(x), function(x)
        assert ours.dtype == expected.dtype and ours.stride() == expected.stride()
        torch.testing.assert_close(ours, expected, **tolerance)
    assert counter.frame_count == 1


@pytest.mark.parametrize("scale", ["number", "0-dim", "(1,)", "(N,)"])
def test_functional(scale):
    weight, bias, scale = torch.randn(OUT, IN), torch.randn(OUT), make_vectors()[scale]
    assert_same(lambda x: functional.linear_scale_leaky_relu(x, weight, bias, scale, 0.1))


def test_linear():
    weight = torch.randn(OUT, IN)
    assert_same(lambda x: functional.linear(x, weight, precision="tf32"))


@pytest.mark.parametrize("precision", [None, "ieee", "tf32"])
@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no_grad"])
def test_module(grad, precision):
    module = nn.LinearScaleLeakyReLU(IN, OUT, 2.0, 0.1, precision=precision)
    with torch.set_grad_enabled(grad):
        assert_same(module)


@pytest.mark.parametrize("scale", ["number", "0-dim", "(1,)", "(N,)"])
def test_gradients(scale):
    """Also of the scale: a gradient that vanishes under compile would go unnoticed otherwise."""
    leaves = {"weight": torch.randn(OUT, IN), "bias": torch.randn(OUT)}
    scale = make_vectors()[scale]
    if isinstance(scale, torch.Tensor):
        leaves["scale"] = scale
    for leaf in leaves.values():
        leaf.requires_grad_()

    def forward(function, x):
        return function(x, leaves["weight"], leaves["bias"], scale, -0.5)

    run, counter = compile_once(lambda x: forward(functional.linear_scale_leaky_relu, x))
    for batch in BATCHES:
        x = torch.randn(batch, IN, requires_grad=True)
        results = [
            (y, *torch.autograd.grad(y.square().sum(), [x, *leaves.values()]))
            for y in (run(x), forward(run_plain, x))
        ]
        torch.testing.assert_close(results[0], results[1], rtol=1e-4, atol=1e-4)
    assert counter.frame_count == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast(dtype):
    module = nn.LinearScaleLeakyReLU(IN, OUT, 2.0, 0.1)

    def forward(x):
        with torch.autocast("cpu", dtype=dtype):
            return module(x)

    assert forward(torch.randn(3, IN)).dtype == dtype
    assert_same(forward)


def test_changed_precision_setting_recompiles():
    """The word that PyTorch's setting stands for is a constant of the graph, behind a guard."""
    weight = torch.randn(OUT, IN)
    seen = []

    def record(graph, inputs):
        seen.extend(
            node.args[3] if len(node.args) > 3 else node.kwargs.get("precision", "ieee")
            for node in graph.graph.nodes
            if node.target is torch.ops.cutlass_fused.linear.default
        )
        return graph

    compiled = torch.compile(lambda x: functional.linear(x, weight), backend=record, fullgraph=True)
    for word in ("ieee", "tf32", "ieee"):
        torch.backends.cuda.matmul.fp32_precision = word
        compiled(torch.randn(3, IN))
    assert seen == ["ieee", "tf32"]


@pytest.mark.skipif(shutil.which("c++") is None, reason="inductor needs a host compiler")
def test_inductor():
    """With code around the op that inductor fuses and whose strides it may choose."""
    module = nn.LinearScaleLeakyReLU(IN, OUT, 2.0, 0.1)

    def forward(x):
        return torch.softmax(module((x * 2.0).t().contiguous().t()) + 1.0, dim=1)

    with torch.no_grad():
        assert_same(forward, "inductor", batches=(4, 9))


@pytest.mark.parametrize("strict", [True, False], ids=["strict", "non-strict"])
@pytest.mark.parametrize("kind", ["Linear", "LinearScaleLeakyReLU"])
def test_export_with_dynamic_batch(kind, strict):
    options = {"Linear": (IN, OUT), "LinearScaleLeakyReLU": (IN, OUT, 2.0, 0.1)}
    module = getattr(nn, kind)(*options[kind]).eval()
    batch = torch.export.Dim("batch", min=1, max=4096)
    with torch.no_grad():
        program = torch.export.export(
            module, (torch.randn(4, IN),), dynamic_shapes=({0: batch},), strict=strict
        )
    ops = [node.target for node in program.graph.nodes if node.op == "call_function"]
    name = "linear" if kind == "Linear" else "linear_scale_leaky_relu"
    assert getattr(torch.ops.cutlass_fused, name).default in ops
    for size in (1, 5, 300):
        x = torch.randn(size, IN)
        torch.testing.assert_close(program.module()(x), module(x))


MODELS = {
    "Linear": lambda: nn.Linear(12, 20),
    "LinearScaleLeakyReLU": lambda: nn.LinearScaleLeakyReLU(12, 20, 2.0, 0.1),
    "LinearScaleBatchNorm1d": lambda: nn.LinearScaleBatchNorm1d(12, 20, (20,)),
    "LinearBatchNorm1dScaleSoftmax": lambda: nn.LinearBatchNorm1dScaleSoftmax(12, 20),
    "BatchNorm1d": lambda: nn.BatchNorm1d(12),
    "Softmax": lambda: nn.Softmax(-1),
}


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_export_with_gradients_enabled(make, strict):
    """A program of a model in eval is to be run: it has the fused op, and that alone."""
    model, x = make().eval(), torch.randn(6, 12)
    program = torch.export.export(model, (x,), strict=strict)
    ours = [str(n.target) for n in program.graph.nodes if n.op == "call_function"]
    assert len(ours) == 1 and ours[0].startswith("cutlass_fused."), ours
    with torch.no_grad():
        torch.testing.assert_close(program.module()(x), model(x))


def test_exported_program_survives_saving(tmp_path):
    module = nn.LinearScaleLeakyReLU(IN, OUT, 2.0, 0.1, precision="ieee").eval()
    with torch.no_grad():
        program = torch.export.export(module, (torch.randn(4, IN),))
    path = tmp_path / "program.pt2"
    torch.export.save(program, path)
    x = torch.randn(4, IN)
    torch.testing.assert_close(torch.export.load(path).module()(x), module(x))
