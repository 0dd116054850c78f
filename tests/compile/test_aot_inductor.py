"""AOTInductor packages of all modules: exported, packaged, loaded, and compared."""

import pytest
import torch
from package_program import compile_package_program
from packages import COMMON, IN, OUT, Case, export, make_inputs, make_model, make_package

# In float64 a batch norm is that of PyTorch.
CASES = (Case("float32"), *COMMON)


@pytest.fixture(scope="module", params=CASES, ids=str)
def package(request, tmp_path_factory):
    return make_package(request.param, tmp_path_factory.mktemp("packages"))


@pytest.fixture(scope="module")
def run_in_cpp(tmp_path_factory):
    return compile_package_program(tmp_path_factory.mktemp("run_package"))


def test_package(package):
    package.check(*package.run_in_python())


def test_package_in_cpp(package, run_in_cpp):
    package.check(*run_in_cpp(package))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_no_dtype_is_an_argument_of_an_op(case):
    """One arrives as another: an op is told by name, and only where there is something to say."""
    program = export(make_model(case), make_inputs(case)[0], case.grad)
    ops = [
        node
        for part in program.graph_module.modules()  # a region of autocast is one
        for node in part.graph.nodes
        if getattr(node.target, "namespace", None) == "cutlass_fused"
    ]
    assert len(ops) == 9
    for node in ops:
        values = [*node.args, *node.kwargs.values()]
        assert not any(isinstance(value, torch.dtype) for value in values), node.format_node()
    named = [node for node in ops if "float32" in (*node.args, *node.kwargs.values())]
    assert len(named) == (0 if case.cast is None else 4)


def test_ops_that_are_given_a_dtype():
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


class CallsOfBefore(torch.nn.Module):
    """Each op with a product, and the softmax, told its dtype as exports did before `out`."""

    def __init__(self, dtype):
        super().__init__()
        self.dtype = dtype
        self.register_buffer("weight", torch.randn(OUT, IN).bfloat16() / 8)
        self.register_buffer("gamma", torch.rand(OUT) + 0.5)
        for mode in ("eval", "train", "softmax_eval", "softmax_train"):
            self.register_buffer(f"{mode}_mean", torch.randn(OUT))
            self.register_buffer(f"{mode}_var", torch.rand(OUT) + 0.5)

    def forward(self, x):
        ops, weight = torch.ops.cutlass_fused, self.weight
        told, gamma = ("ieee", self.dtype), self.gamma

        def norm(op, mode, *arguments):
            statistics = getattr(self, f"{mode}_mean"), getattr(self, f"{mode}_var")
            return op(x, weight, None, gamma, *statistics, *arguments, *told)

        train = (None, gamma, None, 0.3, 1e-3)
        return {
            "linear": ops.linear(x, weight, None, *told),
            "leaky_relu": ops.linear_scale_leaky_relu(x, weight, None, None, 2.0, 0.1, *told),
            "softmax": ops.softmax(x, self.dtype),
            "eval": norm(ops.linear_scale_batch_norm_inference, "eval", gamma, None, 1e-3),
            "train": norm(ops.linear_scale_batch_norm_train, "train", *train)[0],
            "softmax_eval": norm(
                ops.linear_batch_norm_scale_softmax_inference, "softmax_eval", gamma, None, 1e-3
            ),
            "softmax_train": norm(
                ops.linear_batch_norm_scale_softmax_train, "softmax_train", *train
            )[0],
        }


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_saved_programs_that_give_a_dtype(dtype, tmp_path):
    """torch.export.load reads what was exported and saved before the ops had `out`."""
    model, x = CallsOfBefore(dtype), torch.randn(6, IN).bfloat16()
    torch.export.save(export(model, x), tmp_path / "program.pt2")
    program = torch.export.load(tmp_path / "program.pt2")
    given = [node for node in program.graph.nodes if dtype in node.args]
    assert len(given) == 7
    loaded = program.module()
    for rows in (6, 33):
        x = torch.randn(rows, IN).bfloat16()
        ours, expected = loaded(x), model(x)
        for name, value in expected.items():
            assert ours[name].dtype == value.dtype == dtype, name
            assert torch.equal(ours[name], value), name
        for name, buffer in model.named_buffers():
            assert torch.equal(loaded.get_buffer(name), buffer), name
