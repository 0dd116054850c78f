"""Constructors, names and printing of the modules beside the plain ones; torch.fx."""

import copy
import importlib
import pickle

import pytest
import torch
from plain import run_parts

import cutlass_fused
from cutlass_fused import nn

IN, OUT = 12, 20
FUSED = {
    "LinearScaleLeakyReLU": lambda **options: nn.LinearScaleLeakyReLU(IN, OUT, 2.0, 0.1, **options),
    "LinearScaleBatchNorm1d": lambda **options: nn.LinearScaleBatchNorm1d(
        IN, OUT, (OUT,), **options
    ),
    "LinearBatchNorm1dScaleSoftmax": lambda **options: nn.LinearBatchNorm1dScaleSoftmax(
        IN, OUT, scale_shape=(OUT,), **options
    ),
}
ALL = FUSED | {
    "Linear": lambda: nn.Linear(IN, OUT),
    "LinearActivation": lambda: nn.LinearActivation(IN, OUT, "gelu"),
    "BatchNorm1d": lambda: nn.BatchNorm1d(IN),
    "Softmax": lambda: nn.Softmax(-1),
}
with_batch_norm = pytest.mark.parametrize("make", list(FUSED.values())[1:], ids=list(FUSED)[1:])
each_fused = pytest.mark.parametrize("make", FUSED.values(), ids=FUSED)
each = pytest.mark.parametrize("make", ALL.values(), ids=ALL)


def close(ours, expected):
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)


@with_batch_norm
def test_options_of_both_twins(make):
    module = make(eps=0.5, momentum=None, affine=False, track_running_stats=False)
    bn = module.bn
    assert (bn.eps, bn.momentum, bn.affine, bn.track_running_stats) == (0.5, None, False, False)
    assert not [name for name, _ in module.named_parameters() if name.startswith("bn.")]
    x = torch.randn(6, IN)
    close(module(x), run_parts(module, x))
    close(module.eval()(x), run_parts(module, x))


def test_old_names_are_aliases():
    kind = nn.LinearBatchNorm1dScaleSoftmax
    for module in (kind(IN, OUT, 0.5, None), kind(IN, OUT, bn_eps=0.5, bn_momentum=None)):
        assert (module.bn.eps, module.bn.momentum) == (0.5, None)
    assert (kind(IN, OUT).bn.eps, kind(IN, OUT).bn.momentum) == (1e-5, 0.1)
    with pytest.raises(TypeError, match="eps and bn_eps are one, got both"):
        kind(IN, OUT, 1e-5, eps=1e-5)
    with pytest.raises(TypeError, match="momentum and bn_momentum are one, got both"):
        kind(IN, OUT, bn_momentum=None, momentum=0.1)


@pytest.mark.parametrize("shape", [(1, OUT), (1, 1)], ids=str)
@with_batch_norm
def test_scales_that_are_rows(make, shape):
    del make  # whose scale_shape is set
    for module in (
        nn.LinearScaleBatchNorm1d(IN, OUT, shape),
        nn.LinearBatchNorm1dScaleSoftmax(IN, OUT, scale_shape=shape),
    ):
        x = torch.randn(6, IN)
        assert module.scale.shape == shape
        close(module(x), run_parts(module, x))


@each_fused
def test_reset_parameters_draws_as_the_constructor_does(make):
    torch.manual_seed(3)
    expected = make().state_dict()
    module = make()
    module(torch.randn(6, IN))
    torch.manual_seed(3)
    module.reset_parameters()
    for name, tensor in module.state_dict().items():
        assert torch.equal(tensor, expected[name]), name


def make_parts():
    return torch.nn.Linear(IN, OUT), torch.nn.BatchNorm1d(OUT)


def test_from_eager_takes_numbers():
    x = torch.randn(6, IN)
    for scale in (1.5, 2):
        for build in (
            lambda linear, bn, s=scale: nn.LinearScaleBatchNorm1d.from_eager(linear, s, bn),
            lambda linear, bn, s=scale: nn.LinearBatchNorm1dScaleSoftmax.from_eager(linear, bn, s),
        ):
            parts = make_parts()
            module = build(*parts)
            close(module(x), run_parts(module, x))
            assert float(module.scale) == scale and not module.scale.requires_grad
            assert "scale" not in module.state_dict()
            assert module.double().scale.dtype == torch.float64


