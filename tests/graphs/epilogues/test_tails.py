"""What stands behind a Linear becomes part of its call, and the results are those of PyTorch."""

import pytest
import torch
from fused_graphs import EPILOGUE, Compiled, compare
from tails import ENDS, WHOLE, K, M, N, Tail, norm
from torch import nn
from torch.nn import functional as F

from cutlass_fused.matmul._report import COMPILED

pytestmark = pytest.mark.usefixtures("fused_on_cpu")


# Those that are an op with a name.
NAMED = {
    "leaky_relu": "linear_scale_leaky_relu",
    "scale, leaky_relu": "linear_scale_leaky_relu",
    "batch norm": "linear_scale_batch_norm_inference",
}


def words(lines):
    return [line.split(" ")[2] for line in lines if " = " in line]


@pytest.mark.parametrize("name", WHOLE)
def test_inference(name):
    function, shapes, expected = WHOLE[name]
    model = Tail(function, *shapes).requires_grad_(False)
    compiled = Compiled(model)
    compare(compiled, model, torch.randn(M, K))
    assert compiled.others() == []
    assert compiled.ours() == [NAMED.get(name, "linear_epilogue")]
    if name in NAMED:
        return
    (lines,) = compiled.programs()
    assert lines[0 if "columns" not in lines[0] else 1] == "v0 = add acc p0"
    if expected is not None:
        assert sorted(words(lines)[1:]) == sorted(expected)


@pytest.mark.parametrize("name", ["gelu", "columns", "gate", "softmax"])
def test_without_a_bias(name):
    function, shapes, _ = WHOLE[name]
    model = Tail(function, *shapes, bias=False).requires_grad_(False)
    compiled = Compiled(model)
    compare(compiled, model, torch.randn(M, K))
    assert compiled.others() == [] and len(compiled.programs()) == 1


@pytest.mark.parametrize("name", ENDS)
def test_where_a_chain_ends(name):
    function, shapes, left, expected = ENDS[name]
    model = Tail(function, *shapes).requires_grad_(False)
    compiled = Compiled(model)
    compare(compiled, model, torch.randn(M, K))
    (lines,) = compiled.programs()
    assert words(lines) == ["add", *expected]
    if left is not None:
        assert compiled.others() == left


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", [n for n in WHOLE if WHOLE[n][2] is not None])
def test_16_bits(name, dtype):
    function, shapes, expected = WHOLE[name]
    model = Tail(function, *shapes).requires_grad_(False).to(dtype)
    compiled = Compiled(model)
    compare(compiled, model, torch.randn(M, K, dtype=dtype))
    assert compiled.others() == []
    assert compiled.ours() == [NAMED.get(name, "linear_epilogue")]
    for lines in compiled.programs():
        assert sorted(words(lines)[1:]) == sorted(expected)


@pytest.mark.parametrize("name", ["softmax", "layer norm", "sum"])
def test_rows_of_16_bits_are_left(name):
    """A kernel behind the product is what Inductor has, too."""
    function, shapes, _ = WHOLE[name]
    model = Tail(function, *shapes).requires_grad_(False).bfloat16()
    compiled = Compiled(model)
    compare(compiled, model, torch.randn(M, K, dtype=torch.bfloat16))
    assert compiled.programs() == [] and "addmm" in compiled.others()


@pytest.mark.parametrize("name", [*WHOLE, *ENDS])
def test_training(name):
    function, shapes, *_ = WHOLE[name] if name in WHOLE else ENDS[name]
    if name == "whole numbers":
        pytest.skip("it has no gradient")
    model = Tail(function, *shapes)
    compiled = Compiled(model)
    compare(compiled, model, torch.randn(M, K), train=True)
    assert len(compiled.graphs) == 2


LEADING = ["gelu", "columns", "one value", "softmax", "layer norm", "sum", "mean, kept", "maximum"]


