"""The functions with a batch norm: conventions for dtypes, autocast, statistics and bad input."""

import pytest
import torch
from calls import NORM_SOFTMAX_TRAIN, SCALE_NORM_TRAIN
from norm_functions import (
    BATCH_NORM,
    FUNCTIONS,
    FUSED,
    N,
    call,
    make_leaves,
    make_statistics,
)
from recorded_ops import RecordOps

pytestmark = pytest.mark.usefixtures("language")

functions = pytest.mark.parametrize("function", FUNCTIONS, ids=str)
fused = pytest.mark.parametrize("function", FUSED, ids=str)
in_train_and_eval = pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
with_and_without_grad = pytest.mark.parametrize("grad", [True, False], ids=["grad", "no_grad"])
SIXTEEN_BIT = (torch.float16, torch.bfloat16)


def run(function, leaves, training, *, grad=False, statistics=None, **options):
    if statistics is None:
        statistics = make_statistics(torch.float32)
    with torch.set_grad_enabled(grad):
        return call(function.ours, leaves, statistics, training, **options)


# ---- what reaches the op ----


@in_train_and_eval
@functions
def test_without_gradients_a_call_is_one_op(function, training):
    leaves = make_leaves(function, torch.float32, scale="0-dim")
    frozen = {name: leaf.detach() for name, leaf in leaves.items()}
    statistics = make_statistics(torch.float32)
    with RecordOps() as record:
        run(function, leaves, training, statistics=statistics)
        run(function, frozen, training, statistics=statistics, grad=True)
    assert record.names == 2 * [function.op(training)]


@in_train_and_eval
@functions
def test_tensors_reach_the_op_as_they_are(function, training):
    """Nothing is copied or read back: scale, statistics and affine vectors."""
    leaves = make_leaves(function, torch.float32)
    statistics, count = make_statistics(torch.float32), torch.tensor(3)
    options = {"num_batches_tracked": count} if training else {}
    with RecordOps() as record:
        run(function, leaves, training, statistics=statistics, momentum=None, **options)
    ((_, arguments),) = record.calls
    given = leaves | dict(zip(("running_mean", "running_var"), statistics, strict=True)) | options
    for name, tensor in given.items():
        assert arguments[name] is tensor, name
    if training:
        assert arguments["momentum"] is None and count == 4


@fused
def test_scale_as_number(function):
    """It becomes a tensor where x is."""
    leaves = make_leaves(function, torch.float32, scale="number")
    statistics = make_statistics(torch.float32)
    ours = run(function, leaves, False, statistics=statistics)
    leaves["scale"] = torch.tensor(leaves["scale"])
    assert torch.equal(ours, run(function, leaves, False, statistics=statistics))
    with RecordOps() as record:
        run(function, leaves | {"scale": None}, True)
    assert record.calls[0][1]["scale"] is None


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, *SIXTEEN_BIT], ids=str)
@in_train_and_eval
@fused
def test_number_as_scale_becomes_a_tensor_beside_x(function, training, dtype, device):
    """In the dtype of the sums: 16 bits would round it, 1.1 to 1.1016 in bfloat16."""
    leaves = {name: t.detach().to(device) for name, t in make_leaves(function, dtype).items()}
    statistics = [t.to(device) for t in make_statistics(dtype)]
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    for number in (1.1, 2):
        with RecordOps() as record:
            run(function, leaves | {"scale": number}, training, statistics=statistics)
        scale = record.calls[0][1]["scale"]
        assert (scale.dtype, scale.shape, scale.device.type) == (wide, (), device)
        if device != "meta":
            assert scale == torch.tensor(number, dtype=wide)


# ---- dtype of the result ----


@pytest.mark.parametrize("scale", ["None", "number", "0-dim", "(1,)", "(N,)"])
@pytest.mark.parametrize("vectors", [None, torch.float32], ids=["own", "fp32"])
@pytest.mark.parametrize("dtype", [torch.float32, *SIXTEEN_BIT], ids=str)
@with_and_without_grad
@in_train_and_eval
@fused
def test_dtype_is_that_of_the_expression(function, training, grad, dtype, vectors, scale):
    """A batch norm keeps the dtype of its input, whatever its vectors are."""
    leaves = make_leaves(function, dtype, vectors=vectors, scale=scale)
    z = torch.nn.functional.linear(leaves["x"], leaves["weight"])
    expected = z if leaves["scale"] is None else z * leaves["scale"]
    statistics = make_statistics(vectors or dtype)
    y = run(function, leaves, training, grad=grad, statistics=statistics)
    assert y.dtype == expected.dtype and y.requires_grad == grad


