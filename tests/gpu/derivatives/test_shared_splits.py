"""A step of training splits an fp32 weight once: its forward pass leaves the parts to the backward
pass. Every bit is that of a step which keeps nothing."""

import time

import pytest
import torch
from tiles import has_sm90_kernels
from torch import nn as torch_nn
from torch.profiler import ProfilerActivity, profile

import cutlass_fused
from cutlass_fused import functional, nn

pytestmark = pytest.mark.gpu

M, N, K = 2048, 3072, 2560  # large enough for split rows in all directions, and "tf32" too
PRECISIONS = ("ieee", "tf32")
each_precision = pytest.mark.parametrize("precision", PRECISIONS)


@pytest.fixture(autouse=True)
def seed(device):
    if not has_sm90_kernels(device):
        pytest.skip("needs kernels for compute capability 9.0")
    torch.manual_seed(0)


def make_layers(device, precision):
    options = {"precision": precision, "device": device}
    return {
        "linear": nn.Linear(K, N, **options),
        "leaky_relu": nn.LinearScaleLeakyReLU(K, N, 2.0, 0.1, **options),
        "batch_norm": nn.LinearScaleBatchNorm1d(K, N, (N,), **options),
        "softmax": nn.LinearBatchNorm1dScaleSoftmax(K, N, **options),
    }


LAYERS = ("linear", "leaky_relu", "batch_norm", "softmax")
each_layer = pytest.mark.parametrize("name", LAYERS)


def step(layer, x, grad):
    parameters = [p for p in layer.parameters() if p.requires_grad]
    y = layer(x)
    return [y.detach(), *torch.autograd.grad(y, [x, *parameters], grad)]


def draw(device):
    return torch.randn(M, K, device=device, requires_grad=True), torch.randn(M, N, device=device)


def count_splits(run):
    run()
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        run()
        torch.cuda.synchronize()
    return sum("split_rows<" in e.name or "split_columns<" in e.name for e in profiled.events())


@each_layer
@each_precision
def test_one_split_less_and_the_same_bits(device, precision, name):
    layer = make_layers(device, precision)[name]
    x, grad = draw(device)
    shared, splits = step(layer, x, grad), count_splits(lambda: step(layer, x, grad))
    cutlass_fused.keep_splits(False)
    try:
        alone, more = step(layer, x, grad), count_splits(lambda: step(layer, x, grad))
    finally:
        cutlass_fused.keep_splits(True)
    assert more == splits + 1
    assert all(map(torch.equal, shared, alone))


def write_counted(weight, new):
    with torch.no_grad():
        weight.copy_(new)


def write_data(weight, new):
    weight.data.copy_(new)


def write_memory(weight, new):
    torch.cuda.synchronize()
    alias = torch.empty(0, device=weight.device).set_(weight.untyped_storage())
    alias.view_as(new).copy_(new)


@pytest.mark.parametrize("write", [write_counted, write_data, write_memory])
@each_layer
def test_each_step_reads_the_weight_that_is_there(device, name, write):
    layer = make_layers(device, "ieee")[name]
    x, grad = draw(device)
    weight = layer.gemm.weight if hasattr(layer, "gemm") else layer.weight
    for _ in range(3):
        step(layer, x, grad)
        write(weight, torch.randn(N, K, device=device))
        ours = step(layer, x, grad)
        cutlass_fused.keep_splits(False)
        try:
            expected = step(layer, x, grad)
        finally:
            cutlass_fused.keep_splits(True)
        assert all(map(torch.equal, ours, expected))


def test_a_weight_that_changes_within_a_step_is_refused_as_ever(device):
    layer = make_layers(device, "ieee")["linear"]
    x, grad = draw(device)
    y = layer(x)
    with torch.no_grad():
        layer.weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(y, x, grad)


