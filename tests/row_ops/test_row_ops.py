"""What is derived from the descriptions of cutlass_fused.row_ops, for every one of them: C++ that
is written from it, the op and its judge, the function, the gradient, and how DTensors are cut."""

import re
import types

import pytest
import torch
from calls import ARGUMENTS
from cases import BF16
from cases_statistics import (
    LAYOUT_SHAPE,
    OPS_AND_NUMERICS,
    SHAPES,
    make_special_statistics_call,
    make_statistics_call,
)
from check_call import check_call
from documents import ROOT
from layouts import MATRIX_LAYOUTS, RANK_LAYOUTS, VECTOR_KINDS
from recorded_ops import RecordOps

from cutlass_fused import functional
from cutlass_fused.epilogues._description import Number
from cutlass_fused.epilogues._schema import make_schema
from cutlass_fused.row_ops import ROW_OPS
from cutlass_fused.row_ops._op_file import make_op_file
from kernels import table

each_op = pytest.mark.parametrize("op", ROW_OPS)
each_op_and_numerics = pytest.mark.parametrize(
    ("op", "numerics"), [pair for pair in OPS_AND_NUMERICS if pair[0] in ROW_OPS], ids=str
)
M, N = 4, 6

# ---- what C++ reads ----


@each_op
def test_schema_is_the_line_of_the_file(op):
    """python -m cutlass_fused.row_ops writes it."""
    lines = (ROOT / "cutlass_fused/schemas.txt").read_text().splitlines()
    assert make_schema(ROW_OPS[op]) in lines
    assert make_schema(ROW_OPS[op]).startswith(f"{op}(")


def list_words(text):
    """The words of C++, without comments and spaces."""
    return re.findall(r'"[^"]*"|\w+|[^\s\w]', re.sub(r"//.*", "", text))


@each_op
def test_op_file_is_the_derived_one(op):
    """But for line breaks: make format sets those."""
    text = (ROOT / f"src/ops/{op}.cpp").read_text()
    assert list_words(text) == list_words(make_op_file(ROW_OPS[op]))


@each_op
def test_launch_has_kernels(op):
    header = ROOT / "include/cutlass_fused" / ROW_OPS[op].launch.header
    assert re.search(rf"\b{ROW_OPS[op].launch.function}\(", header.read_text())
    assert ROW_OPS[op].row in table.STANDALONE


# ---- the op ----


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@each_op_and_numerics
def test_shapes(op, numerics, shape):
    check_call(make_statistics_call(op, shape, numerics))


@pytest.mark.parametrize("layout", MATRIX_LAYOUTS + RANK_LAYOUTS, ids=lambda f: f.__name__)
@each_op
def test_layouts(op, layout):
    call = make_statistics_call(op, LAYOUT_SHAPE, BF16)
    check_call(call.change(x=layout(call.x)))


@pytest.mark.parametrize("kind", VECTOR_KINDS)
@each_op_and_numerics
def test_vectors(op, numerics, kind):
    check_call(make_statistics_call(op, LAYOUT_SHAPE, numerics, vectors=kind))


@each_op_and_numerics
def test_special_values(op, numerics):
    call = make_special_statistics_call(op, numerics)
    check_call(call)
    assert call.run()[6:].isfinite().all()


# ---- the function ----


def draw(op):
    """x and operands in float64."""
    drawn = [torch.randn(M, N, dtype=torch.float64, requires_grad=True)]
    for operand in ROW_OPS[op].operands:
        if isinstance(operand, Number):
            drawn.append(0.5 + len(drawn) / 4)  # no default, which may be 1
        else:
            drawn.append(torch.randn(N, dtype=torch.float64, requires_grad=True))
    return drawn


def list_leaves(arguments):
    return [argument for argument in arguments if isinstance(argument, torch.Tensor)]


