"""torch.compile and torch.export of the modules with a batch norm, whose ops update their
arguments: one graph, one compilation for every batch, the same results and the same statistics."""

import copy
import shutil

import pytest
import torch
from compile_once import compile_once

from cutlass_fused import functional, nn

IN, OUT = 12, 20
BATCHES = (4, 7, 9, 64)
MODULES = {
    "LinearScaleBatchNorm1d": lambda **options: nn.LinearScaleBatchNorm1d(
        IN, OUT, (OUT,), **options
    ),
    "LinearBatchNorm1dScaleSoftmax": lambda **options: nn.LinearBatchNorm1dScaleSoftmax(
        IN, OUT, **options
    ),
    "BatchNorm1d": lambda **options: nn.BatchNorm1d(IN),
    "Softmax": lambda **options: nn.Softmax(dim=1),
}
kinds = pytest.mark.parametrize("kind", MODULES)
in_train_and_eval = pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def differentiate(run, x, parameters):
    """y, and the gradients of x and of the parameters."""
    y = run(x)
    return y, *torch.autograd.grad(y.square().sum(), [x, *parameters])


def assert_same(module, run, batches=BATCHES, grad=True):
    """`run` against the uncompiled module, both from the same state, over several batches."""
    twin = copy.deepcopy(module)
    for batch in batches:
        x = torch.randn(batch, IN, requires_grad=grad)
        if grad:
            ours = differentiate(run, x, module.parameters())
            expected = differentiate(twin, x, twin.parameters())
        else:
            with torch.no_grad():
                ours, expected = run(x), twin(x)
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)
        for name, value in twin.state_dict().items():
            torch.testing.assert_close(module.state_dict()[name], value, msg=name)


@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no_grad"])
@in_train_and_eval
@kinds
def test_module(kind, training, grad):
    module = MODULES[kind](precision="ieee").train(training)
    compiled, counter = compile_once(module)
    assert_same(module, compiled, grad=grad)
    assert counter.frame_count == 1


@pytest.mark.parametrize("scale", ["number", "0-dim", "(1,)", "(N,)"])
@pytest.mark.parametrize("momentum", [0.1, None])
@pytest.mark.parametrize(
    "function", [functional.linear_scale_batch_norm, functional.linear_batch_norm_scale_softmax]
)
def test_functional(function, momentum, scale):
    """With every kind of scale, and a momentum that is read on the device."""
    scales = {"number": -1.5, "0-dim": torch.tensor(2.0), "(1,)": torch.ones(1)}
    scale = scales.get(scale, torch.randn(OUT))
    weight = torch.randn(OUT, IN)
    statistics = torch.randn(OUT), torch.rand(OUT), torch.tensor(3)

    def forward(x, mean, variance, count):
        options = {"training": True, "momentum": momentum, "num_batches_tracked": count}
        return function(x, weight, None, scale, mean, variance, **options)

    compiled, counter = compile_once(forward)
    for batch in BATCHES:
        x = torch.randn(batch, IN)
        both = [[t.clone() for t in statistics] for _ in range(2)]
        results = [run(x, *tracked) for run, tracked in zip((compiled, forward), both, strict=True)]
        torch.testing.assert_close(*results)
        torch.testing.assert_close(*both)
        assert both[0][2] == 4 and not torch.equal(both[0][0], statistics[0])
    assert counter.frame_count == 1


def test_updates_are_functionalized():
    """The op that updates becomes one that does not, and copies behind it: what inductor reads."""
    module = nn.LinearScaleBatchNorm1d(IN, OUT, (OUT,), precision="ieee")
    targets = []

    def record(graph, inputs):
        targets.extend(str(n.target) for n in graph.graph.nodes if n.op == "call_function")
        return graph

    backend = torch._dynamo.backends.common.aot_autograd(fw_compiler=record)
    with torch.no_grad():
        torch.compile(module, backend=backend, fullgraph=True)(torch.randn(4, IN))
    assert any("auto_functionalized" in target for target in targets), targets
    assert module.bn.num_batches_tracked == 1


@pytest.mark.skipif(shutil.which("c++") is None, reason="inductor needs a host compiler")
def test_inductor():
    """With code around the ops that inductor fuses, in training, with gradients."""

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.LinearScaleBatchNorm1d(IN, OUT, (OUT,))
            self.second = nn.LinearBatchNorm1dScaleSoftmax(OUT, OUT)

        def forward(self, x):
            return self.second(torch.relu(self.first(x * 2.0))) + 1.0

    module = Net()
    compiled, _ = compile_once(module, "inductor")
    assert_same(module, compiled, batches=(4, 9))


@pytest.mark.parametrize("strict", [True, False], ids=["strict", "non-strict"])
@in_train_and_eval
@kinds
def test_export_with_dynamic_batch(kind, training, strict):
    """A program keeps the statistics that it updates among its buffers."""
    module = MODULES[kind](precision="ieee").train(training)
    twin = copy.deepcopy(module)  # the program updates the module's own buffers
    batch = torch.export.Dim("batch", min=2, max=4096)
    with torch.no_grad():
        program = torch.export.export(
            module, (torch.randn(4, IN),), dynamic_shapes=({0: batch},), strict=strict
        )
    ops = {node.target for node in program.graph.nodes if node.op == "call_function"}
    assert any(getattr(op, "namespace", "") == "cutlass_fused" for op in ops)
    exported = program.module()
    for size in (2, 5, 300):
        x = torch.randn(size, IN)
        with torch.no_grad():
            torch.testing.assert_close(exported(x), twin(x))
    state = twin.state_dict()
    for name, value in exported.state_dict().items():
        torch.testing.assert_close(value, state[name], msg=name)
    if training and kind != "Softmax":
        assert any(v == 3 for n, v in exported.state_dict().items() if "num_batches" in n)


def test_exported_program_survives_saving(tmp_path):
    module = nn.LinearBatchNorm1dScaleSoftmax(IN, OUT, precision="ieee")
    with torch.no_grad():
        program = torch.export.export(module, (torch.randn(4, IN),))
    path = tmp_path / "program.pt2"
    torch.export.save(program, path)
    loaded, x = torch.export.load(path).module(), torch.randn(4, IN)
    torch.testing.assert_close(loaded(x), module(x))
    assert loaded.state_dict()["bn.num_batches_tracked"] == 1


@pytest.mark.parametrize("kind", ["LinearScaleBatchNorm1d", "LinearBatchNorm1dScaleSoftmax"])
@in_train_and_eval
def test_autocast(kind, training):
    module = MODULES[kind]().train(training)

    def forward(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return module(x)

    compiled, _ = compile_once(forward)
    x = torch.randn(64, IN)
    expected, ours = forward(x), compiled(x)
    assert ours.dtype == expected.dtype == torch.float32
    torch.testing.assert_close(ours, expected, rtol=1e-2, atol=1e-2)
