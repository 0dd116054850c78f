"""Gradients through batch norm, on the CPU: gradcheck in float64, then what can go wrong."""

import itertools

import pytest
import torch
from calls import NORM, NORM_SOFTMAX_TRAIN, NORM_TRAIN, SCALE_NORM_TRAIN
from norm_functions import (
    BATCH_NORM,
    FUNCTIONS,
    FUSED,
    SCALES,
    K,
    M,
    N,
    call,
    compare_with_plain,
    differentiate,
    list_asking,
    make_leaves,
    make_statistics,
)
from recorded_ops import RecordOps
from torch.autograd import gradcheck

functions = pytest.mark.parametrize("function", FUNCTIONS, ids=str)
fused = pytest.mark.parametrize("function", FUSED, ids=str)
in_train_and_eval = pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])


def check_gradients(function, leaves, training, **options):
    """gradcheck of all leaves that ask, with running statistics that are fresh on each call."""
    statistics = make_statistics()

    def run(*tensors):
        new = dict(zip(leaves, tensors, strict=True))
        fresh = tuple(t.clone() for t in statistics)
        return call(function.ours, new, fresh, training, **options)

    return gradcheck(run, tuple(leaves.values()))


# ---- gradcheck ----


@pytest.mark.parametrize("affine", [True, False], ids=["affine", "plain"])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("scale", SCALES)
@in_train_and_eval
@fused
def test_gradcheck(function, training, scale, bias, affine):
    leaves = make_leaves(function, scale=scale, bias=bias, affine=affine)
    assert check_gradients(function, leaves, training)


@pytest.mark.parametrize("affine", [True, False], ids=["affine", "plain"])
@in_train_and_eval
def test_gradcheck_batch_norm(training, affine):
    assert check_gradients(BATCH_NORM, make_leaves(BATCH_NORM, affine=affine), training)


@pytest.mark.parametrize("missing", ["gamma", "beta"])
@in_train_and_eval
@functions
def test_gradcheck_without_one_vector(function, training, missing):
    assert check_gradients(function, make_leaves(function) | {missing: None}, training)


@pytest.mark.parametrize("eps", [1e-5, 10.0])
@in_train_and_eval
@functions
def test_gradcheck_eps(function, training, eps):
    """Far below and far above the variance."""
    assert check_gradients(function, make_leaves(function), training, eps=eps)


@functions
def test_gradcheck_without_running_statistics(function):
    leaves = make_leaves(function)

    def run(*tensors):
        new = dict(zip(leaves, tensors, strict=True))
        return call(function.ours, new, (None, None), True)

    assert gradcheck(run, tuple(leaves.values()))


SUBSETS = [
    pytest.param(function, subset, id=f"{function}-{'+'.join(subset)}")
    for function in FUNCTIONS
    for size in (1, 2, len(function.names) + 1)
    for subset in itertools.combinations((*function.names, "gamma", "beta"), size)
]


@pytest.mark.parametrize(("function", "subset"), SUBSETS)
@in_train_and_eval
def test_each_subset_of_gradients(function, subset, training):
    """What is not asked for is neither computed nor in the way of the others."""
    leaves = make_leaves(function)
    for name, leaf in leaves.items():
        leaf.requires_grad_(name in subset)
    compare_with_plain(function, leaves, training)
    for leaf in leaves.values():
        assert leaf.grad is None


# ---- values that tempt a shortcut ----


@functions
def test_columns_without_variance(function):
    leaves = make_leaves(function)
    with torch.no_grad():
        leaves["x"][:] = leaves["x"][0]
    compare_with_plain(function, leaves, True)


@fused
def test_gradient_of_bias_in_training_is_zero(function):
    """The mean takes it out of y; the plain expression leaves the rounding errors of a sum."""
    leaves = make_leaves(function, torch.float32)
    _, grads, _ = differentiate(function.ours, leaves, True)
    assert not grads[list(leaves).index("bias")].any()


@functions
def test_large_mean(function):
    """In training a constant drops out. The plain expression, in the same float64, loses five
    digits of the gradient of scale here, hence the one without the constant."""
    leaves = make_leaves(function)
    y, truth, _ = differentiate(function.plain, leaves, True)
    with torch.no_grad():
        leaves["bias" if function.has_product else "x"].add_(1e4)
    ours, grads, _ = differentiate(function.ours, leaves, True)
    torch.testing.assert_close((ours, grads), (y, truth), rtol=1e-9, atol=1e-9)