@pytest.mark.parametrize("train", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("name", LEADING)
def test_leading_dimensions(name, train):
    function, shapes, _ = WHOLE[name]
    if name in ("sum", "maximum"):
        shapes, function = [], {"sum": lambda z: z.sum(-1), "maximum": lambda z: z.amax(-1)}[name]
    if name == "mean, kept":
        function = lambda z: z.mean(-1, keepdim=True)  # noqa: E731
    model = Tail(function, *shapes).requires_grad_(train)
    compiled = Compiled(model)
    compare(compiled, model, torch.randn(2, 3, 4, K), train=train)
    if not train:
        assert compiled.others() == [] and len(compiled.programs()) == 1


@pytest.mark.parametrize("shape", [(2, 5, N), (2, 5, 1)], ids=str)
def test_operands_of_leading_dimensions(shape):
    model = Tail(lambda z, r: (z * r).relu(), shape).requires_grad_(False)
    compiled = Compiled(model)
    compare(compiled, model, torch.randn(2, 5, K))
    assert compiled.others() == [] and len(compiled.programs()) == 1


@pytest.mark.parametrize("shape", [(5, N), (1, 5, N), (5, 1), (2, 1, N)], ids=str)
def test_operands_that_are_repeated_end_a_chain(shape):
    """As positions of a sequence: no operand is the same for some rows."""
    model = Tail(lambda z, r: z.relu() + r, shape).requires_grad_(False)
    compiled = Compiled(model)
    compare(compiled, model, torch.randn(2, 5, K))
    assert compiled.others() == ["add"] and words(*compiled.programs()) == ["add", "relu"]


def batch_norm(z, *rows):
    mean, variance, gamma, beta = rows[:4]
    return (z - mean) * torch.rsqrt(variance + 1e-5) * gamma + beta


SHIFTED = {
    "batch norm, relu": lambda z, *rows: batch_norm(z, *rows).relu(),
    "scaled by a number": lambda z, *rows: batch_norm(z * 2.0, *rows).relu(),
    "of a sum": lambda z, *rows: (batch_norm(z + rows[0], *rows) * 3.0).relu(),
}


@pytest.mark.parametrize("name", SHIFTED)
def test_a_bias_and_a_mean_are_one_row(name):
    """There is room for four rows beside a product."""
    model = Tail(SHIFTED[name], *[(N,)] * 4).requires_grad_(False)
    with torch.no_grad():
        model.value0.mul_(100)  # a mean that is far from 0 beside the standard deviation
    compiled = Compiled(model)
    compare(compiled, model, torch.randn(M, K))
    (node,) = (n for n in compiled.graphs[0].graph.nodes if n.target is EPILOGUE)
    assert len(node.args[2]) <= 4
    assert set(compiled.others()) <= {"add", "sub", "mul", "neg"}


def test_a_batch_norm_in_eval_takes_one_word_for_a_root():
    """1 / sqrt(var + eps) had been two, in each element."""
    model = Tail(nn.Sequential(norm(), nn.ReLU())).requires_grad_(False)
    compiled = Compiled(model)
    compare(compiled, model, torch.randn(M, K))
    (lines,) = compiled.programs()
    assert sorted(words(lines)) == ["add", "add", "add", "mul", "mul", "relu", "rsqrt"]


def test_rows_that_are_read_again_stay():
    model = Tail(lambda z, *rows: (z, batch_norm(z, *rows)), *[(N,)] * 4).requires_grad_(False)
    compiled = Compiled(model)
    compare(compiled, model, torch.randn(M, K))


@pytest.mark.parametrize("name", ["leaky_relu", "scale, leaky_relu"])
def test_what_a_leaky_relu_saves_is_found_of_its_result(name):
    function, shapes, _ = WHOLE[name]
    compiled, x = Compiled(Tail(function, *shapes)), torch.randn(M, K)
    compiled(x)
    assert compiled.ours() == ["linear_scale_leaky_relu"] and compiled.others() == ["gt"]


@pytest.mark.parametrize("slope", [-0.5, 0.0])
def test_slopes_that_are_not_positive(slope):
    """Behind a negative one the result has another sign than what the gradient asks for."""
    model = Tail(lambda z: F.leaky_relu(z, slope))
    compare(Compiled(model), model, torch.randn(M, K), train=True)


@pytest.mark.parametrize("shape", [(M, N), (M, 1)])
def test_a_bias_that_is_no_row(shape):
    """The op of a LeakyReLU takes none."""
    model = Tail(lambda z, r: F.leaky_relu((z + r) * 2.0, 0.2), shape, bias=False)
    compiled = Compiled(model.requires_grad_(False))
    compare(compiled, model, torch.randn(M, K))
    assert compiled.ours() == ["linear_epilogue"] and compiled.others() == []


class Sum(nn.Module):
    def __init__(self, beta, alpha):
        super().__init__()
        torch.manual_seed(0)
        self.weight = nn.Parameter(torch.randn(N, K), requires_grad=False)
        self.numbers = {"beta": beta, "alpha": alpha}

    def forward(self, x, c):
        return F.gelu(torch.addmm(c, x, self.weight.t(), **self.numbers))


@pytest.mark.parametrize(("beta", "alpha"), [(0.5, 2.0), (0.0, 1.5), (2.0, 0.0)])
def test_numbers_of_a_sum(beta, alpha):
    """NaN of what is multiplied by 0 are nothing."""
    model, x, c = Sum(beta, alpha), torch.randn(M, K), torch.randn(M, N)
    if beta == 0.0:
        c[:, 1] = float("nan")
    if alpha == 0.0:
        x[1] = float("nan")
    compiled = Compiled(model)
    compare(compiled, model, x, c)
    assert len(compiled.programs()) == int(alpha != 0.0)


def test_what_a_chain_saves_is_a_result_too():
    compiled, x = Compiled(Tail(F.gelu)), torch.randn(M, K)
    compiled(x)
    assert compiled.programs() == [["v0 = add acc p0", "v1 = gelu v0", "return v0 v1"]]
    assert compiled.others() == []


def test_gradients_of_what_is_in_front_of_a_layer():
    """The backward pass has chains of its own."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(K, N), nn.SiLU(), nn.Linear(N, 48), nn.Tanh())
    compiled = Compiled(model)
    compare(compiled, model, torch.randn(M, K), train=True)
    (lines,) = compiled.programs(1)
    assert "exp" in words(lines) and words(lines)[-1] == "mul"


@pytest.mark.parametrize("train", [False, True], ids=["inference", "training"])
def test_autocast(train):
    """Products of what was cast; the result has the dtype of the model's."""
    model = Tail(lambda z, r: F.gelu(z) * r, (N,)).requires_grad_(train)
    compiled, x = Compiled(model), torch.randn(M, K)
    with torch.autocast("cpu", torch.bfloat16):
        found, expected = compiled(x), model(x)
    assert found.dtype == expected.dtype == torch.float32
    # Eager PyTorch rounds in front of GELU and behind it.
    torch.testing.assert_close(found, expected, rtol=2**-6, atol=2**-7)
    assert "linear_epilogue" in compiled.ours()


def test_under_the_switch():
    """The word of the pass counts, and the report knows of the product."""
    import cutlass_fused

    model, x = Tail(F.gelu).requires_grad_(False), torch.randn(M, K)
    with cutlass_fused.fp32_matmul("ieee"), cutlass_fused.matmul_report() as report:
        compiled = Compiled(model)
        compare(compiled, model, x)
    assert compiled.ours() == ["linear_epilogue"]
    assert ("addmm", ((N,), (M, K), (K, N)), COMPILED) in report.rows