def test_a_number_as_a_scale_keeps_its_digits():
    """PyTorch multiplies by the number itself, whatever the dtype of the model."""
    x = torch.randn(6, IN)
    for build in (
        lambda linear, bn: nn.LinearScaleBatchNorm1d.from_eager(linear, 10.3, bn),
        lambda linear, bn: nn.LinearBatchNorm1dScaleSoftmax.from_eager(linear, bn, 10.3),
        lambda linear, bn: nn.LinearScaleBatchNorm1d.from_eager(linear, torch.tensor(10.3), bn),
    ):
        module = build(*make_parts()).bfloat16()
        assert module.scale == torch.tensor(10.3) and module.scale.dtype == torch.float32
        assert module(x.bfloat16()).dtype == torch.bfloat16
        module = build(*make_parts()).half().double()
        assert abs(float(module.scale) - 10.3) < 1e-6 and module.scale.dtype == torch.float64
        empty = build(*make_parts()).to("meta").to_empty(device="cpu")
        assert empty.scale == torch.tensor(10.3)
        again = pickle.loads(pickle.dumps(copy.deepcopy(module))).float()
        assert again.scale == torch.tensor(10.3)


def test_from_eager_takes_our_linear():
    x = torch.randn(6, IN)
    linear, bn = nn.Linear(IN, OUT, precision="tf32"), torch.nn.BatchNorm1d(OUT)
    for module in (
        nn.LinearScaleLeakyReLU.from_eager(linear, 2.0, 0.1),
        nn.LinearScaleBatchNorm1d.from_eager(linear, 2.0, bn),
        nn.LinearBatchNorm1dScaleSoftmax.from_eager(linear, bn),
        nn.Linear.from_eager(linear),
    ):
        assert module.precision in ("tf32", None)
        if hasattr(module, "gemm"):
            assert module.gemm is linear and module.precision == "tf32"
            close(module(x), run_parts(module, x))
    module = nn.LinearScaleLeakyReLU.from_eager(linear, 2.0, 0.1, precision="ieee")
    assert module.precision == "ieee"


def test_from_eager_takes_a_sequential():
    linear, bn = make_parts()
    x, sequential = torch.randn(6, IN), torch.nn.Sequential(linear, bn)
    for module, expected in (
        (nn.LinearScaleBatchNorm1d.from_eager(sequential), sequential),
        (
            nn.LinearBatchNorm1dScaleSoftmax.from_eager(
                torch.nn.Sequential(linear, bn, torch.nn.Softmax(1))
            ),
            torch.nn.Sequential(linear, bn, torch.nn.Softmax(1)),
        ),
        (
            nn.LinearScaleLeakyReLU.from_eager(
                torch.nn.Sequential(linear, torch.nn.LeakyReLU(0.3))
            ),
            torch.nn.Sequential(linear, torch.nn.LeakyReLU(0.3)),
        ),
    ):
        assert module.gemm is linear
        close(module(x), expected(x))
    for wrong in ((linear,), (linear, torch.nn.ReLU()), (linear, bn, torch.nn.ReLU())):
        with pytest.raises(TypeError, match=r"a Sequential must be of \(Linear, BatchNorm1d"):
            nn.LinearScaleBatchNorm1d.from_eager(torch.nn.Sequential(*wrong))


def test_from_eager_of_a_sequential_ignores_nothing():
    linear, bn = make_parts()
    sequential = torch.nn.Sequential(linear, bn)
    for kind in (nn.LinearScaleBatchNorm1d, nn.LinearBatchNorm1dScaleSoftmax):
        build = kind.from_eager
        assert float(build(sequential, scale=2.0).scale) == 2.0
        with pytest.raises(TypeError, match="bn must be None beside a Sequential.*BatchNorm1d"):
            build(sequential, bn=bn)
    with pytest.raises(TypeError, match="bn must be None beside a Sequential, which has one, got"):
        nn.LinearBatchNorm1dScaleSoftmax.from_eager(sequential, 2.0)
    for dim in (0, None):
        with pytest.raises(ValueError, match=f"softmax must have dim=1, got dim={dim}"):
            nn.LinearBatchNorm1dScaleSoftmax.from_eager(
                torch.nn.Sequential(linear, bn, torch.nn.Softmax(dim))
            )
    for part, name in ((sequential, "linear"), (softmax := torch.nn.Softmax(1), "softmax")):
        hook = part.register_forward_hook(lambda *arguments: None)
        with pytest.raises(TypeError, match=f"{name} must have no hooks, which would not run"):
            nn.LinearBatchNorm1dScaleSoftmax.from_eager(
                sequential if part is sequential else torch.nn.Sequential(linear, bn, softmax)
            )
        hook.remove()


