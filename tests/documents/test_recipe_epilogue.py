"""The recipe for an epilogue, followed to the letter in a copy of the repository."""

import ast
import re
import shutil

import pytest
from documents import RECIPES, TEXTS
from recipe_copy import check_op_compiles, find_block, follow_recipe, list_changed, run_python

from build_system.paths import ROOT
from kernels import table as kernels
from kernels.table import EPILOGUES

RECIPE = TEXTS["include/cutlass_fused/epilogue/README.md"]
ROW = find_block(RECIPE, "python", '"PReLU": "')
# The files that the recipe tells to write.
FILES = {
    "include/cutlass_fused/epilogue/prelu.hpp": find_block(RECIPE, "cpp", "struct PReLU"),
    "cutlass_fused/epilogues/linear_prelu.py": find_block(RECIPE, "python", "EPILOGUE = "),
    "cutlass_fused/nn/linear_prelu.py": find_block(RECIPE, "python", "class LinearPReLU"),
    "tests/epilogues/test_linear_prelu.py": find_block(RECIPE, "python", "def test_special_values"),
}
COMMAND = find_block(RECIPE, "sh", "python -m").splitlines()[0]
OP_FILE = "src/ops/linear_prelu.cpp"


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The repository with the four files and the row, and what the command has written."""
    folder = tmp_path_factory.mktemp("copy")
    follow_recipe(folder, RECIPE, FILES, "EPILOGUES", ROW, COMMAND)
    return folder


def test_it_touches_four_files_and_a_row(copy):
    """And two that the command writes."""
    changed = list_changed(copy)
    assert len(FILES) == 4
    written = {OP_FILE, "cutlass_fused/schemas.txt"}
    assert changed == {*FILES, "src/kernels/table.py", *written}
    assert all(f"`{path}`" in RECIPE for path in changed)
    lines = [(f / "cutlass_fused/schemas.txt").read_text().splitlines() for f in (ROOT, copy)]
    assert lines[1][:-1] == lines[0]
    assert lines[1][-1].startswith("linear_prelu(Tensor x, Tensor weight, Tensor? bias, Tensor sl")


TESTS = ("epilogues/test_epilogues", "epilogues/test_linear_prelu", "package/test_import")
TESTS += ("ops/test_reference", "ops/test_fakes", "ops/test_bad_input", "ops/test_planted_faults")


def test_tests_take_it_in(copy):
    """Those of all epilogues: functor, gradient in float64, compiled too, files, shards; those of
    all ops: the CPU kernel, the fake, bad input, the judge; and its own."""
    files = [f"tests/{name}.py" for name in TESTS]
    options = ("-q", "-k", "linear_prelu", "-p", "no:cacheprovider")
    said = run_python(copy, "-m", "pytest", *options, *files)
    found = re.search(r"(\d+) passed", said)
    assert found and int(found[1]) > 300 and "failed" not in said, said


CODE = """
import torch
import torch.distributed.tensor
import cutlass_fused
from cutlass_fused import functional, nn
from cutlass_fused.weights import prepared
from cutlass_fused._library import ops
from cutlass_fused.sharding._layouts import CUTS
from torch.utils.flop_counter import FlopCounterMode

assert "LinearPReLU" in nn.__all__ and nn.LinearPReLU in prepared._MODULES
assert "linear_prelu" in functional.__all__ and CUTS["linear_prelu"] == ("rows", "columns", "sum")
module, x = nn.LinearPReLU(64, 32), torch.randn(16, 64)
assert sorted(module.state_dict()) == ["gemm.bias", "gemm.weight", "slopes"]
with FlopCounterMode(display=False) as counter:
    module(x)
assert counter.get_total_flops() == 2 * 16 * 32 * 64
with torch.no_grad(), torch.autocast("cpu"):
    assert module(x).dtype == torch.bfloat16
program = torch.export.export(module.eval(), (x,)).graph
assert any(node.target == ops.linear_prelu.default for node in program.nodes)
(gemm,) = prepared._find_gemms(module)
assert gemm[0] is module.gemm
print(functional.linear_prelu.__doc__.splitlines()[0])
"""


def test_the_rest_is_there(copy):
    """Module, prepare, shards, FLOPs, autocast, export."""
    assert run_python(copy, "-c", CODE) == "y = prelu(x @ weight.T + bias, slopes)\n"


# Every kind of operand, and no gradient of its own. No kernel: it runs on the CPU.
OTHER = """
import torch
from ._description import Epilogue, Functor, Number, Row, RowOrScalar

