"""AOTInductor packages of all modules: exported, packaged, loaded, and compared."""

import pytest
import torch
from torch._inductor import aoti_compile_and_package, aoti_load_package

from cutlass_fused import nn

IN, OUT = 12, 20


class AllModules(torch.nn.Module):
    """One package: compiling it takes longer than all the rest."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(IN, OUT)
        self.leaky_relu = nn.LinearScaleLeakyReLU(IN, OUT, 2.0, 0.1)
        self.batch_norm = nn.LinearScaleBatchNorm1d(IN, OUT, (OUT,))
        self.softmax = nn.LinearBatchNorm1dScaleSoftmax(IN, OUT)
        self.alone = torch.nn.Sequential(nn.BatchNorm1d(IN), nn.Softmax(-1))

    def forward(self, x):
        return tuple(part(x) for part in self.children())


class UnderAutocast(torch.nn.Module):
    """16-bit products beside fp32 scales: the results are wider than what the ops are given."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.model(x)


def make_model(dtype):
    torch.manual_seed(0)
    model = AllModules()
    for name, buffer in model.named_buffers():  # statistics that show
        if name.endswith(("running_mean", "running_var")):
            buffer.copy_(torch.rand(buffer.shape) + 0.5)
    if dtype == "autocast":
        return UnderAutocast(model).eval(), torch.randn(6, IN)
    return model.to(dtype).eval(), torch.randn(6, IN).to(dtype)


def export(model, x):
    batch = torch.export.Dim("batch", min=2, max=64)
    with torch.no_grad():
        return torch.export.export(model, (x,), dynamic_shapes=({0: batch},))


CASES = [torch.float32, torch.float16, torch.bfloat16, "autocast"]


@pytest.mark.parametrize("dtype", CASES, ids=str)
def test_package(dtype, tmp_path):
    model, x = make_model(dtype)
    path = aoti_compile_and_package(export(model, x), package_path=str(tmp_path / "model.pt2"))
    loaded = aoti_load_package(path)
    for rows in (6, 33):
        x = torch.randn(rows, IN).to(x.dtype)
        with torch.no_grad():
            expected = model(x)
        for ours, other in zip(loaded(x), expected, strict=True):
            assert ours.dtype == other.dtype
            torch.testing.assert_close(ours, other)


@pytest.mark.parametrize("dtype", CASES, ids=str)
def test_no_dtype_is_an_argument_of_an_op(dtype):
    """One arrives as another: an op is told by name, and only where there is something to say."""
    model, x = make_model(dtype)
    ops = [
        node
        for part in export(model, x).graph_module.modules()  # a region of autocast is one
        for node in part.graph.nodes
        if getattr(node.target, "namespace", None) == "cutlass_fused"
    ]
    assert len(ops) == 6
    for node in ops:
        values = [*node.args, *node.kwargs.values()]
        assert not any(isinstance(value, torch.dtype) for value in values), node.format_node()
    named = [node for node in ops if "float32" in (*node.args, *node.kwargs.values())]
    assert len(named) == (2 if dtype == "autocast" else 0)


def test_programs_of_before_that_give_a_dtype():
    x, weight = torch.randn(3, IN).bfloat16(), torch.randn(OUT, IN).bfloat16()
    linear = torch.ops.cutlass_fused.linear
    wide = linear(x, weight, None, "ieee", torch.float32)
    assert torch.equal(wide, linear(x, weight, out="float32"))
    assert torch.equal(linear(x, weight, None, "ieee", torch.bfloat16), linear(x, weight))
    for out, found in (("float16", "float16"), ("nothing", "nothing")):
        with pytest.raises(
            RuntimeError, match=f"^linear: out_dtype must be bfloat16 .*, got {found}"
        ):
            linear(x, weight, out=out)
    with pytest.raises(RuntimeError, match="out_dtype must be None beside out, got float32"):
        linear(x, weight, None, "ieee", torch.float32, out="float32")
