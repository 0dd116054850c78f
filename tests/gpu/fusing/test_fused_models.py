"""Fused models on a GPU: right, at once, in CUDA graphs, and by the functions of the modules that
are written by hand."""

import copy
import time

import linear_tails
import pytest
import torch
from accuracy import matmul_settings
from judge_epilogues import PRECISIONS, assert_as_good
from linear_tails import CASES, K, ManyScales, OfMatrices, Residual
from plain import (
    PlainLinearBatchNorm1dScaleSoftmax,
    PlainLinearScaleBatchNorm1d,
    PlainLinearScaleLeakyReLU,
)

import cutlass_fused
from cutlass_fused import nn as by_hand
from cutlass_fused.explain.measure import measure
from cutlass_fused.weights import splits

pytestmark = pytest.mark.gpu

M = 133  # no tile divides it
every_mode = pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])


def run(model, x, seed):
    """Results, and the gradients of x and of all parameters, for random gradients of results."""
    torch.manual_seed(seed)
    y = model(x)
    y = y if isinstance(y, tuple) else (y,)
    drawn = [torch.rand(e.shape).to(e.device) * 2 - 1 for e in y]
    loss = sum((e * w).sum() for e, w in zip(y, drawn, strict=True))
    inputs = [x, *model.parameters()]
    grads = torch.autograd.grad(loss, inputs, allow_unused=True, materialize_grads=True)
    return [each.detach() for each in (*y, *grads, *model.buffers())]


@every_mode
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", [name for name in CASES if not name.startswith("dropout")])
def test_right(name, precision, training, device):
    """Eight models, as a gradient of one number has one error, and so luck."""
    drawn, dtype = [], PRECISIONS[precision]
    word = precision if precision in ("ieee", "tf32") else None
    for seed in range(8):
        plain = CASES[name].make().to(device, dtype).train(training)
        fused, wide = copy.deepcopy(plain), copy.deepcopy(plain).double()
        report = cutlass_fused.fuse(fused, precision=word)
        x = torch.randn(M, K, device=device).to(dtype).requires_grad_()
        ours = run(fused, x, seed)
        with matmul_settings("tf32" if precision == "tf32" else "ieee"):
            eager = run(plain, x, seed)
        drawn.append((ours, eager, run(wide, x.detach().double().requires_grad_(), seed)))
        if precision == "ieee":
            assert [site.last.why for site in report.sites] == [None] * len(report.sites)
    for index, parts in enumerate(zip(*(zip(*each, strict=True) for each in drawn), strict=True)):
        ours, eager, truth = (torch.stack(each) for each in zip(*parts, strict=True))
        if ours.dtype == torch.int64:
            assert torch.equal(ours, eager)
        else:
            assert_as_good(ours, eager, truth, index)


TARGETS = {
    "12": (
        lambda k, n: PlainLinearScaleLeakyReLU(k, n, 2.0, 0.1),
        lambda m: by_hand.LinearScaleLeakyReLU.from_eager(m.gemm, m.multiplier, 0.1),
    ),
    "33": (
        lambda k, n: PlainLinearScaleBatchNorm1d(k, n, (n,)),
        lambda m: by_hand.LinearScaleBatchNorm1d.from_eager(m.gemm, m.scale, m.bn),
    ),
    "84": (
        lambda k, n: PlainLinearBatchNorm1dScaleSoftmax(k, n),
        lambda m: by_hand.LinearBatchNorm1dScaleSoftmax.from_eager(m.gemm, m.bn, m.scale),
    ),
}


def make_target(target, k, n, training, device, dtype=torch.float32):
    make, take = TARGETS[target]
    model = make(k, n).to(device, dtype).train(training)
    module = take(copy.deepcopy(model)).train(training)
    cutlass_fused.fuse(model)
    return model, module


@every_mode
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("target", TARGETS)
def test_targets_have_the_same_bits(target, dtype, training, device):
    model, module = make_target(target, 512, 1024, training, device, dtype)
    x = torch.rand(1024, 512, device=device).to(dtype)
    with torch.no_grad():
        for _ in range(2):
            assert torch.equal(model(x), module(x))
    for ours, theirs in zip(model.buffers(), module.buffers(), strict=True):
        assert torch.equal(ours, theirs)


