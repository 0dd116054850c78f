"""Fakes: what tracing sees must have the shape, dtype, strides and device of what runs."""

import pytest
import torch
from calls import LINEAR, OPS
from cases import BF16, LAYOUT_SHAPE, NUMERICS, SHAPES, Shape, make_call
from layouts import MATRIX_LAYOUTS, RANK_LAYOUTS, VECTOR_KINDS
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from cutlass_fused import functional


def run_fake(call):
    mode = FakeTensorMode()
    fake = call.map_tensors(mode.from_tensor)
    with mode:
        return fake.run()


def run_meta(call):
    return call.map_tensors(lambda tensor: tensor.to("meta")).run()


def describe(tensor):
    return tuple(tensor.shape), tensor.stride(), tensor.dtype


@pytest.mark.parametrize("shape", [s for s in SHAPES if s.m * s.n < 20_000], ids=str)
@pytest.mark.parametrize("numerics", NUMERICS, ids=str)
@pytest.mark.parametrize("op", OPS)
def test_shapes(op, numerics, shape):
    call = make_call(op, shape, numerics)
    real = call.run()
    assert describe(real) == (call.result_shape, real.contiguous().stride(), call.result_dtype)
    fake, meta = run_fake(call), run_meta(call)
    assert describe(fake) == describe(meta) == describe(real)
    assert fake.device == call.x.device and meta.device.type == "meta"


@pytest.mark.parametrize("layout", MATRIX_LAYOUTS + RANK_LAYOUTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("op", OPS)
def test_layouts(op, layout):
    """The result is contiguous, whatever x looks like."""
    call = make_call(op, LAYOUT_SHAPE, BF16)
    call = call.change(x=layout(call.x))
    assert describe(run_fake(call)) == describe(run_meta(call)) == describe(call.run())


@pytest.mark.parametrize("kind", VECTOR_KINDS)
@pytest.mark.parametrize("op", OPS)
def test_vectors(op, kind):
    call = make_call(op, LAYOUT_SHAPE, BF16, bias=kind, scale=kind, vectors=kind)
    assert describe(run_fake(call)) == describe(call.run())


def test_functional_decides_the_dtype_while_tracing():
    x = torch.empty(3, 8, dtype=torch.bfloat16, device="meta")
    weight = torch.empty(5, 8, dtype=torch.bfloat16, device="meta")
    scale = torch.empty(5, device="meta")
    assert functional.linear_scale_leaky_relu(x, weight, scale=scale).dtype == torch.float32
    assert functional.linear_scale_leaky_relu(x, weight, scale=scale[0]).dtype == torch.bfloat16
    assert functional.linear(x, weight, out_dtype=torch.float32).dtype == torch.float32


@pytest.mark.parametrize("op", OPS)
def test_symbolic_sizes_stay_symbolic(op):
    """No check of the fake ties the batch to the number that was traced."""
    call = make_call(op, LAYOUT_SHAPE, BF16)
    names = list(call.tensors())

    def run(*tensors):
        return call.change(**dict(zip(names, tensors, strict=True))).run()

    graph = make_fx(run, tracing_mode="symbolic")(*call.tensors().values())
    other = make_call(op, Shape(33, 57, 41, "nothing in common with the traced sizes"), BF16)
    assert torch.equal(graph(*other.tensors().values()), other.run())


def test_the_op_is_one_node():
    """Tracing must not look into the reference behind the CPU kernel."""
    call = make_call(LINEAR, LAYOUT_SHAPE, BF16)
    graph = make_fx(lambda x: call.change(x=x).run())(call.x)
    targets = [node.target for node in graph.graph.nodes if node.op == "call_function"]
    assert targets == [torch.ops.cutlass_fused.linear.default]
