"""Gradients of the functions with a batch norm and of softmax, against eager in the same precision,
truth in float64."""

import pytest
import torch
from accuracy import matmul_settings
from cases import BF16, FP16, IEEE, TF32
from judge_gradients import differentiate, judge_all
from norm_functions import BATCH_NORM, FUNCTIONS, FUSED, call, run_eager
from recorded_ops import RecordOps

from cutlass_fused import functional

pytestmark = pytest.mark.gpu

M, N, K = 192, 136, 128
SCALES = {"None": None, "0-dim": (), "(1,)": (1,), "(N,)": (N,)}
PRECISIONS = (IEEE, TF32, BF16, FP16)
in_train_and_eval = pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])


def make_leaves(function, numerics, device, scale="(N,)", vectors="own"):
    """Tensors that ask for a gradient, running statistics, and the gradient of y.

    vectors "fp32": all but the bias, which PyTorch's linear wants in the dtype of x.
    """
    generator = torch.Generator(device).manual_seed(0)
    own, wide = numerics.dtype, torch.float32 if vectors == "fp32" else numerics.dtype

    def draw(*size, dtype=wide):
        return torch.randn(size, generator=generator, device=device).to(dtype)

    leaves = {"x": draw(M, K if function.has_product else N, dtype=own)}
    if function.has_product:
        leaves |= {"weight": draw(N, K, dtype=own) / K**0.5, "bias": draw(N, dtype=own)}
        size = SCALES[scale]
        leaves["scale"] = None if size is None else draw(*size).abs() + 0.5
    leaves |= {"gamma": draw(N).abs() + 0.5, "beta": draw(N)}
    for leaf in leaves.values():
        if leaf is not None:
            leaf.requires_grad_()
    return leaves, (draw(N) / 4, draw(N).abs() + 0.5), draw(M, N, dtype=torch.float32)


def compare(function, training, numerics, leaves, statistics, grad_y):
    options = {"precision": numerics.precision} if function.has_product else {}

    def copies(tensors):
        return [t.clone() for t in tensors]

    def asking(leaves):
        return {name: leaf for name, leaf in leaves.items() if leaf is not None}

    mine, theirs = copies(statistics), copies(statistics)
    ours = differentiate(
        lambda: call(function.ours, leaves, mine, training, eps=1e-2, **options),
        asking(leaves),
        grad_y,
    )
    with matmul_settings(numerics.precision):
        eager = differentiate(
            lambda: run_eager(function, leaves, theirs, training), asking(leaves), grad_y
        )
    exact = {
        name: None if leaf is None else leaf.detach().double().requires_grad_()
        for name, leaf in leaves.items()
    }
    moved = [t.double() for t in statistics]
    truth = differentiate(
        lambda: run_eager(function, exact, moved, training), asking(exact), grad_y.double()
    )
    names = ("running_mean", "running_var")
    ours |= dict(zip(names, mine, strict=True))
    eager |= dict(zip(names, theirs, strict=True))
    judge_all(ours, eager, truth | dict(zip(names, moved, strict=True)))
    assert training != torch.equal(mine[0], statistics[0])


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("numerics", PRECISIONS, ids=str)
@in_train_and_eval
@pytest.mark.parametrize("function", FUSED, ids=str)
def test_fused(device, function, training, numerics, scale):
    compare(function, training, numerics, *make_leaves(function, numerics, device, scale))


@pytest.mark.parametrize("numerics", [BF16, FP16], ids=str)
@in_train_and_eval
@pytest.mark.parametrize("function", FUNCTIONS, ids=str)
def test_vectors_in_fp32(device, function, training, numerics):
    leaves = make_leaves(function, numerics, device, vectors="fp32")
    compare(function, training, numerics, *leaves)


@pytest.mark.parametrize("numerics", [IEEE, BF16, FP16], ids=str)
@in_train_and_eval
def test_batch_norm(device, training, numerics):
    compare(BATCH_NORM, training, numerics, *make_leaves(BATCH_NORM, numerics, device))


@in_train_and_eval
@pytest.mark.parametrize("function", FUNCTIONS, ids=str)
def test_strided_inputs_and_gradient(device, function, training):
    leaves, statistics, grad_y = make_leaves(function, IEEE, device)
    for name in ("x", "weight"):
        if name in leaves:
            leaves[name] = leaves[name].detach().t().contiguous().t().requires_grad_()
    compare(function, training, IEEE, leaves, statistics, grad_y.t().contiguous().t())


@pytest.mark.parametrize("width", [7, 136, 2049, 20000])
@pytest.mark.parametrize("numerics", [IEEE, BF16, FP16], ids=str)
def test_softmax(device, numerics, width):
    generator = torch.Generator(device).manual_seed(0)
    x = torch.randn(33, width, generator=generator, device=device).to(numerics.dtype)
    grad_y = torch.randn(33, width, generator=generator, device=device)
    results = []
    for run, leaf in (
        (functional.softmax, x),
        (lambda x: torch.softmax(x, -1), x),
        (lambda x: torch.softmax(x, -1), x.double()),
    ):
        leaves = {"x": leaf.clone().requires_grad_()}
        results.append(differentiate(lambda r=run, v=leaves: r(v["x"]), leaves, grad_y))
    judge_all(*results)


@pytest.mark.parametrize("numerics", [IEEE, TF32], ids=str)
@in_train_and_eval
@pytest.mark.parametrize("function", FUSED, ids=str)
def test_backward_has_the_precision_of_forward(device, function, training, numerics):
    """PyTorch's setting says the opposite, and has no say."""
    leaves, statistics, grad_y = make_leaves(function, numerics, device)
    torch.backends.cuda.matmul.fp32_precision = "tf32" if numerics is IEEE else "ieee"
    with RecordOps() as record:
        differentiate(
            lambda: call(function.ours, leaves, statistics, training, precision=numerics.precision),
            leaves,
            grad_y,
        )
    products = [(op, options) for op, options in record.calls if op.startswith("linear")]
    assert len(products) >= 3  # forward, gradient of x, gradient of weight
    for _, options in products:
        assert options.get("precision", "ieee") == numerics.precision