@every_mode
@pytest.mark.parametrize("target", TARGETS)
def test_targets_take_no_longer_on_the_host(target, training, device):
    """Within two microseconds of the modules that are written by hand."""
    model, module = make_target(target, 64, 64, training, device)
    x, times = torch.rand(64, 64, device=device), {model: [], module: []}
    with torch.no_grad():
        for _ in range(40):
            for each, found in times.items():
                torch.cuda.synchronize()
                start = time.perf_counter()
                for _ in range(100):
                    each(x)
                found.append((time.perf_counter() - start) / 100)
    assert min(times[model]) <= min(times[module]) + 2e-6


def test_captured(device):
    model = Residual().to(device)
    plain, x = copy.deepcopy(model), torch.randn(M, K, device=device)
    cutlass_fused.fuse(model, precision="ieee")
    with torch.no_grad():
        model(x)  # decides, and links
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = model(x)
        x.copy_(torch.randn(M, K, device=device))
        graph.replay()
        truth = plain.double()(x.double())
    assert (y - truth).norm() <= 1e-6 * truth.norm()


def test_captured_before_any_call(device):
    """PyTorch's ops are in the graph, since nothing can be linked now."""
    model = Residual().to(device)
    report, x = cutlass_fused.fuse(model), torch.randn(M, K, device=device)
    torch.nn.functional.linear(x, model.fc1.weight)  # cuBLAS has its workspace
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        model(x)
    assert [site.last for site in report.sites] == [None] * 2


def test_products_alone_in_16_bits_stay(device):
    model = torch.nn.Linear(512, 512).to(device, torch.bfloat16)
    report, x = cutlass_fused.fuse(model), torch.randn(M, 512, device=device).bfloat16()
    with torch.no_grad():
        assert torch.equal(model(x), torch.nn.functional.linear(x, model.weight, model.bias))
    assert report.sites[0].last.why == "in 16 bits a product alone takes as long as cuBLAS's"


def take_step(model, x):
    y = model(x)
    grads = torch.autograd.grad(y.float().sin().sum(), list(model.parameters()))
    return [y.detach(), *grads]


def judge_step(model, plain, x, precision="ieee"):
    """At most twice eager's error, and two roundings."""
    mine = take_step(model, x)
    with matmul_settings(precision):
        eager = take_step(plain, x)
    truth = take_step(copy.deepcopy(plain).double(), x.double())
    for one, other, exact in zip(mine, eager, truth, strict=True):
        unit = torch.finfo(one.dtype).eps * exact.norm()
        errors = [(each.double() - exact).norm() for each in (one, other)]
        assert one.dtype == other.dtype and errors[0] <= 2 * errors[1] + 2 * unit


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_layers_alone_are_trained(precision, device):
    """The gradient of a bias takes PyTorch longer; without one nothing is gained."""
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    x = torch.randn(M, 512, device=device).to(dtype)
    for bias in (True, False):
        plain = torch.nn.Linear(512, 256, bias).to(device, dtype)
        model = copy.deepcopy(plain)
        report = cutlass_fused.fuse(model, precision="tf32")
        judge_step(model, plain, x, "tf32")
        why = report.sites[0].last.why
        assert why is None if bias else "cuBLAS's" in why


@pytest.mark.parametrize("frozen", ["weight", "bias"])
def test_layers_alone_with_a_frozen_part_stay(frozen, device):
    model = torch.nn.Linear(512, 256).to(device, torch.bfloat16)
    getattr(model, frozen).requires_grad_(False)
    report, x = cutlass_fused.fuse(model), torch.randn(M, 512, device=device).bfloat16()
    model(x.requires_grad_()).sum().backward()
    assert "cuBLAS's" in report.sites[0].last.why


def test_a_chain_whose_gradient_is_no_program_ends_before(device):
    plain = ManyScales().to(device)
    model, x = copy.deepcopy(plain), torch.randn(M, K, device=device)
    report = cutlass_fused.fuse(model, precision="ieee")
    for _ in range(2):
        judge_step(model, plain, x)
        assert report.sites[0].last.why == "its gradient is no program"
    with torch.no_grad():
        model(x)
    assert report.sites[0].last.why is None


