"""What is derived from the descriptions of cutlass_fused.epilogues, for every one of them: C++ that
is written from it, the functor, the gradient, and how DTensors are cut."""

import ast
import inspect
import itertools
import math
import re
import types

import pytest
import torch
from calls import ARGUMENTS
from documents import ROOT
from host_program import compile_host_program

from cutlass_fused import functional, nn, prepare
from cutlass_fused.epilogues import EPILOGUES
from cutlass_fused.epilogues._description import BIAS, Number, RowOrScalar
from cutlass_fused.epilogues._op_file import make_op_file
from cutlass_fused.epilogues._schema import make_schema
from cutlass_fused.functional import _derived
from kernels import table

each_epilogue = pytest.mark.parametrize("op", EPILOGUES)
M, N, K = 4, 6, 5


@each_epilogue
def test_schema_is_the_line_of_the_file(op):
    """python -m cutlass_fused.epilogues writes it."""
    lines = (ROOT / "cutlass_fused/schemas.txt").read_text().splitlines()
    assert make_schema(EPILOGUES[op]) in lines
    assert make_schema(EPILOGUES[op]).startswith(f"{op}(")


def list_words(text):
    """The words of C++, without comments and spaces."""
    return re.findall(r'"[^"]*"|\w+|[^\s\w]', re.sub(r"//.*", "", text))


@each_epilogue
def test_op_file_is_the_derived_one(op):
    """But for line breaks: make format sets those."""
    text = (ROOT / f"src/ops/{op}.cpp").read_text()
    assert list_words(text) == list_words(make_op_file(EPILOGUES[op]))


@each_epilogue
def test_functor_has_kernels(op):
    functor = EPILOGUES[op].functor
    assert functor.struct in table.EPILOGUES
    assert (ROOT / "include/cutlass_fused/epilogue" / functor.header).is_file()


PROGRAM = """
#include <cstdio>
#include "cutlass_fused/epilogue/{header}"
#include "evaluate_twice.hpp"
int main() {{
  VectorStorage storage[{count}];
  std::string text;
  while (std::cin >> text) {{
    float const acc = std::stof(text);
    {operands}
    {struct}::Args const args{arguments};
    std::printf("%.9g\\n", evaluate_twice<{struct}>(args, acc));
  }}
}}
"""
ACCS = (0.0, -0.0, 1.0, -2.5, 3e-3, 1e5, math.inf, -math.inf, math.nan)
VALUES = (0.75, -1.5, 0.0)


def write_program(epilogue):
    """Reads an accumulator and the operands in their order, and prints what the functor gives."""
    operands = (BIAS, *epilogue.operands)
    readings = [
        f"float const {operand.name} = read_number();"
        if isinstance(operand, Number)
        else f"Vector const {operand.name} = read_vector(storage[{i}]);"
        for i, operand in enumerate(operands)
    ]
    functor = epilogue.functor
    arguments = functor.arguments or "{" + ", ".join(o.name for o in operands) + "}"
    return PROGRAM.format(
        header=functor.header,
        struct=functor.struct,
        count=len(operands),
        operands="\n    ".join(readings),
        arguments=f" {arguments}",
    )


@each_epilogue
def test_functor_computes_the_formula(op, tmp_path):
    """For the host; of each operand a few values, the others in turn. A variance is positive."""
    epilogue = EPILOGUES[op]
    (tmp_path / "main.cpp").write_text(write_program(epilogue))
    run = compile_host_program("main", tmp_path, tmp_path / "main.cpp")
    operands, lines, expected = (BIAS, *epilogue.operands), [], []
    for i, acc in itertools.product(range(3), ACCS):
        values = [VALUES[(i + j) % 3] for j in range(len(operands))]
        values = [
            abs(value) + 0.25 if operand.name in ("running_var", "eps") else value
            for value, operand in zip(values, operands, strict=True)
        ]
        words = [
            f"{value}" if isinstance(operand, Number) else f"float32 {value}"
            for value, operand in zip(values, operands, strict=True)
        ]
        lines.append(" ".join([str(acc), *words]))
        tensors = [
            value if isinstance(operand, Number) else torch.tensor(value, dtype=torch.float64)
            for value, operand in zip(values, operands, strict=True)
        ]
        z = torch.tensor(acc, dtype=torch.float64) + tensors[0]
        expected.append(epilogue.formula(z, *tensors[1:]).item())
    ours = torch.tensor([float(line) for line in run(lines)], dtype=torch.float64)
    expected = torch.tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-6, equal_nan=True)