@pytest.mark.parametrize("out_dtype", [None, "own", torch.float32], ids=str)
@pytest.mark.parametrize("dtype", SIXTEEN_BIT, ids=str)
@with_and_without_grad
@in_train_and_eval
@fused
def test_out_dtype(function, training, grad, dtype, out_dtype):
    leaves = make_leaves(function, dtype, scale="0-dim", vectors=torch.float32)
    out_dtype = dtype if out_dtype == "own" else out_dtype
    y = run(function, leaves, training, grad=grad, out_dtype=out_dtype)
    assert y.dtype == (out_dtype or dtype)
    statistics = make_statistics(torch.float32)
    wide = {name: leaf.detach().float() for name, leaf in leaves.items()}
    ours = run(function, leaves, False, statistics=statistics, out_dtype=torch.float32)
    expected = run(function, wide, False, statistics=statistics)
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, *SIXTEEN_BIT, torch.float64], ids=str)
@in_train_and_eval
def test_batch_norm_keeps_the_dtype(training, dtype):
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    for vectors in (dtype, wide):
        leaves = make_leaves(BATCH_NORM, dtype, vectors=vectors)
        statistics = make_statistics(vectors)
        assert run(BATCH_NORM, leaves, training, statistics=statistics).dtype == dtype
        assert {t.dtype for t in statistics} == {vectors}


# ---- autocast ----


def run_plain_modules(function, leaves, statistics, training):
    """The plain model with torch's own modules, which autocast knows."""
    bn = torch.nn.functional.batch_norm
    z = torch.nn.functional.linear(leaves["x"], leaves["weight"], leaves["bias"])
    scale, vectors = leaves["scale"], (leaves["gamma"], leaves["beta"])
    if function is FUSED[0]:
        return bn(z * scale, *statistics, *vectors, training)
    return torch.softmax(scale * bn(z, *statistics, *vectors, training), dim=1)


@pytest.mark.parametrize("cast", SIXTEEN_BIT, ids=str)
@pytest.mark.parametrize("scale", ["0-dim", "(1,)", "(N,)"])
@with_and_without_grad
@in_train_and_eval
@fused
def test_autocast_gives_the_plain_dtype(function, training, grad, scale, cast):
    leaves = make_leaves(function, torch.float32, scale=scale, m=64)
    statistics = make_statistics(torch.float32)
    fresh = tuple(t.clone() for t in statistics)
    with torch.autocast("cpu", dtype=cast):
        expected = run_plain_modules(function, leaves, fresh, training)
        ours = run(function, leaves, training, grad=grad, statistics=statistics, eps=1e-5)
    assert ours.dtype == expected.dtype
    torch.testing.assert_close(ours, expected, rtol=0.05, atol=0.05, check_dtype=False)


@in_train_and_eval
@functions
def test_autocast_casts_matrices_and_nothing_else(function, training):
    leaves = make_leaves(function, torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16), RecordOps() as record:
        run(function, leaves, training)
    ((_, arguments),) = record.calls
    for name, tensor in arguments.items():
        if isinstance(tensor, torch.Tensor):
            cast = function.has_product and name in ("x", "weight", "bias")
            assert tensor.dtype == (torch.bfloat16 if cast else torch.float32), name


@in_train_and_eval
@fused
def test_gradients_under_autocast_have_the_dtype_of_their_inputs(function, training):
    leaves = make_leaves(function, torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = run(function, leaves, training, grad=True)
    y.square().sum().backward()
    for name, leaf in leaves.items():
        assert leaf.grad.dtype == torch.float32, name


@in_train_and_eval
@functions
def test_autocast_leaves_float64_alone(function, training):
    leaves = make_leaves(function)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = run(function, leaves, training, statistics=make_statistics())
    assert y.dtype == torch.float64


# ---- few rows ----


def test_one_row_in_eval():
    for function in FUNCTIONS:
        leaves = make_leaves(function, torch.float32, m=1)
        assert run(function, leaves, False).shape == (1, N)


def test_empty_batch_is_counted():
    """And moves nothing, as in PyTorch."""
    for function in FUNCTIONS:
        leaves, statistics = make_leaves(function, m=0), make_statistics()
        before, count = [t.clone() for t in statistics], torch.tensor(3)
        for momentum in (0.1, None):
            options = {"momentum": momentum, "num_batches_tracked": count}
            y = run(function, leaves, True, statistics=statistics, **options)
            assert y.shape == (0, N)
        assert count == 5 and all(map(torch.equal, statistics, before))


# ---- keep_z ----


@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no_grad"])
@fused
def test_z_is_kept_for_gradients_alone(function, grad):
    """It is a matrix of the size of y, and only the backward pass reads it."""
    leaves = make_leaves(function, torch.float32)
    with RecordOps() as record:
        run(function, leaves, True, grad=grad)
    ((_, arguments),) = record.calls
    assert arguments.get("keep_z", False) == grad


@pytest.mark.parametrize("dtype", [torch.float32, *SIXTEEN_BIT], ids=str)
@pytest.mark.parametrize("keep_z", [True, False])
@pytest.mark.parametrize("op", [SCALE_NORM_TRAIN, NORM_SOFTMAX_TRAIN])
def test_z_that_is_not_kept_is_empty(op, keep_z, dtype):
    x, weight = torch.randn(6, 3).to(dtype), torch.randn(N, 3).to(dtype)
    call_op = getattr(torch.ops.cutlass_fused, op)
    y, z, mean, rstd = call_op(x, weight, None, None, None, None, None, keep_z=keep_z)
    assert z.shape == (6 if keep_z else 0, N) and z.dtype == y.dtype == dtype
    default = call_op(x, weight, None, None, None, None, None)
    assert default[1].shape == (0, N)
    for ours, expected in zip((y, mean, rstd), (default[0], *default[2:]), strict=True):
        assert torch.equal(ours, expected)