# ---- shapes and layouts ----


@pytest.mark.parametrize("m", [2, 3, 40])
@in_train_and_eval
@functions
def test_rows(function, training, m):
    compare_with_plain(function, make_leaves(function, m=m), training)


@in_train_and_eval
@functions
def test_empty_batch(function, training):
    """Every gradient is 0, as PyTorch's own are."""
    leaves = make_leaves(function, m=0)
    y, grads, _ = differentiate(function.ours, leaves, training)
    assert y.shape == (0, N)
    for leaf, grad in zip(list_asking(leaves), grads, strict=True):
        assert grad.shape == leaf.shape and not grad.any()


@pytest.mark.parametrize("leading", [(), (2, M), (0,), (2, 0)], ids=str)
def test_leading_dimensions_in_eval(leading):
    (function, _) = FUSED
    leaves = make_leaves(function)
    leaves["x"] = torch.randn(*leading, K, dtype=torch.float64, requires_grad=True)
    compare_with_plain(function, leaves, False)


@pytest.mark.parametrize(
    "make_x",
    [
        lambda k: torch.randn(1, k).expand(M, k),
        lambda k: torch.randn(k, M).t(),
        lambda k: torch.randn(M, 2 * k)[:, ::2],
    ],
    ids=["expanded", "transposed", "strided"],
)
@in_train_and_eval
@functions
def test_layouts(function, training, make_x):
    leaves = make_leaves(function)
    leaves["x"] = make_x(leaves["x"].shape[1]).double().detach().requires_grad_()
    compare_with_plain(function, leaves, training)


@in_train_and_eval
@functions
def test_strided_vectors(function, training):
    """Kernels of PyTorch's that the backward pass uses read their vectors as contiguous ones."""
    leaves = make_leaves(function)
    for name in leaves.keys() - {"x", "weight"}:
        spaced = torch.stack([leaves[name].detach(), torch.full((N,), torch.nan)], dim=1)
        leaves[name] = spaced.double()[:, 0].detach().requires_grad_()
    compare_with_plain(function, leaves, training)


@in_train_and_eval
@functions
def test_expanded_and_strided_incoming_gradients(function, training):
    leaves = make_leaves(function)
    for grad_y in (
        torch.ones((), dtype=torch.float64).expand(M, N),
        torch.randn(N, M, dtype=torch.float64).t(),
    ):
        compare_with_plain(function, leaves, training, grad_y=grad_y)


# ---- dtypes ----