def test_reset_parameters_leaves_a_number():
    linear, bn = make_parts()
    for module in (
        nn.LinearScaleBatchNorm1d.from_eager(linear, 3.0, bn),
        nn.LinearBatchNorm1dScaleSoftmax.from_eager(linear, bn, 3.0),
    ):
        module.reset_parameters()
        assert float(module.scale) == 3.0


def test_map_state_dict():
    sequential = torch.nn.Sequential(*make_parts())
    module = nn.LinearScaleBatchNorm1d.from_eager(torch.nn.Sequential(*make_parts()))
    names = {"0": "gemm", "1": "bn"}
    state = nn.map_state_dict(sequential.state_dict(), names)
    module.load_state_dict(state, strict=True)
    x = torch.randn(6, IN)
    close(module.eval()(x), sequential.eval()(x))
    back = nn.map_state_dict(module.state_dict(), {new: old for old, new in names.items()})
    assert list(back) == list(sequential.state_dict())
    assert list(nn.map_state_dict({"net.0.weight": 1, "b": 2}, {"net.0": "gemm"})) == [
        "gemm.weight",
        "b",
    ]
    linear = torch.nn.utils.parametrizations.weight_norm(sequential[0])
    module = nn.LinearScaleBatchNorm1d.from_eager(copy.deepcopy(linear), 1.0, sequential[1])
    state = nn.map_state_dict(sequential.state_dict(), names)
    module.load_state_dict(state, strict=True)
    assert "gemm.parametrizations.weight.original0" in state
    nested = {"0.1.weight": 1, "0.weight": 2}
    assert list(nn.map_state_dict(nested, {"0": "a", "0.1": "b"})) == ["b.weight", "a.weight"]
    with pytest.raises(ValueError, match="two entries must not have one name, got 'a.weight'"):
        nn.map_state_dict({"a.weight": 1, "b.weight": 2}, {"b": "a"})


def test_printing_tells_ours_from_those_of_pytorch():
    ours = ("cutlass_fused.", "LinearActivation", "LinearScale", "LinearBatchNorm")
    for make in ALL.values():
        assert repr(make()).startswith(ours)


@pytest.mark.parametrize("name", ["Linear", "BatchNorm1d", "Softmax"])
def test_argument_of_forward(name):
    module, x = ALL[name]().eval(), torch.randn(6, IN)
    assert torch.equal(module(input=x), module(x))


@each
def test_leaves_of_fx(make):
    model, x = torch.nn.Sequential(make(), torch.nn.ReLU()).eval(), torch.randn(6, IN)
    traced = torch.fx.symbolic_trace(model)
    assert [node.target for node in traced.graph.nodes if node.op == "call_module"] == ["0", "1"]
    assert not [node for node in traced.graph.nodes if node.op == "call_function"]
    assert torch.equal(traced(x), model(x))


@each
def test_fx_of_the_module_itself(make):
    with pytest.raises(TypeError, match="torch.fx must be given a model that holds this module"):
        torch.fx.symbolic_trace(make())


def test_public_names():
    assert set(dir(cutlass_fused)) == set(cutlass_fused.__all__)


def test_reload():
    before = cutlass_fused.nn.Linear(IN, OUT)
    module = importlib.reload(cutlass_fused)
    assert module.nn.Linear(IN, OUT)(torch.randn(6, IN)).shape == (6, OUT)
    assert before(torch.randn(6, IN)).shape == (6, OUT)


def test_autotune_decorates():
    calls = []

    @cutlass_fused.autotune()
    def run(x, *, depth=1):
        """What it says."""
        calls.append(depth)
        return run(x, depth=depth - 1) if depth else x + 1

    assert run(1, depth=2) == 2 and calls == [2, 1, 0]
    assert run.__name__ == "run" and run.__doc__ == "What it says."
