"""What follows a batch norm in training: one program on elements in memory."""

import copy

import pytest
import torch
from judge_epilogues import assert_as_good
from linear_tails import Behind, K, N
from recorded_ops import RecordOps
from torch import nn
from torch.nn import functional as F

import cutlass_fused

M = 6  # neither K nor N


def _swish(y):
    return torch.sigmoid(y) * y


def _row():
    return nn.Parameter(torch.randn(N))


# A tail behind m.bn, the parts that it reads, and the names of what one call computes.
TAILS = {
    "gelu, relu": (lambda m, z, x: torch.relu(F.gelu(m.bn(z))), {}, ["gelu", "relu"]),
    "bias, divide, swish": (
        lambda m, z, x: _swish((m.bn(z) + m.b) / 2.0),
        {"b": lambda: nn.Parameter(torch.randn(1))},
        ["add", "truediv", "sigmoid", "mul"],
    ),
    "a residual, in place": (
        lambda m, z, x: m.act(m.bn(z).add_(x[:, :1])) * m.b,
        {"act": lambda: nn.Tanh(), "b": _row},
        ["add", "Tanh", "mul"],
    ),
    "prelu, layer norm": (
        lambda m, z, x: m.norm(m.act(m.bn(z))),
        {"act": lambda: nn.PReLU(N), "norm": lambda: nn.LayerNorm(N)},
        ["PReLU", "LayerNorm"],
    ),
    "a sum of rows": (
        lambda m, z, x: torch.sum(torch.tanh(m.bn(z)), dim=1),
        {},
        ["tanh", "sum"],
    ),
    "behind an activation": (
        lambda m, z, x: torch.tanh(m.bn(F.silu(z))) * 2.0,
        {},
        ["tanh", "mul"],
    ),
}
every_tail = pytest.mark.parametrize("name", TAILS)


def make(name, dtype=torch.float32):
    tail, parts, _ = TAILS[name]
    plain = Behind(tail, bn=nn.BatchNorm1d(N), **{key: part() for key, part in parts.items()})
    plain = plain.to(dtype)
    fused = copy.deepcopy(plain)
    return plain, fused, cutlass_fused.fuse(fused)


def list_results(model, x):
    """The result, its gradients, and the buffers that the call has moved."""
    y = model(x)
    loss = (y * torch.linspace(-1, 1, y.numel()).view_as(y).to(y)).sum()
    return [y, *torch.autograd.grad(loss, [x, *model.parameters()]), *model.buffers()]


def draw(dtype=torch.float32):
    return torch.randn(M, K, dtype=dtype, requires_grad=True)


@every_tail
def test_is_one_call(name):
    plain, fused, report = make(name)
    (site,) = report.sites
    assert site.tail.names == TAILS[name][2] and site.tail.obstacle == ""
    for is_recorded in (True, False):
        with torch.set_grad_enabled(is_recorded):
            x = draw()
            torch.testing.assert_close(fused(x), plain(x))
    assert site.tail.last.why is None
    assert "then apply_program" in str(report)
    with torch.no_grad(), RecordOps() as record:
        fused(draw())
    assert [op for op, _ in record.calls].count("apply_program") == 1
    assert record.calls[-1][0] == "apply_program"


@every_tail
def test_right(name):
    drawn = []
    for _ in range(8):  # the error of a gradient of one number is luck
        plain, fused, _ = make(name)
        wide, x = copy.deepcopy(plain).double(), draw()
        truth = list_results(wide, x.detach().double().requires_grad_())
        drawn.append((list_results(fused, x), list_results(plain, x), truth))
    for index, parts in enumerate(zip(*(zip(*each, strict=True) for each in drawn), strict=True)):
        of_each = zip(*parts, strict=True)
        ours, eager, truth = (torch.stack([t.detach() for t in each]) for each in of_each)
        if ours.dtype == torch.int64:
            assert torch.equal(ours, eager)
        else:
            assert_as_good(ours, eager, truth, index)


@pytest.mark.parametrize("name", ["bias, divide, swish", "behind an activation"])
def test_second_gradients(name):
    plain, fused, _ = make(name, torch.float64)
    x, found = draw(torch.float64), []
    for model in (fused, plain):
        inputs = [x, *model.parameters()]
        grads = torch.autograd.grad(model(x).square().sum(), inputs, create_graph=True)
        loss = sum((each * each.cos()).sum() for each in grads)
        found.append(torch.autograd.grad(loss, inputs))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def test_gradients_along_rows_are_pytorchs():
    """Their program on elements in memory has none."""
    _, fused, report = make("prelu, layer norm")
    fused(draw())
    assert report.sites[0].tail.last.why == "the gradient is none of elements"
    with torch.no_grad():
        fused(draw())
    assert report.sites[0].tail.last.why is None


def test_one_op_stays_pytorchs():
    """One kernel of PyTorch takes as long."""
    model = Behind(lambda m, z, x: torch.tanh(m.bn(z)), bn=nn.BatchNorm1d(N))
    assert cutlass_fused.fuse(model).sites[0].tail is None


def test_what_is_read_elsewhere_is_left():
    def tail(m, z, x):
        v = m.bn(z)
        return torch.tanh(v) * 2.0 + v.sum(0), v

    model = Behind(tail, bn=nn.BatchNorm1d(N))
    plain = copy.deepcopy(model)
    cutlass_fused.fuse(model)
    x = draw()
    for ours, theirs in zip(model(x), plain(x), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_eval_and_back():
    plain, fused, report = make("gelu, relu")
    for training in (True, False, True):
        x = draw()
        torch.testing.assert_close(fused.train(training)(x), plain.train(training)(x))
    assert [site.tail is not None for site in report.sites] == [True, False]


def test_hooks_and_autocast_are_pytorchs():
    plain, fused, report = make("a residual, in place")
    x = draw()
    hook = fused.act.register_forward_hook(lambda m, args, y: y * 3.0)
    assert not torch.allclose(fused(x), plain(x))
    hook.remove()
    torch.testing.assert_close(fused(x), plain(x))
    report.sites[0].tail.last = None
    with torch.autocast("cpu", torch.bfloat16):
        ours, theirs = fused(x), plain(x)
    assert ours.dtype == theirs.dtype and report.sites[0].tail.last is None  # nothing was decided
    torch.testing.assert_close(ours, theirs, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("name", ["gelu, relu", "bias, divide, swish"])
def test_derivatives_in_forward_mode_are_pytorchs(name):
    plain, fused, _ = make(name, torch.float64)
    x, tangent = draw(torch.float64).detach(), draw(torch.float64).detach()
    found = []
    for model in (fused, plain):
        with torch.no_grad(), torch.autograd.forward_ad.dual_level():
            model(x)  # which decides
            y = model(torch.autograd.forward_ad.make_dual(x, tangent))
            found.append(torch.autograd.forward_ad.unpack_dual(y).tangent)
    torch.testing.assert_close(*found)


def test_verify_reaches_it(monkeypatch):
    from cutlass_fused.fusing.tails import Tail

    call = Tail.__call__
    monkeypatch.setattr(Tail, "__call__", lambda self, *given: call(self, *given) * 1.01)
    plain, _, _ = make("gelu, relu")
    with pytest.raises(RuntimeError, match="behind a batch norm must be within"):
        cutlass_fused.fuse(plain, verify=draw())