@pytest.mark.parametrize(
    ("function", "scale"),
    [(BATCH_NORM, "None")]
    + [(function, scale) for function in FUSED for scale in ("number", "0-dim", "(1,)", "(N,)")],
    ids=str,
)
@pytest.mark.parametrize("vectors", [None, torch.float32], ids=["own", "fp32"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@in_train_and_eval
def test_each_gradient_has_the_dtype_of_its_input(function, training, dtype, vectors, scale):
    leaves = make_leaves(function, dtype, m=40, vectors=vectors, scale=scale)
    statistics = make_statistics(vectors or dtype)
    wide = {
        name: t.detach().double().requires_grad_() if isinstance(t, torch.Tensor) else t
        for name, t in leaves.items()
    }
    exact = tuple(t.double() for t in statistics)
    y, ours, _ = differentiate(function.ours, leaves, training, statistics)
    _, truth, _ = differentiate(function.plain, wide, training, exact)
    step = torch.finfo(dtype).eps
    for leaf, grad, expected in zip(list_asking(leaves), ours, truth, strict=True):
        assert grad.dtype == leaf.dtype and grad.shape == leaf.shape
        size = max(1.0, expected.abs().max())
        torch.testing.assert_close(grad.double(), expected, rtol=0, atol=16 * step * size)


@in_train_and_eval
@functions
def test_with_and_without_gradients_the_values_agree(function, training):
    for dtype in (torch.float64, torch.float32):
        leaves = make_leaves(function, dtype)
        statistics = [make_statistics(dtype)]
        statistics.append(tuple(t.clone() for t in statistics[0]))
        with_grad = call(function.ours, leaves, statistics[0], training)
        with torch.no_grad():
            without = call(function.ours, leaves, statistics[1], training)
        step = 0 if training else 8 * torch.finfo(dtype).eps
        torch.testing.assert_close(with_grad, without, rtol=step, atol=step)
        assert all(map(torch.equal, *statistics))


# ---- contract with autograd ----


@pytest.mark.parametrize(
    ("function", "name"),
    [(BATCH_NORM, "x")] + [(function, name) for function in FUSED for name in ("x", "weight")],
    ids=str,
)
@in_train_and_eval
def test_changed_inputs_are_noticed(function, training, name):
    leaves = make_leaves(function)
    leaves[name] = leaves[name] * 1.0
    y = call(function.ours, leaves, make_statistics(), training)
    with torch.no_grad():
        leaves[name].mul_(2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("reads_beta", [False, True])
def test_beta_may_change_unless_the_gradient_of_scale_reads_it(reads_beta):
    """As in PyTorch, where the product of the scale and its input keeps that alone."""
    leaves = make_leaves(FUSED[1])
    leaves["scale"] = leaves["scale"].detach().requires_grad_(reads_beta)
    expected = differentiate(FUSED[1].ours, leaves, True)[1]
    torch.manual_seed(1)
    statistics = make_statistics()
    y = call(FUSED[1].ours, leaves, statistics, True)
    with torch.no_grad():
        leaves["beta"].mul_(2.0)
    torch.manual_seed(2)
    grad_y = torch.randn(y.shape, dtype=torch.float64)
    if reads_beta:
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.backward(grad_y)
        return
    torch.testing.assert_close(torch.autograd.grad(y, list_asking(leaves), grad_y), expected)


@in_train_and_eval
@pytest.mark.parametrize("function", [FUSED[0], BATCH_NORM], ids=str)
def test_result_may_be_written_in_place(function, training):
    """So it is with PyTorch's batch norm, behind which an in-place activation often stands."""
    leaves = make_leaves(function)

    def run_ours(*arguments):
        return function.ours(*arguments).mul_(3.0)

    def run_plain(*arguments):
        return function.plain(*arguments) * 3.0

    ours = differentiate(run_ours, leaves, training)
    plain = differentiate(run_plain, leaves, training)
    torch.testing.assert_close(ours, plain)


@in_train_and_eval
@functions
def test_backward_twice_with_retained_graph(function, training):
    leaves = make_leaves(function)
    y = call(function.ours, leaves, make_statistics(), training).square().sum()
    first = torch.autograd.grad(y, list_asking(leaves), retain_graph=True)
    second = torch.autograd.grad(y, list_asking(leaves))
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(y, list_asking(leaves))


@functions
def test_statistics_may_move_before_the_backward_pass(function):
    """A training step between an evaluation and its backward pass changes no gradient."""
    leaves, statistics = make_leaves(function), make_statistics()
    expected = differentiate(function.plain, leaves, False, statistics)[1]
    y = call(function.ours, leaves, statistics, False)
    with torch.no_grad():
        call(function.ours, leaves, statistics, True)
    torch.manual_seed(2)
    grads = torch.autograd.grad(y, list_asking(leaves), torch.randn_like(y))
    torch.testing.assert_close(grads, expected)


@pytest.mark.parametrize("op", [SCALE_NORM_TRAIN, NORM_SOFTMAX_TRAIN, NORM_TRAIN, NORM])
def test_training_runs_the_fused_op(op):
    """Also for gradients, and once: a second run would move the statistics twice."""
    function = {SCALE_NORM_TRAIN: FUSED[0], NORM_SOFTMAX_TRAIN: FUSED[1]}.get(op, BATCH_NORM)
    leaves = make_leaves(function)
    with RecordOps() as record:
        y = call(function.ours, leaves, make_statistics(), op != NORM)
        y.square().sum().backward()
    assert [name for name, _ in record.calls] == [op]


@pytest.mark.parametrize("precision", ["ieee", "tf32"])
@in_train_and_eval
@fused
def test_backward_uses_the_precision_of_forward(in_python, function, training, precision):
    torch.backends.cuda.matmul.fp32_precision = "tf32" if precision == "ieee" else "ieee"
    leaves = make_leaves(function, torch.float32)
    statistics = make_statistics(torch.float32)
    y = call(function.ours, leaves, statistics, training, precision=precision)
    found, nodes = set(), [y.grad_fn]
    while nodes:
        node = nodes.pop()
        found |= {node.precision} if hasattr(node, "precision") else set()
        nodes += [next_node for next_node, _ in node.next_functions if next_node is not None]
    assert found == {precision}
