"""torch.compile with the backend on a GPU: what runs, and that it is right."""

import copy
import shutil

import pytest
import torch
from fused_graphs import compare
from plain_packages import require_packages_of_pytorch
from tails import ENDS, WHOLE, Tail
from torch import nn
from torch.nn import functional as F

import cutlass_fused

pytestmark = pytest.mark.gpu

# Tiles that end with M and N, and products that are worth it.
M, N, K = 264, 200, 328
NORMS = ("batch norm", "layer norm", "rms norm")
# Sums on tensor cores are rounded towards zero, which a sum of a row adds up: these are judged by
# the same product with PyTorch's ops behind it, too. Their gradients have the same number in all
# columns, which has one error, and so luck: several are drawn.
SUMS_OF_ROWS = ("mean, kept",)


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    with torch._inductor.config.patch(force_disable_caches=True):
        yield
    torch._dynamo.reset()


def make(name, device, dtype=torch.float32, train=False):
    function, shapes, *_ = WHOLE[name] if name in WHOLE else ENDS[name]
    sizes = {24: M, 32: N}  # M and N of the CPU's tests
    shapes = [tuple(sizes.get(size, size) for size in shape) for shape in shapes]
    model = Tail(function, *shapes, sizes=(K, N))
    return model.requires_grad_(train).to(device, dtype)


def list_ops(function, *inputs):
    with torch.profiler.profile() as profile, torch.no_grad():
        function(*inputs)
    return [e.name.partition("::")[2] for e in profile.events() if "cutlass_fused::" in e.name]


