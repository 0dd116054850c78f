"""What stands for CUDA graphs where there is no GPU.

It records the ops of a call with the tensors that they read, and runs them again: it sees what is
written in place, and nothing else that changes.
"""

import copy

import pytest
import torch
from linear_tails import K, N, Residual
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F
from torch.utils import _pytree as pytree

import cutlass_fused
from cutlass_fused.fusing.captured import replays as replays_module


class RecordedOps:
    """Its results are NaN until the first replay, and always at the same place."""

    captured = 0

    def __init__(self, device, pool):
        self.pool = pool

    @staticmethod
    def make_pool():
        return object()

    def capture(self, warm_up, run):
        warm_up()
        RecordedOps.captured += 1
        self.graph = make_fx(lambda: list_tensors(run()))()
        read = {e.data_ptr() for e in vars(self.graph).values() if isinstance(e, torch.Tensor)}
        read |= {e.data_ptr() for e in (*self.graph.parameters(), *self.graph.buffers())}
        y = run()
        self.results = list_tensors(y)
        for each in self.results:
            if each.data_ptr() not in read:
                each.fill_(float("nan"))
        return y

    def replay(self):
        with torch.no_grad():
            for ours, new in zip(self.results, self.graph(), strict=True):
                ours.copy_(new)


def list_tensors(y):
    return [each for each in pytree.tree_leaves(y) if isinstance(each, torch.Tensor)]


@pytest.fixture
def recorded(monkeypatch):
    """Calls are without gradients, and tensors count as those of a GPU."""
    monkeypatch.setattr(replays_module, "CudaGraph", RecordedOps)
    monkeypatch.setattr(replays_module, "is_on_gpu", lambda x: True)
    monkeypatch.setattr(RecordedOps, "captured", 0)
    with torch.no_grad():
        yield RecordedOps


def make(model=None, graphs=True):
    """A fused model in eval, its plain copy, and the graphs."""
    model = (Residual() if model is None else model).eval()
    plain = copy.deepcopy(model)
    report = cutlass_fused.fuse(model, graphs=graphs)
    return model, plain, report.graphs


def draw(rows=6):
    return torch.randn(rows, K)


def check(model, plain, *args, **kwargs):
    """That both give the same."""
    given = copy.deepcopy((args, kwargs))
    torch.testing.assert_close(model(*args, **kwargs), plain(*given[0], **given[1]))


class Scaled(nn.Module):
    """Its forward reads numbers, a list and a tensor, and takes arguments of all kinds."""

    def __init__(self):
        super().__init__()
        self.fc, self.factors, self.factor = nn.Linear(K, N), [2.0], 3.0
        self.shift = torch.ones(N)

    def forward(self, x, scale=1.0, *, mask=None):
        y = F.gelu(self.fc(x)) * scale * self.factor * self.factors[0] + self.shift
        return y if mask is None else y * mask
