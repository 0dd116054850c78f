"""Settings around a backward pass do not reach its products: autocast, PyTorch's own precision."""

import pytest
import torch
from norm_functions import FUSED, K, M, N, call, list_asking, make_leaves, make_statistics
from recorded_ops import RecordOps
from torch._subclasses.fake_tensor import FakeTensorMode

fused = pytest.mark.parametrize("function", FUSED, ids=str)
in_train_and_eval = pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])


def list_subsets():
    """Which gradients are asked for decides which products run."""
    return [("x",), ("weight",), ("scale",), ("x", "weight"), ("x", "weight", "scale")]


subsets = pytest.mark.parametrize("subset", list_subsets(), ids="+".join)


def make_asking(function, subset):
    leaves = make_leaves(function, torch.float32)
    for name, leaf in leaves.items():
        leaf.requires_grad_(name in subset)
    return leaves


@pytest.mark.parametrize("cast", [torch.bfloat16, torch.float16], ids=str)
@subsets
@in_train_and_eval
@fused
def test_autocast_around_the_backward_pass_changes_nothing(function, training, subset, cast):
    """The gradients are those of the forward pass, which ran without: bit for bit."""
    leaves = make_asking(function, subset)
    y = call(function.ours, leaves, make_statistics(torch.float32), training)
    grad_y = torch.randn_like(y)
    expected = torch.autograd.grad(y, list_asking(leaves), grad_y, retain_graph=True)
    with torch.autocast("cpu", dtype=cast):
        ours = torch.autograd.grad(y, list_asking(leaves), grad_y)
    torch.testing.assert_close(ours, expected, rtol=0, atol=0)


@pytest.mark.parametrize("precision", ["ieee", "tf32"])
@subsets
@fused
def test_products_of_the_backward_pass_get_the_precision(function, subset, precision):
    """Fake tensors tell what a GPU would run. The node is called itself: PyTorch's engine asks for
    a GPU."""
    torch.backends.cuda.matmul.fp32_precision = "tf32" if precision == "ieee" else "ieee"
    with FakeTensorMode(allow_non_fake_inputs=True):
        leaves = make_asking(function, subset)
        leaves = {
            name: torch.empty_like(t, device="cuda", requires_grad=t.requires_grad)
            for name, t in leaves.items()
        }
        statistics = [torch.empty(N, device="cuda") for _ in range(2)]
        y = call(function.ours, leaves, statistics, True, precision=precision)
        node = y.grad_fn
        with RecordOps() as record:
            grads = node._forward_cls.backward(node, torch.empty_like(y))
    # The gradient of the scale in front of the batch norm comes of that of the weight.
    of_weight = "weight" in subset or (function is FUSED[0] and "scale" in subset)
    products = [op for op, _ in record.calls]
    assert products == ["linear"] * (("x" in subset) + of_weight)
    assert {arguments.get("precision", "ieee") for _, arguments in record.calls} <= {precision}
    assert not {"mm", "addmm", "bmm", "matmul"} & set(record.names)
    shapes = {"x": (M, K), "weight": (N, K), "scale": (N,)}
    found = dict(zip(leaves, grads, strict=False))
    assert all(found[name].shape == shapes[name] for name in subset)
