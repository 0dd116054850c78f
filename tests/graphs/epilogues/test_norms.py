"""Batch norm in training behind a Linear, and a softmax behind that: the target models."""

import copy
import shutil

import pytest
import torch
from fused_graphs import Compiled, check_as_exact, check_pooled
from tails import K, M, N
from torch import nn
from torch._inductor import config

pytestmark = pytest.mark.usefixtures("fused_on_cpu")
needs_compiler = pytest.mark.skipif(shutil.which("c++") is None, reason="needs a host compiler")
DRAWS = 12  # of x


class Model(nn.Module):
    def __init__(self, name, scale_shape=(N,), **options):
        super().__init__()
        torch.manual_seed(0)
        self.name, self.gemm, self.bn = name, nn.Linear(K, N), nn.BatchNorm1d(N, **options)
        if "scale" in name:
            self.scale = nn.Parameter(torch.rand(scale_shape) + 0.5)

    def forward(self, x):
        z = self.gemm(x)
        if self.name == "scale, norm":
            return self.bn(z * self.scale)
        if self.name == "norm, scale, softmax":
            return (self.scale * self.bn(z)).softmax(1)
        if self.name == "norm, relu":
            return self.bn(z).relu()
        if self.name == "norm and product":
            return self.bn(z), z.exp()
        return self.bn(z)


def run(function, model, x, train):
    """Results, gradients and buffers."""
    x = x.clone().requires_grad_(train)
    with torch.set_grad_enabled(train):
        y = function(x)
    y = list(y) if isinstance(y, tuple) else [y]
    grads = []
    if train:
        torch.manual_seed(1)
        given = [torch.randn(each.shape).to(each.dtype) for each in y]
        grads = torch.autograd.grad(y, [x, *model.parameters()], given)
    buffers = [each.clone() for each in model.buffers() if each.is_floating_point()]
    return [*(each.detach() for each in y), *grads, *buffers]


def check(compiled, model, x, train):
    """Several steps, so that the statistics that the first has moved are moved again."""
    eager, exact = copy.deepcopy(model), copy.deepcopy(model).double()
    pooled = {}
    for _ in range(DRAWS):
        found = run(compiled, model, x, train)
        expected = run(eager, eager, x, train)
        check_as_exact(found, expected, run(exact, exact, x.double(), train), pooled)
        x = torch.randn(x.shape).to(x) * 3 + 1
    check_pooled(pooled)
    counts = [each for each in model.buffers() if not each.is_floating_point()]
    assert counts == [each for each in eager.buffers() if not each.is_floating_point()]


NORM, SOFTMAX = "linear_scale_batch_norm_train", "linear_batch_norm_scale_softmax_train"
# A training step saves the product in front of the scale, which no op gives.
FUSED = {
    "norm": (NORM, NORM),
    "scale, norm": (NORM, None),
    "norm, scale, softmax": (SOFTMAX, SOFTMAX),
    "norm, relu": (NORM, NORM),
    "norm and product": (NORM, NORM),
}


def list_functionalized(compiled):
    nodes = compiled.graphs[0].graph.nodes
    found = [n for n in nodes if n.target is torch.ops.higher_order.auto_functionalized]
    return [node.args[0]._schema.name.partition("::")[2] for node in found]


@pytest.mark.parametrize("train", [False, True], ids=["forward", "step"])
@pytest.mark.parametrize("name", FUSED)
def test_values(name, train):
    model = Model(name, (1,) if "softmax" in name else (N,)).requires_grad_(train)
    compiled = Compiled(model)
    check(compiled, model, torch.randn(M, K) * 3 + 1, train)
    op = FUSED[name][train]
    assert list_functionalized(compiled) == ([] if op is None else [op])


@pytest.mark.parametrize(
    "options",
    [
        {"track_running_stats": False},
        {"affine": False},
        {"momentum": 0.25, "eps": 1e-3},
    ],
    ids=str,
)
def test_options(options):
    model = Model("norm", **options)
    compiled = Compiled(model)
    check(compiled, model, torch.randn(M, K), True)
    assert list_functionalized(compiled) == [NORM]


class ByHand(nn.Module):
    """A batch norm of a user's own, whose running statistics move as it says."""

    def __init__(self, correction, momentum_of_var):
        super().__init__()
        torch.manual_seed(0)
        self.gemm, self.bn = nn.Linear(K, N), nn.BatchNorm1d(N)
        self.correction, self.momentum = correction, momentum_of_var

    def forward(self, x):
        z, bn = self.gemm(x), self.bn
        var, mean = torch.var_mean(z, 0, correction=0, keepdim=True)
        y = (z - mean) * torch.rsqrt(var + 1e-5) * bn.weight + bn.bias
        unbiased = var.squeeze(0) * (M / (M - self.correction))
        bn.running_mean.copy_(mean.squeeze(0) * 0.1 + bn.running_mean * 0.9)
        momentum = self.momentum
        bn.running_var.copy_(unbiased * momentum + bn.running_var * (1 - momentum))
        return y


@pytest.mark.parametrize(
    ("correction", "momentum", "ops"), [(1, 0.1, [NORM]), (2, 0.1, []), (1, 0.3, [])]
)
def test_statistics_that_move_otherwise(correction, momentum, ops):
    model = ByHand(correction, momentum).requires_grad_(False)
    compiled = Compiled(model)
    check(compiled, model, torch.randn(M, K), False)
    assert list_functionalized(compiled) == ops


def test_what_is_left():
    """16 bits, and a batch whose size is not known."""
    cases = [
        (Model("norm").bfloat16(), torch.randn(M, K, dtype=torch.bfloat16), {}),
        (Model("norm"), torch.randn(M, K), {"dynamic": True}),
    ]
    for model, x, options in cases:
        torch._dynamo.reset()
        compiled = Compiled(model, **options)
        check(compiled, model, x, False)
        assert list_functionalized(compiled) == []


@needs_compiler
@pytest.mark.parametrize("train", [False, True], ids=["forward", "step"])
@pytest.mark.parametrize("name", ["norm", "scale, norm", "norm, scale, softmax"])
def test_inductor(name, train):
    """The running statistics are moved where they lie."""
    model = Model(name, (1,) if "softmax" in name else (N,)).requires_grad_(train)
    compiled = torch.compile(model, backend="cutlass_fused", fullgraph=True)
    places = [each.data_ptr() for each in model.buffers()]
    check(compiled, model, torch.randn(M, K), train)
    assert places == [each.data_ptr() for each in model.buffers()]
    if not train:
        with torch.profiler.profile() as profile, torch.no_grad():
            compiled(torch.randn(M, K))
        op = "cutlass_fused::" + FUSED[name][train]
        assert [e.name for e in profile.events()].count(op) == 1
    assert config.post_grad_custom_pre_pass is None