def test_a_batch_norm_behind_a_chain_is_trained(device):
    """By its own kernels, with gradients in C++, however small."""
    plain = CASES["relu, batch norm"].make().to(device).train()
    model, x = copy.deepcopy(plain), torch.randn(M, K, device=device)
    cutlass_fused.fuse(model, precision="ieee")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        y = model(x)
        torch.autograd.grad(y.sin().sum(), list(model.parameters()))
        torch.cuda.synchronize()
    names = [each.key for each in profile.key_averages()]
    assert not any("at::native::batch_norm" in name for name in names), names
    judge_step(model, plain, x)
    for one, other in zip(model.buffers(), plain.buffers(), strict=True):
        assert one.dtype == other.dtype


@pytest.fixture
def wider_models(monkeypatch):
    """Rows of whole 16 bytes in 16 bits, which others are left for."""
    monkeypatch.setattr(linear_tails, "K", 16)
    monkeypatch.setattr(linear_tails, "N", 24)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", ["gelu of tanh", "gelu, softmax", "layer norm", "nothing"])
def test_autocast(name, dtype, device, wider_models):
    plain = CASES[name].make().to(device)
    fused, x = copy.deepcopy(plain), torch.randn(M, 16, device=device)
    report = cutlass_fused.fuse(fused)
    with torch.autocast("cuda", dtype):
        ours, eager = fused(x), plain(x)
    assert (report.sites[0].last.why is None) == (name != "nothing")
    assert ours.dtype == eager.dtype
    assert_as_good(ours, eager, plain.double()(x.double()).detach(), name)


def test_explained(device, capsys):
    model, x = Residual(), torch.randn(M, K)
    for is_trained in (False, True):
        text = measure(model, x, "ieee", is_trained, True)
        assert "times as long" in text and "error / PyTorch's" in text
        assert "–" not in text.splitlines()[3]
    assert "timing the model ..." in capsys.readouterr().err


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_steps_of_a_weight_of_k_by_n(dtype, device):
    """Its gradient lies as it does, and is added to the one that is there."""
    plain = OfMatrices(lambda x, w, b: torch.addmm(b, x, w), is_transposed=True)
    plain.weight = torch.nn.Parameter(torch.randn(512, 768) / 16)
    plain.bias = torch.nn.Parameter(torch.randn(768))
    plain = plain.to(device, dtype)
    model, wide, found = copy.deepcopy(plain), copy.deepcopy(plain).double(), []
    report = cutlass_fused.fuse(model, precision="ieee")
    x = torch.randn(1024, 512, device=device).to(dtype)
    with matmul_settings("ieee"):
        for each in (model, plain, wide):
            for _ in range(2):
                each(x.to(each.weight.dtype)).square().sum().backward()
            found.append([each.weight.grad, each.bias.grad])
            assert each.weight.grad.stride() == each.weight.stride()
    assert report.sites[0].last.why is None
    for index, parts in enumerate(zip(*found, strict=True)):
        assert_as_good(*parts, index, parts[2].abs().amax().expand_as(parts[2]))


@pytest.mark.parametrize("precision", ["ieee", "tf32"])
def test_a_weight_of_k_by_n_is_split_once(precision, device, monkeypatch):
    """Until it is written to. Each call made its own, of a transposed weight that lived as long."""
    made, split = [], splits._cache._split
    monkeypatch.setattr(splits._cache, "_split", lambda *given: made.append(1) or split(*given))
    model = OfMatrices(lambda x, w, b: torch.addmm(b, x, w), is_transposed=True)
    model.weight = torch.nn.Parameter(torch.randn(512, 768))
    model.bias = torch.nn.Parameter(torch.randn(768))
    model.to(device)
    plain = copy.deepcopy(model).double()
    cutlass_fused.fuse(model, precision=precision)
    x, tolerance = torch.randn(1024, 512, device=device), {"ieee": 1e-5, "tf32": 2e-3}[precision]
    with torch.no_grad():
        model(x)  # decides
        made.clear()
        for expected in (1, 1, 1, 2, 2):
            if expected > len(made) > 0:
                for each in (model, plain):
                    each.weight.mul_(0.5)
            error = (model(x) - plain(x.double())).norm() / plain(x.double()).norm()
            assert error < tolerance and len(made) == expected
    grads = torch.autograd.grad(model(x).sum(), model.weight)[0]
    wanted = torch.autograd.grad(plain(x.double()).sum(), plain.weight)[0]
    assert len(made) == 2 and (grads - wanted).norm() < tolerance * 5 * wanted.norm()
