"""The recipe for a stand-alone kernel, followed to the letter in a copy of the repository."""

import re
import shutil

import pytest
from documents import TEXTS
from recipe_copy import check_op_compiles, find_block, follow_recipe, list_changed, run_python

from build_system.paths import ROOT

RECIPE = TEXTS["include/cutlass_fused/norm/README.md"]
ROW = find_block(RECIPE, "python", '"rms_norm": (')
# The files that the recipe tells to write.
FILES = {
    "include/cutlass_fused/norm/rms_norm.hpp": find_block(RECIPE, "cpp", "Declarations only"),
    "include/cutlass_fused/norm/run_rms_norm.cuh": find_block(
        RECIPE, "cpp", "struct RmsNormParams"
    ),
    "cutlass_fused/row_ops/rms_norm.py": find_block(RECIPE, "python", "ROW_OP = "),
    "cutlass_fused/nn/rms_norm.py": find_block(RECIPE, "python", "class RMSNorm"),
    "tests/row_ops/test_rms_norm.py": find_block(RECIPE, "python", "def test_module_is"),
}
COMMAND = find_block(RECIPE, "sh", "python -m").splitlines()[0]
OP_FILE = "src/ops/rms_norm.cpp"


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The repository with the five files and the row, and what the command has written."""
    folder = tmp_path_factory.mktemp("copy")
    follow_recipe(folder, RECIPE, FILES, "STANDALONE", ROW, COMMAND)
    return folder


def test_it_touches_five_files_and_a_row(copy):
    """And two that the command writes."""
    changed = list_changed(copy)
    assert len(FILES) == 5
    written = {OP_FILE, "cutlass_fused/schemas.txt"}
    assert changed == {*FILES, "src/kernels/table.py", *written}
    assert all(f"`{path}`" in RECIPE for path in changed)
    lines = [(f / "cutlass_fused/schemas.txt").read_text().splitlines() for f in (ROOT, copy)]
    assert lines[1][:-1] == lines[0]
    assert lines[1][-1] == "rms_norm(Tensor x, float eps=1e-05) -> Tensor"


TESTS = ("row_ops/test_row_ops", "row_ops/test_rms_norm", "ops/test_fakes", "ops/test_bad_input")
TESTS += ("ops/test_planted_statistics_faults",)


def test_tests_take_it_in(copy):
    """Those of all ops along rows: the judge, gradient in float64, compiled too, files, shards;
    those of all ops: the CPU kernel, the fake, bad input, planted faults; and its own."""
    files = [f"tests/{name}.py" for name in TESTS]
    options = ("-q", "-k", "rms_norm", "-p", "no:cacheprovider")
    said = run_python(copy, "-m", "pytest", *options, *files)
    found = re.search(r"(\d+) passed", said)
    assert found and int(found[1]) > 250 and "failed" not in said, said


CODE = """
import torch
import torch.distributed.tensor
import cutlass_fused
from cutlass_fused import functional, nn
from cutlass_fused._library import _TENSOR_OPS, ops
from cutlass_fused.sharding._layouts import CUTS
from cutlass_fused.weights import prepared

assert "RMSNorm" in nn.__all__ and "rms_norm" in functional.__all__
assert CUTS["rms_norm"] == ("rows",) and "rms_norm" in {op.__name__ for op in _TENSOR_OPS}
module, x = nn.RMSNorm(), torch.randn(16, 64)
assert not module.state_dict() and not list(prepared._find_gemms(module))
with torch.no_grad(), torch.autocast("cpu"):
    assert module(x).dtype == torch.float32 and module(x.bfloat16()).dtype == torch.bfloat16
program = torch.export.export(module.eval(), (x,)).graph
assert any(node.target == ops.rms_norm.default for node in program.nodes)
print(functional.rms_norm.__doc__.splitlines()[0])
"""


def test_the_rest_is_there(copy):
    """Module, prepare, shards, autocast, export."""
    said = run_python(copy, "-c", CODE)
    assert said == "y = x / sqrt(mean(x^2) + eps), over the last dimension\n"


# Every kind of operand, a dtype of the result, and a gradient or none. No kernel: it runs on the
# CPU.
OTHER = """
import torch
from ._description import Bound, Gradient, Launch, Number, Row, RowOp

def formula(x, gamma, beta, power):
    y = (x - x.mean(-1, keepdim=True)) * power * gamma
    return torch.tanh(y if beta is None else y + beta)

def of_beta(grad_y, x, gamma, beta, power):
    return grad_y * (1 - formula(x, gamma, beta, power).square())

def of_gamma(grad_y, x, gamma, beta, power):
    return of_beta(grad_y, x, gamma, beta, power) * (x - x.mean(-1, keepdim=True)) * power

def of_x(grad_y, x, gamma, beta, power):
    v = of_beta(grad_y, x, gamma, beta, power) * gamma * power
    return v - v.mean(-1, keepdim=True)