def formula(z, scale, shift, power):
    z = z if scale is None else z * scale
    return torch.tanh(z if shift is None else z + shift) * power

EPILOGUE = Epilogue(
    op="linear_other",
    text="tanh(z * scale + shift) * power",
    formula=formula,
    operands=(RowOrScalar("scale"), Row("shift"), Number("power", default=1.0)),
    functor=Functor("Other", "other.hpp"),
)
"""
OTHER_CODE = """
import torch
from cutlass_fused.functional import linear_other
from torch.nn import functional as F

def make(*size, **options):
    return torch.randn(*size, dtype=torch.float64, requires_grad=True, **options)

def plain(x, weight, bias=None, scale=1.0, shift=0.0, power=1.0):
    return torch.tanh(F.linear(x, weight, bias) * scale + shift) * power

x, weight, bias, scale, shift = make(4, 5), make(3, 5), make(3), make(3), make(3)
one = make(1)
for operands in ((), (scale,), (one, shift), (2.0, shift, 0.5), (scale, shift, torch.tensor(3.0))):
    y = linear_other(x, weight, bias, *operands)
    torch.testing.assert_close(y, plain(x, weight, bias, *operands))
    with torch.no_grad():
        torch.testing.assert_close(linear_other(x, weight, bias, *operands), y)
assert torch.autograd.gradcheck(linear_other, (x, weight, bias, scale, shift, 0.5))
run = torch.compile(linear_other, backend="aot_eager", fullgraph=True)
arguments = (x, weight, bias, scale, shift, 0.5)
torch.testing.assert_close(run(*arguments), plain(*arguments))
half = [t.detach().bfloat16() for t in (x, weight, bias)]
assert linear_other(*half, torch.ones(3)).dtype == torch.float32
for operands in ((1.5,), (None, torch.ones(3))):
    assert linear_other(*half, *operands).dtype == torch.bfloat16
with torch.no_grad():
    expected = plain(x, weight, bias, scale)
    torch.testing.assert_close(linear_other(x.to_sparse(), weight, bias, scale), expected)
    rows = torch.nested.nested_tensor([x[:1], x[1:]], layout=torch.jagged)
    torch.testing.assert_close(linear_other(rows, weight, bias, scale).values(), expected)
for arguments, said in (
    ((x, weight, bias, "2"), "linear_other: scale must be a number or a tensor, got str"),
    ((x, weight, bias, None, 1.0), "linear_other: shift must be a tensor or None, got float"),
    ((x, weight, bias, None, None, "1"), "linear_other: power must be a number, got str"),
    (
        (x, weight, bias, scale[:2]),
        "linear_other: scale must have one element or shape (N,) = (3,), got (2,)",
    ),
):
    try:
        linear_other(*arguments)
    except (TypeError, RuntimeError) as error:
        assert str(error) == said, error
    else:
        raise AssertionError(said)
"""


def test_operands_of_every_kind(tmp_path):
    """Through the op, compiled, differentiated in parts, and for sparse and nested inputs."""
    ignore = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(ROOT / "cutlass_fused", tmp_path / "cutlass_fused", ignore=ignore)
    (tmp_path / "cutlass_fused/epilogues/linear_other.py").write_text(OTHER)
    run_python(tmp_path, "-W", "ignore", "-c", OTHER_CODE)


@pytest.mark.parametrize("archs", ["8.0", "9.0a"])
def test_op_compiles(copy, archs):
    """Without SM90 kernels and with them."""
    try:
        check_op_compiles(copy, OP_FILE, archs)
    except SystemExit as missing:
        pytest.skip(str(missing))


def test_files_that_an_epilogue_compiles_are_those_that_are_named(monkeypatch):
    before = {file.file_name: file.source for file in kernels.list_files()}
    row = ast.literal_eval(f"{{{ROW}}}")
    monkeypatch.setattr(kernels, "EPILOGUES", EPILOGUES | row)
    after = {file.file_name: file.source for file in kernels.list_files()}
    changed = {name for name, source in after.items() if before.get(name) != source}
    text = RECIPES[RECIPES.index("`make build` compiles the files again") :].partition("\n\n")[0]
    named = set(re.findall(r"`(sm\w+|apply_\w+|tf32x3_\w+)`", text))
    assert {f"{name}.cu" for name in named} == changed