def draw_operands(epilogue, requires_grad=True):
    """float64 tensors and numbers; variances are positive, and no statistic has a gradient."""
    drawn = []
    for operand in epilogue.operands:
        if isinstance(operand, Number):
            drawn.append(0.5 + len(drawn) / 4)  # no default, which may be 1
            continue
        vector = torch.randn(N, dtype=torch.float64)
        is_statistic = operand.name.startswith("running_")
        vector = vector.abs() + 0.1 if is_statistic else vector
        drawn.append(vector.requires_grad_(requires_grad and not is_statistic))
    return drawn


@each_epilogue
def test_gradient_is_that_of_the_formula(op):
    epilogue = EPILOGUES[op]
    gradient, operands = epilogue.gradient, draw_operands(epilogue)
    if gradient is None:
        return  # PyTorch's
    z = torch.randn(M, N, dtype=torch.float64, requires_grad=True)
    grad_y = torch.randn(M, N, dtype=torch.float64)
    vectors = {
        operand.name: value
        for operand, value in zip(epilogue.operands, operands, strict=True)
        if not isinstance(operand, Number)
    }
    assert gradient.operands.keys() == vectors.keys()
    y = epilogue.formula(z, *operands)
    of_z, *expected = torch.autograd.grad(y, (z, *vectors.values()), grad_y)
    arguments = (grad_y, z, *operands) if gradient.reads_z else (grad_y, *operands)
    torch.testing.assert_close(gradient.z(*arguments), of_z)
    for name, grad in zip(vectors, expected, strict=True):
        terms = gradient.operands[name](*arguments)
        torch.testing.assert_close(terms.expand(M, N).sum(0), grad)


# Those whose function takes what the op takes.
DERIVED = [op for op in EPILOGUES if getattr(functional, op, None) is not None]
DERIVED = [op for op in DERIVED if getattr(functional, op).__module__.endswith("._derived")]


@pytest.mark.parametrize("op", DERIVED)
def test_gradients_of_the_function(op):
    function, operands = getattr(functional, op), draw_operands(EPILOGUES[op])
    sizes = ((M, K), (N, K), (N,))
    matrices = [torch.randn(*s, dtype=torch.float64, requires_grad=True) for s in sizes]
    assert torch.autograd.gradcheck(function, (*matrices, *operands), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(function, (*matrices, *operands))
    run = torch.compile(function, backend="aot_eager", fullgraph=True)
    leaves = [t for t in (*matrices, *operands) if isinstance(t, torch.Tensor)]
    found = [torch.autograd.grad(f(*matrices, *operands).sum(), leaves) for f in (function, run)]
    torch.testing.assert_close(*found)
    torch._dynamo.reset()


@pytest.mark.parametrize("op", DERIVED)
def test_documents_of_the_function(op):
    function = getattr(functional, op)
    text = function.__doc__
    assert text.startswith("y = ") and "{" not in text
    for name in (*ARGUMENTS[op][:-2], "precision", "out_dtype", "weight_split"):
        assert f"\n        {name}: " in text and name in function.__annotations__
    assert all(len(line) <= 100 for line in text.splitlines())


def test_type_checkers_see_the_signature_of_linear():
    """They read no text that is written at run time."""
    arguments = [
        ast.unparse(node.args)
        for text in (inspect.getsource(_derived), inspect.getsource(functional.linear))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef) and node.name == "linear"
    ]
    assert len(arguments) == 2 and arguments[0] == arguments[1]


@each_epilogue
def test_shards_of_columns_stay_where_they_are(op):
    from torch.distributed.tensor import Replicate, Shard

    from cutlass_fused.sharding._layouts import choose_layout

    def place(placement, *shape):
        facts = {"placements": [placement], "dtype": torch.float32, "shape": shape}
        return types.SimpleNamespace(
            **facts, numel=lambda: math.prod(shape), dim=lambda: len(shape)
        )

    tensors = {"x": place(Replicate(), M, K), "weight": place(Shard(0), N, K)}
    for operand in (BIAS, *EPILOGUES[op].vectors):
        tensors[operand.name] = place(Shard(0), N)
        if isinstance(operand, RowOrScalar):
            tensors[operand.name] = place(Replicate(), 1)
    layout = choose_layout(op, tensors, 1, 0)
    assert layout.cut == "columns" and layout.results == (Shard(1),)
    assert layout.inputs == {name: tensor.placements[0] for name, tensor in tensors.items()}


def test_prepare_finds_every_module_with_a_gemm():
    """Weights that are on no GPU stay as they are; nothing fails."""
    kinds = [getattr(nn, name) for name in nn.__all__]
    assert sum(isinstance(kind, type) for kind in kinds) >= 6
    module = nn.LinearScaleLeakyReLU(K, N, 2.0, 0.1)
    assert prepare(torch.nn.Sequential(module))[0] is module