ROW_OP = RowOp(
    op="{op}",
    text="tanh((x - mean(x)) * power * gamma + beta)",
    formula=formula,
    operands=(Row("gamma", required=True), Row("beta"), Number("power", default=1.0)),
    launch=Launch("run_other", "norm/other.hpp"),
    gradient={gradient},
    out_dtype=True,
    bound=Bound(size=lambda x, gamma, beta, power: 1 + 4 * gamma.abs() * power * (
        x.abs() + x.abs().mean(-1, keepdim=True)) + (0 if beta is None else beta.abs())),
)
"""
GRADIENT = """Gradient(x=of_x, operands={"gamma": of_gamma, "beta": of_beta})"""
OTHER_CODE = """
import torch
from cutlass_fused.functional import other_with_gradient, other_without

def make(*size):
    return torch.randn(*size, dtype=torch.float64, requires_grad=True)

def plain(x, gamma, beta=None, power=1.0):
    y = (x - x.mean(-1, keepdim=True)) * power * gamma
    return torch.tanh(y if beta is None else y + beta)

x, gamma, beta = make(4, 5), make(5), make(5)
for function in (other_with_gradient, other_without):
    for operands in ((gamma,), (gamma, beta), (gamma, None, 0.5), (gamma, beta, torch.tensor(2))):
        y = function(x, *operands)
        torch.testing.assert_close(y, plain(x, *operands))
        with torch.no_grad():
            torch.testing.assert_close(function(x, *operands), y)
    assert torch.autograd.gradcheck(function, (x, gamma, beta, 0.5))
    assert torch.autograd.gradcheck(function, (x.detach(), gamma.detach(), beta, 0.5))
    run = torch.compile(function, backend="aot_eager", fullgraph=True)
    arguments = (x, gamma, beta, 0.5)
    torch.testing.assert_close(run(*arguments), plain(*arguments))
    half = x.detach().bfloat16().requires_grad_()
    for out_dtype in (None, torch.float32):
        y = function(half, gamma.detach().float(), out_dtype=out_dtype)
        assert y.dtype == (out_dtype or torch.bfloat16)
        assert torch.autograd.grad(y.sum(), half)[0].dtype == torch.bfloat16
    name = function.__name__
    for arguments, said in (
        ((x, 1.0), f"{name}: gamma must be a tensor, got float"),
        ((x, gamma, 1.0), f"{name}: beta must be a tensor or None, got float"),
        ((x, gamma, None, "1"), f"{name}: power must be a number, got str"),
        ((x, gamma[:2]), f"{name}: gamma must have shape (N,) = (5,), got (2,)"),
    ):
        try:
            function(*arguments)
        except (TypeError, RuntimeError) as error:
            assert str(error) == said, error
        else:
            raise AssertionError(said)
"""
OTHER_OPS = ("other_with_gradient", "other_without")


@pytest.fixture(scope="module")
def copy_with_others(copy, tmp_path_factory):
    """Another copy, with operands of every kind."""
    folder = tmp_path_factory.mktemp("others")
    shutil.copytree(copy, folder, dirs_exist_ok=True, symlinks=True)
    for op, gradient in zip(OTHER_OPS, (GRADIENT, "None"), strict=True):
        text = OTHER.replace("{op}", op).replace("{gradient}", gradient)
        (folder / f"cutlass_fused/row_ops/{op}.py").write_text(text)
    run_python(folder, *COMMAND.split()[1:])
    return folder


def test_operands_of_every_kind(copy_with_others):
    """Through the op, compiled, and differentiated in both ways."""
    run_python(copy_with_others, "-W", "ignore", "-c", OTHER_CODE)


def test_tests_take_operands_of_every_kind_in(copy_with_others):
    files = [f"tests/{name}.py" for name in TESTS if name != "row_ops/test_rms_norm"]
    options = ("-q", "-k", "other_with and not launch", "-p", "no:cacheprovider")
    said = run_python(copy_with_others, "-m", "pytest", *options, *files)
    assert re.search(r"\d{3,} passed", said) and "failed" not in said, said


@pytest.mark.parametrize("archs", ["8.0", "9.0a"])
def test_op_compiles(copy, archs):
    """Without SM90 kernels and with them."""
    try:
        check_op_compiles(copy, OP_FILE, archs)
    except SystemExit as missing:
        pytest.skip(str(missing))


def test_op_with_operands_of_every_kind_compiles(copy_with_others):
    path = copy_with_others / "include/cutlass_fused/norm/other.hpp"
    path.write_text("""
    #include "cutlass_fused/common/types.hpp"
    namespace cutlass_fused {
    template <DataType kIn>
    Status run_other(Matrix const& x, void* y, DataType y_type, Vector const& gamma,
                     Vector const& beta, float power, Device const& device, cudaStream_t stream);
    }
    """)
    try:
        check_op_compiles(copy_with_others, f"src/ops/{OTHER_OPS[0]}.cpp", "9.0a")
    except SystemExit as missing:
        pytest.skip(str(missing))