@each_layer
def test_a_graph_that_is_kept(device, name):
    layer = make_layers(device, "ieee")[name]
    x, grad = draw(device)
    y = layer(x)
    first = torch.autograd.grad(y, [x, *layer.parameters()], grad, retain_graph=True)
    second = torch.autograd.grad(y, [x, *layer.parameters()], grad)
    assert all(map(torch.equal, first, second))


def test_forces(device):
    """A gradient inside the loss: the parts serve its products, too."""
    layer = make_layers(device, "ieee")["linear"]
    x, grad = draw(device)

    def run(function, x, weight, bias, grad):
        y = function(x, weight, bias)
        (force,) = torch.autograd.grad(y.sin(), x, grad, create_graph=True)
        return torch.autograd.grad(force.square().sum(), [x, weight])

    tensors = (x, layer.weight, layer.bias, grad)
    ours = run(lambda *tensors: functional.linear(*tensors, precision="ieee"), *tensors)
    wide = (tensor.detach().double().requires_grad_() for tensor in tensors)
    expected = run(torch_nn.functional.linear, *wide)
    for a, b in zip(ours, expected, strict=True):
        assert (a.double() - b).norm() < 3e-6 * b.norm()


@pytest.mark.parametrize(
    "view",
    [
        lambda w: w[:1, :K].expand(N, K),
        lambda w: w[:, :K].t().contiguous().t(),
        lambda w: w[:, ::2],
    ],
    ids=["one row for all", "along N", "every second column"],
)
def test_weights_that_do_not_lie_in_rows(device, view):
    parameter = torch.randn(N, 2 * K, device=device, requires_grad=True)
    x, grad = draw(device)
    weight = view(parameter)
    y = functional.linear(x, weight, precision="ieee")
    found = torch.autograd.grad(y, [x, parameter], grad)
    expected = torch.autograd.grad(torch_nn.functional.linear(x, weight), [x, parameter], grad)
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours - theirs).norm() < 1e-5 * theirs.norm()


def test_no_parts_without_a_gradient_of_x(device):
    """The first layer of a model leaves none."""
    layer = make_layers(device, "ieee")["linear"]
    x = torch.randn(M, K, device=device)
    layer(x)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    y = layer(x)
    assert torch.cuda.memory_allocated() - before <= y.numel() * 4 + 4096


def test_memory(device):
    """Until the backward pass is done a weight takes twice its memory, then not."""
    layer = make_layers(device, "ieee")["linear"]
    x, grad = draw(device)
    step(layer, x, grad)
    write_counted(layer.weight, torch.randn_like(layer.weight))
    before = torch.cuda.memory_allocated()
    y = layer(x)
    kept = torch.cuda.memory_allocated() - before - y.numel() * 4
    assert 0.9 < kept / (layer.weight.numel() * 4) < 1.1
    torch.autograd.grad(y, x, grad)
    del y
    # PyTorch's thread lets go of the gradient when it has handed it over.
    end = time.monotonic() + 10
    while torch.cuda.memory_allocated() - before >= 4096 and time.monotonic() < end:
        time.sleep(0.001)
    assert torch.cuda.memory_allocated() - before < 4096


def test_in_a_graph(device):
    """Each replay splits the weight that is there then."""
    layer = make_layers(device, "ieee")["leaky_relu"]
    x, grad = draw(device)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step(layer, x, grad)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            results = step(layer, x, grad)
    torch.cuda.synchronize()
    for _ in range(3):
        layer.gemm.weight.data.normal_()
        graph.replay()
        assert all(map(torch.equal, results, step(layer, x, grad)))


def test_frozen_weights_are_kept_as_ever(device):
    layer = make_layers(device, "ieee")["linear"].requires_grad_(False)
    x, grad = draw(device)
    first = torch.autograd.grad(layer(x), x, grad)
    assert count_splits(lambda: torch.autograd.grad(layer(x), x, grad)) == 2  # of x and of grad
    layer.requires_grad_(True)
    assert torch.equal(torch.autograd.grad(layer(x), x, grad)[0], first[0])