@pytest.mark.parametrize("train", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("name", [n for n in WHOLE if n not in (*NORMS, "constants")])
def test_tails(name, train, device):
    model = make(name, device, train=train)
    compiled = torch.compile(model, backend="cutlass_fused", fullgraph=True)
    behind = None
    if name in SUMS_OF_ROWS:
        behind = copy.deepcopy(model)
        behind.linear = cutlass_fused.nn.Linear.from_eager(behind.linear, precision="ieee")
    draws = 8 if name in SUMS_OF_ROWS and train else 1
    x = torch.randn(M, K, device=device)
    compare(compiled, model, x, train=train, behind=behind, draws=draws)
    assert list_ops(compiled, torch.randn(M, K, device=device)) != []


@pytest.mark.parametrize("name", [n for n in ENDS if n != "whole numbers"])
def test_tails_that_end(name, device):
    model = make(name, device)
    compiled = torch.compile(model, backend="cutlass_fused", fullgraph=True)
    compare(compiled, model, torch.randn(M, K, device=device))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", ["gelu", "scale, leaky_relu", "residual", "columns", "softmax"])
def test_16_bits(name, dtype, device):
    model = make(name, device, dtype)
    compiled = torch.compile(model, backend="cutlass_fused", fullgraph=True)
    compare(compiled, model, torch.randn(M, K, device=device, dtype=dtype))
    ops = list_ops(compiled, torch.randn(M, K, device=device, dtype=dtype))
    assert (ops == []) == (name == "softmax")


@pytest.mark.parametrize("train", [False, True], ids=["inference", "training"])
def test_autocast(train, device):
    model = make("gelu", device, train=train)
    compiled = torch.compile(model, backend="cutlass_fused", fullgraph=True)
    x = torch.randn(M, K, device=device)
    with torch.autocast("cuda", torch.bfloat16):
        found, expected = compiled(x), model(x)
    assert found.dtype == expected.dtype == torch.bfloat16
    # Eager PyTorch rounds what GELU is given.
    torch.testing.assert_close(found, expected, rtol=2**-6, atol=2**-7)


def test_a_batch_varies(device):
    model = Tail(nn.LayerNorm(N), sizes=(K, N)).requires_grad_(False).to(device)
    compiled = torch.compile(model, backend="cutlass_fused", dynamic=True, fullgraph=True)
    compare(compiled, model, torch.randn(M, K, device=device))
    with torch.compiler.set_stance("fail_on_recompile"):
        for rows in (2, 33, 1000):
            compare(compiled, model, torch.randn(rows, K, device=device))


@pytest.mark.parametrize("train", [False, True], ids=["inference", "training"])
def test_replays(train, device):
    """CUDA graphs: the third call is a replay."""
    model = nn.Sequential(nn.Linear(K, N), nn.GELU(), nn.Linear(N, 64), nn.Softmax(-1)).to(device)
    model.requires_grad_(train)
    options = cutlass_fused.inductor_options(mode="reduce-overhead")
    compiled = torch.compile(model, options=options, fullgraph=True)
    for _ in range(4):
        x = torch.randn(M, K, device=device)
        torch.compiler.cudagraph_mark_step_begin()
        results = []
        for run in (model, compiled):
            y = run(x)
            found = [y.detach().clone()]
            if train:
                found += torch.autograd.grad(y.square().sum(), model.parameters())
            results.append([each.clone() for each in found])
        torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(shutil.which("c++") is None, reason="needs a host compiler")
def test_package(tmp_path, device):
    require_packages_of_pytorch()
    model, x = make("columns", device), torch.randn(M, K, device=device)
    with torch.no_grad():
        batch = torch.export.Dim("batch", min=2, max=4096)
        program = torch.export.export(model, (x,), dynamic_shapes=({0: batch},))
        options = cutlass_fused.inductor_options()
        path = torch._inductor.aoti_compile_and_package(
            program, package_path=f"{tmp_path}/model.pt2", inductor_configs=options
        )
        loaded = torch._inductor.aoti_load_package(path)
        for rows in (M, 65):
            x = torch.randn(rows, K, device=device)
            torch.testing.assert_close(loaded(x), model(x), rtol=1e-5, atol=1e-5)
    assert list_ops(loaded, x) == ["linear_epilogue"]


def test_kept_splits(device):
    """Of a weight that is large enough: the second call splits it no more."""
    model = nn.Sequential(nn.Linear(2048, 2048), nn.GELU()).requires_grad_(False).to(device)
    compiled, x = torch.compile(model, backend="cutlass_fused"), torch.randn(512, 2048).to(device)
    compare(compiled, model, x)
    assert "linear_epilogue_kept" in list_ops(compiled, x)
    with torch.no_grad():
        model[0].weight.mul_(2.0)
    compare(compiled, model, x)


class Target(nn.Module):
    """Of the three target models the one without a batch norm, or Linear and batch norm."""

    def __init__(self, has_norm):
        super().__init__()
        self.gemm = nn.Linear(K, N)
        self.scale = nn.Parameter(torch.rand(N))
        self.bn = nn.BatchNorm1d(N)
        self.has_norm = has_norm

    def forward(self, x):
        if self.has_norm:
            return self.bn(self.gemm(x) * self.scale)
        return F.leaky_relu(self.gemm(x) * 2.0, 0.1)


@pytest.mark.parametrize("has_norm", [False, True], ids=["leaky_relu", "batch_norm"])
def test_targets(has_norm, device):
    model = Target(has_norm).to(device).eval().requires_grad_(False)
    compiled = torch.compile(model, backend="cutlass_fused", fullgraph=True)
    x = torch.randn(M, K, device=device)
    compare(compiled, model, x)
    name = "linear_scale_batch_norm_inference" if has_norm else "linear_scale_leaky_relu"
    assert name in list_ops(compiled, x)


@pytest.mark.parametrize("name", ["gelu", "columns", "residual"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_kernel_of(name, dtype, device):
    """Nothing runs behind the product, neither Inductor's kernels nor PyTorch's."""
    model, x = make(name, device, dtype), torch.randn(M, K, device=device, dtype=dtype)
    compiled = torch.compile(model, backend="cutlass_fused", fullgraph=True)
    compare(compiled, model, x)
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile, torch.no_grad():
        compiled(x)
        torch.cuda.synchronize()
    kernels = [e.name for e in profile.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    assert kernels and not [each for each in kernels if "triton" in each or "elementwise" in each]
