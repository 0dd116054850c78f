"""What follows a batch norm in training, on a GPU: right, and one kernel."""

import copy

import pytest
import torch
from judge_epilogues import assert_as_good
from torch import nn
from torch.autograd import DeviceType
from torch.nn import functional as F

import cutlass_fused

pytestmark = pytest.mark.gpu


class Normed(nn.Module):
    def __init__(self, n, tail):
        super().__init__()
        self.fc, self.bn, self.tail = nn.Linear(64, n), nn.BatchNorm1d(n), tail
        self.b = nn.Parameter(torch.randn(n))

    def forward(self, x):
        return self.tail(self.bn(self.fc(x)), self.b)


def _swish(v, b):
    y = (v + b) / 2.0
    return y * torch.sigmoid(y)


TAILS = {
    "gelu, relu": lambda v, b: torch.relu(F.gelu(v)) + 0.0 * b,
    "bias, divide, swish": _swish,
    "tanh, softmax": lambda v, b: torch.softmax(torch.tanh(v) * b, dim=1),
}
# M, N of the least matrices that are served, and one whose rows are no whole pieces.
SHAPES = {False: [(1024, 1024), (2048, 1001)], True: [(4096, 4096)]}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("is_recorded", [False, True])
@pytest.mark.parametrize("name", TAILS)
def test_right(name, is_recorded, dtype, device):
    for m, n in SHAPES[is_recorded]:
        torch.manual_seed(m)
        plain = Normed(n, TAILS[name]).to(device, dtype)
        fused, wide = copy.deepcopy(plain), copy.deepcopy(plain).double()
        report = cutlass_fused.fuse(fused, precision="ieee")
        x = torch.randn(m, 64, device=device).to(dtype)
        found = []
        for model, given in ((fused, x), (plain, x), (wide, x.double())):
            with torch.set_grad_enabled(is_recorded):
                y = model(given.requires_grad_(is_recorded))
            of_model = [y.detach()]
            if is_recorded:
                weight = torch.linspace(-1, 1, y.numel(), device=device).view_as(y).to(y)
                of_model += torch.autograd.grad((y * weight).sum(), [given, *model.parameters()])
            found.append(of_model)
        (site,) = report.sites
        along_rows = name == "tanh, softmax" and is_recorded
        assert (site.tail.last.why is None) != along_rows
        added = find_magnitudes(wide, x.double(), weight.double()) if is_recorded else {}
        for index, (ours, eager, truth) in enumerate(zip(*found, strict=True)):
            assert_as_good(ours, eager, truth, index, added.get(index))


def find_magnitudes(model, x, weight):
    """Of the gradients of b, gamma and beta, which are sums over the rows: of all that is added."""
    v = model.bn(model.fc(x))
    b = model.b.expand_as(v)
    of_v, of_b = torch.autograd.grad((model.tail(v, b) * weight).sum(), [v, b])
    terms = {2: of_b, 5: of_v * v, 6: of_v}  # gamma is 1, beta 0
    return {index: term.abs().sum(0) for index, term in terms.items()}


def test_is_one_kernel(device):
    model = Normed(1024, _swish).to(device)
    x = torch.randn(1024, 64, device=device)
    counts = []
    with torch.no_grad():
        for each in (model, nn.Sequential(model.fc, model.bn)):
            cutlass_fused.fuse(each, precision="ieee")
            for _ in range(3):
                each(x)
            with torch.profiler.profile(
                activities=[torch.profiler.ProfilerActivity.CUDA]
            ) as profile:
                each(x)
                torch.cuda.synchronize()
            on_gpu = [e.name for e in profile.events() if e.device_type == DeviceType.CUDA]
            counts.append(on_gpu)
    assert len(counts[0]) == len(counts[1]) + 1, counts


def test_a_shorter_chain(device):
    """A softmax along rows of batches ends the chain in a call of three dimensions."""
    model = nn.Sequential(nn.Linear(64, 512), nn.SiLU(), nn.Hardtanh(-0.1, 0.5), nn.Softmax(dim=1))
    plain = model.to(device)
    fused = copy.deepcopy(plain)
    report = cutlass_fused.fuse(fused, precision="ieee")
    for shape in ((3, 133, 64), (133, 64), (3, 133, 64)):
        x = torch.randn(shape, device=device)
        with torch.no_grad():
            ours, eager, truth = fused(x), plain(x), copy.deepcopy(plain).double()(x.double())
        assert_as_good(ours, eager, truth, shape)
        names = ["Linear", "SiLU", "Hardtanh"]
        if len(shape) == 3 and report.sites[0].last.why is not None:
            assert report.sites[0].last.instead.list_names() == names


def test_small_matrices_are_pytorchs(device):
    model = Normed(64, _swish).to(device)
    report = cutlass_fused.fuse(model)
    with torch.no_grad():
        model(torch.randn(64, 64, device=device))
    assert "host's time" in report.sites[0].tail.last.why
