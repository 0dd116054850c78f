"""Fakes: what tracing sees must have the shape, dtype, strides and device of what runs."""

import pytest
import torch
from calls import ALL_OPS, LINEAR, STATISTICS_OPS, TRAIN_OPS
from cases import BF16, LAYOUT_SHAPE, NUMERICS, SHAPES, Shape
from cases_statistics import make_statistics_call as make_call
from layouts import MATRIX_LAYOUTS, RANK_LAYOUTS, VECTOR_KINDS
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from cutlass_fused import functional
from cutlass_fused.row_ops import ROW_OPS


def run_fake(call):
    mode = FakeTensorMode()
    fake = call.map_tensors(mode.from_tensor)
    with mode:
        return fake.name_results(fake.run())


def run_meta(call):
    call = call.map_tensors(lambda tensor: tensor.to("meta"))
    return call.name_results(call.run())


def describe(results):
    return {name: (tuple(t.shape), t.stride(), t.dtype) for name, t in results.items()}


def fits(op, shape):
    """Whether the op takes so many rows: one alone has no variance."""
    return op not in TRAIN_OPS or shape.m != 1


@pytest.mark.parametrize("numerics", NUMERICS, ids=str)
@pytest.mark.parametrize(
    ("op", "shape"),
    [(op, s) for op in ALL_OPS for s in SHAPES if s.m * s.n < 20_000 and fits(op, s)],
    ids=str,
)
def test_shapes(op, numerics, shape):
    call = make_call(op, shape, numerics)
    real = call.run_all()
    form = (call.result_shape, real["y"].contiguous().stride(), call.result_dtype)
    assert describe(real)["y"] == form
    fake, meta = run_fake(call), run_meta(call)
    assert describe(fake) == describe(meta) == describe(real)
    assert {t.device for t in fake.values()} == {call.x.device}
    assert {t.device.type for t in meta.values()} == {"meta"}


@pytest.mark.parametrize(
    ("op", "layout"),
    [
        (op, layout)
        for op in ALL_OPS
        for layout in MATRIX_LAYOUTS + RANK_LAYOUTS
        if layout in MATRIX_LAYOUTS or op not in STATISTICS_OPS or op in ROW_OPS
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_layouts(op, layout):
    """The result is contiguous, whatever x looks like."""
    call = make_call(op, LAYOUT_SHAPE, BF16)
    call = call.change(x=layout(call.x))
    assert describe(run_fake(call)) == describe(run_meta(call)) == describe(call.run_all())


@pytest.mark.parametrize("kind", VECTOR_KINDS)
@pytest.mark.parametrize("op", ALL_OPS)
def test_vectors(op, kind):
    call = make_call(op, LAYOUT_SHAPE, BF16, bias=kind, scale=kind, vectors=kind)
    real = call.run_all()
    fake = run_fake(call)
    assert describe(fake) == describe(real)


@pytest.mark.parametrize("op", TRAIN_OPS)
def test_without_running_statistics(op):
    call = make_call(op, LAYOUT_SHAPE, BF16, statistics="none")
    call = call.change(num_batches_tracked=None)
    assert describe(run_fake(call)) == describe(run_meta(call)) == describe(call.run_all())


def test_functional_decides_the_dtype_while_tracing():
    x = torch.empty(3, 8, dtype=torch.bfloat16, device="meta")
    weight = torch.empty(5, 8, dtype=torch.bfloat16, device="meta")
    scale = torch.empty(5, device="meta")
    assert functional.linear_scale_leaky_relu(x, weight, scale=scale).dtype == torch.float32
    assert functional.linear_scale_leaky_relu(x, weight, scale=scale[0]).dtype == torch.bfloat16
    assert functional.linear(x, weight, out_dtype=torch.float32).dtype == torch.float32
    for function in (
        functional.linear_scale_batch_norm,
        functional.linear_batch_norm_scale_softmax,
    ):
        for training in (True, False):
            arguments = (scale, scale, None, None, training)
            assert function(x, weight, None, scale, *arguments).dtype == torch.float32
            assert function(x, weight, None, scale[0], *arguments).dtype == torch.bfloat16
            assert function(x, weight, None, 2.0, *arguments).dtype == torch.bfloat16
    assert functional.softmax(x, out_dtype=torch.float32).dtype == torch.float32


@pytest.mark.parametrize("op", ALL_OPS)
def test_symbolic_sizes_stay_symbolic(op):
    """No check of the fake ties the batch to the number that was traced."""
    call = make_call(op, LAYOUT_SHAPE, BF16)
    names = list(call.tensors())

    def run(*tensors):
        new = call.change(**dict(zip(names, tensors, strict=True)))
        return new.name_results(new.run())

    graph = make_fx(run, tracing_mode="symbolic")(*call.copy_updated().tensors().values())
    other = make_call(op, Shape(33, 57, 41, "nothing in common with the traced sizes"), BF16)
    ours = graph(*other.copy_updated().tensors().values())
    for name, expected in other.run_all().items():
        assert torch.equal(ours[name], expected), name


@pytest.mark.parametrize("op", [LINEAR, *TRAIN_OPS])
def test_the_op_is_one_node(op):
    """Tracing must not look into the reference behind the CPU kernel."""
    call = make_call(op, LAYOUT_SHAPE, BF16)
    graph = make_fx(lambda x: call.change(x=x).run())(call.x)
    targets = [node.target for node in graph.graph.nodes if node.op == "call_function"]
    ours = [target for target in targets if getattr(target, "namespace", "") == "cutlass_fused"]
    others = [target for target in targets if target not in ours and "getitem" not in str(target)]
    assert ours == [call.overload()] and not others
