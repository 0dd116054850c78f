"""Exceptions within the tracer of epilogues: each passes, and the next call is as if there had been
none. tests/fusing/test_verify.py has those within fuse, tests/link/test_failed_links.py those
within a link."""

import pytest
import torch
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from cutlass_fused import epilogue
from cutlass_fused.programs import epilogue as epilogue_module
from cutlass_fused.programs import traced
from cutlass_fused.programs.tracing import builder, trace
from cutlass_fused.sharding._synchronized import normalize_over


class Planted(Exception):
    pass


class PlantedInterrupt(BaseException):
    """As KeyboardInterrupt is, which comes at any place."""


# Where a call is when it happens; the last ones are reached by calls with gradients alone.
STAGES = {
    "finding the operands": (epilogue_module, "find_kind"),
    "finding the program": (epilogue_module, "find_text"),
    "tracing": (traced, "trace"),
    "writing a word": (builder.Builder, "add"),
    "what PyTorch dispatches": (trace.Tracer, "__torch_dispatch__"),
    "recording": (traced, "record"),
    "differentiating": (traced, "trace_gradient"),
    "reading the record": (epilogue_module, "read_recorded"),
}
OF_GRADIENTS = ("recording", "differentiating", "reading the record")


def make():
    @epilogue
    def function(acc, bias, gate):
        return F.silu(acc + bias) * gate

    return function


def draw():
    generator = torch.Generator().manual_seed(0)
    shapes = ((6, 5), (7, 5), (7,), (6, 7))
    return [torch.randn(shape, generator=generator).requires_grad_() for shape in shapes]


def call(function, with_gradients):
    x, weight, bias, gate = draw()
    with torch.set_grad_enabled(with_gradients):
        y = function(x, weight, bias=bias, gate=gate)
    grads = torch.autograd.grad(y.sum(), (x, weight, bias, gate)) if with_gradients else ()
    return [y.detach(), *grads]


def find_stage(stage):
    where, name = STAGES[stage]
    if not hasattr(where, name):
        pytest.fail(f"{stage} is no longer {where.__name__}.{name}")
    return where, name


@pytest.mark.parametrize("error", [Planted, PlantedInterrupt])
@pytest.mark.parametrize("is_known", [False, True], ids=["first call", "another kind of call"])
@pytest.mark.parametrize("stage", STAGES)
def test_next_call_is_right(stage, is_known, error, monkeypatch):
    with_gradients = stage in OF_GRADIENTS
    expected, function = call(make(), with_gradients), make()
    if is_known:
        # It has been called, but with a number in the place of a tensor.
        x, weight, bias, _ = draw()
        function(x.detach(), weight.detach(), bias=bias.detach(), gate=2.0)

    def fail(*_, **__):
        raise error("planted")

    with monkeypatch.context() as patch:
        patch.setattr(*find_stage(stage), fail)
        # Whatever a function raises while it is traced is told with its line.
        with pytest.raises((error, RuntimeError), match="planted"):
            call(function, with_gradients)
    assert all(map(torch.equal, call(function, with_gradients), expected))


def test_function_that_raises_once():
    """What it raised is not remembered."""
    is_there = []

    @epilogue
    def function(acc, bias):
        if not is_there:
            raise OSError("a file that is not there yet")
        return acc + bias

    x, weight, bias, _ = (each.detach() for each in draw())
    with pytest.raises(RuntimeError, match="a file that is not there yet"):
        function(x, weight, bias=bias)
    is_there.append(True)
    torch.testing.assert_close(function(x, weight, bias=bias), F.linear(x, weight, bias))


def test_running_statistics_stay_where_a_call_is_refused():
    """In training nothing has moved."""
    from cutlass_fused import nn

    module = nn.LinearScaleBatchNorm1d(5, 7, (7,))
    before = {name: each.clone() for name, each in module.state_dict().items()}
    for x in (torch.randn(6, 4), torch.randn(1, 5), torch.randn(6, 5, dtype=torch.float64)):
        with pytest.raises((RuntimeError, ValueError)):
            module(x)
    assert all(torch.equal(each, before[name]) for name, each in module.state_dict().items())


class NoMemory(TorchDispatchMode):
    """For the op with this number, and for all behind it but writes to what is there."""

    def __init__(self, first):
        super().__init__()
        self.left = first

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        self.left -= op is not torch.ops.aten.copy_.default
        if self.left < 0 and op is not torch.ops.aten.copy_.default:
            raise torch.OutOfMemoryError("planted")
        return op(*args, **(kwargs or {}))


@pytest.mark.parametrize("momentum", [0.1, None])
def test_shared_statistics_stay_where_there_is_no_memory(momentum):
    """Whichever op finds none: all of them move or none does."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(6, 5, generator=generator)
    before = (torch.randn(5, generator=generator), torch.ones(5), torch.tensor(3))
    for first in range(200):
        tracked = tuple(each.clone() for each in before)
        call = ("batch_norm", (), x.clone().requires_grad_(), tracked, None, None, momentum, 1e-5)
        try:
            with NoMemory(first):
                normalize_over(*call)
        except torch.OutOfMemoryError:
            assert all(map(torch.equal, tracked, before)), first
        else:
            break
    assert first > 10 and not any(map(torch.equal, tracked, before))