@each_op
def test_gradient_is_that_of_the_formula(op):
    formula, arguments = ROW_OPS[op].formula, draw(op)
    function, leaves = getattr(functional, op), list_leaves(arguments)
    grad_y = torch.randn(M, N, dtype=torch.float64)
    found = [torch.autograd.grad(f(*arguments), leaves, grad_y) for f in (function, formula)]
    torch.testing.assert_close(*found)
    assert torch.autograd.gradcheck(function, arguments, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(function, arguments)
    run = torch.compile(function, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(torch.autograd.grad(run(*arguments), leaves, grad_y), found[0])
    torch._dynamo.reset()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@each_op
def test_gradients_of_16_bit_inputs(op, dtype):
    """Each has the dtype of its input, and is as near to float64 as one rounding and those of a few
    results that were rounded before."""
    exact = [t.detach().to(dtype).double() if isinstance(t, torch.Tensor) else t for t in draw(op)]
    narrow = [t.to(dtype) if isinstance(t, torch.Tensor) else t for t in exact]
    grad_y = torch.randn(M, N).to(dtype)
    grads = []
    for arguments in (narrow, exact):
        leaves = [leaf.requires_grad_() for leaf in list_leaves(arguments)]
        y = getattr(functional, op)(arguments[0], *arguments[1:])
        grads.append(torch.autograd.grad(y, leaves, grad_y.to(y.dtype)))
    for ours, expected in zip(*grads, strict=True):
        assert ours.dtype == dtype
        step = 4 * torch.finfo(dtype).eps
        torch.testing.assert_close(ours.double(), expected, rtol=step, atol=step)


@each_op
def test_a_call_without_gradients_is_one_op(op):
    arguments = [t.detach() if isinstance(t, torch.Tensor) else t for t in draw(op)]
    with RecordOps() as record:
        getattr(functional, op)(*arguments)
    assert record.names == [op]


# Those whose function takes what the op takes.
DERIVED = [op for op in ROW_OPS if getattr(functional, op).__module__.endswith("._derived.row_ops")]


@pytest.mark.parametrize("op", DERIVED)
def test_documents_of_the_function(op):
    function = getattr(functional, op)
    text = function.__doc__
    assert text.startswith("y = ") and "{" not in text
    for name in (name for name in ARGUMENTS[op] if name != "out"):
        assert f"\n        {name}: " in text and name in function.__annotations__
    assert all(len(line) <= 100 for line in text.splitlines())


@pytest.mark.parametrize("op", DERIVED)
def test_arguments_of_a_wrong_kind(op):
    function, arguments = getattr(functional, op), draw(op)
    for i, name in enumerate(["x", *ROW_OPS[op].names]):
        with pytest.raises(TypeError, match=f"^{op}: {name} must be a .*, got str"):
            function(*arguments[:i], "1", *arguments[i + 1 :])


@pytest.mark.parametrize("op", DERIVED)
def test_nested_rows_and_slices(op):
    function, arguments = getattr(functional, op), draw(op)
    x, *operands = (t.detach() if isinstance(t, torch.Tensor) else t for t in arguments)
    expected = function(x, *operands)
    rows = torch.nested.nested_tensor([x[:1], x[1:]], layout=torch.jagged)
    torch.testing.assert_close(function(rows, *operands).values(), expected)
    slices = torch.func.vmap(lambda row: function(row, *operands))(x)
    torch.testing.assert_close(slices, expected)
    with pytest.raises(RuntimeError, match=f"^{op}: x must be a dense tensor, got one of layout"):
        function(x.to_sparse(), *operands)


# ---- DTensors ----


@each_op
def test_shards_of_rows_stay_where_they_are(op):
    from torch.distributed.tensor import Replicate, Shard

    from cutlass_fused.sharding._layouts import choose_layout

    def place(placement, *shape):
        facts = {"placements": [placement], "dtype": torch.float32, "shape": shape}
        return types.SimpleNamespace(
            **facts, numel=lambda: torch.Size(shape).numel(), dim=lambda: len(shape)
        )

    tensors = {"x": place(Shard(0), M, N)}
    tensors |= {vector.name: place(Replicate(), N) for vector in ROW_OPS[op].vectors}
    layout = choose_layout(op, tensors, 1, 0)
    assert layout.cut == "rows" and layout.results == (Shard(0),)
    assert layout.inputs == {name: tensor.placements[0] for name, tensor in tensors.items()}
