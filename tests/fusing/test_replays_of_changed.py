"""fuse(model, graphs=True): a model that changes between calls, or in them."""

import gc
import weakref

import pytest
import torch
from linear_tails import Behind, K, N
from recorded_calls import RecordedOps, Scaled, check, draw, make, recorded  # noqa: F401
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from cutlass_fused.fusing.captured import replays as replays_module
from cutlass_fused.fusing.captured.watched import Watched

pytestmark = pytest.mark.usefixtures("recorded")


def replace(module, name, value):
    setattr(module, name, nn.Parameter(value))


IN_PLACE = {
    "optimizer": lambda m: torch.optim.SGD(m.parameters(), lr=1.0).step(),
    "copy_": lambda m: m.fc.weight.copy_(torch.randn(N, K)),
    "load_state_dict": lambda m: m.load_state_dict(
        {name: each * 2 for name, each in m.state_dict().items()}
    ),
    "of .data": lambda m: m.fc.bias.data.fill_(3.0),
}


@pytest.mark.parametrize("what", IN_PLACE)
def test_weights_written_in_place_are_seen(what):
    model, plain, graphs = make(Scaled())
    for _ in range(3):
        check(model, plain, draw())
    for each in (model, plain):
        for p in each.parameters():
            p.grad = torch.ones_like(p)
        torch.manual_seed(1)
        IN_PLACE[what](each)
    for _ in range(2):
        check(model, plain, draw())
    assert RecordedOps.captured == 1 and graphs.replayed == 4


CHANGES = {
    "weight": lambda m: replace(m.fc, "weight", torch.ones(N, K)),
    "memory of a weight": lambda m: setattr(m.fc.weight, "data", torch.ones(N, K)),
    "strides of a weight": lambda m: setattr(m.fc.weight, "data", torch.ones(K, N).t()),
    "no bias": lambda m: setattr(m.fc, "bias", None),
    "dtype": lambda m: m.double().float(),
    "a layer": lambda m: setattr(m, "fc", nn.Linear(K, N, bias=False)),
    "number": lambda m: setattr(m, "factor", 7.0),
    "within a list": lambda m: m.factors.__setitem__(0, 5.0),
    "a tensor": lambda m: setattr(m, "shift", torch.zeros(N)),
    "one attribute more": lambda m: setattr(m, "other", 1),
}


@pytest.mark.parametrize("what", CHANGES)
def test_another_model_is_captured_anew(what):
    model, plain, graphs = make(Scaled())
    for _ in range(3):
        check(model, plain, draw())
    assert RecordedOps.captured == 1
    for each in (model, plain):
        torch.manual_seed(1)
        CHANGES[what](each)
        if what == "dtype":
            each.shift = each.shift.clone()
    if what == "a layer":
        model.eval(), plain.eval()
    for _ in range(4):
        check(model, plain, draw())
    assert RecordedOps.captured == 2 and graphs.why is None and len(graphs.graphs) == 1


def test_model_that_changes_in_every_call():
    model, plain, graphs = make(Scaled())
    for step in range(60):
        model.factor = plain.factor = step / 7
        check(model, plain, draw())
    assert RecordedOps.captured == 0
    assert graphs.why == "its attributes or tensors are others from call to call"


def test_weights_that_are_swapped_now_and_then():
    model, plain, graphs = make(Scaled())
    for step in range(20):
        for each in (model, plain):
            replace(each.fc, "weight", torch.full((N, K), step / 7))
        for _ in range(10):
            check(model, plain, draw())
    assert RecordedOps.captured == 20 and graphs.why is None


def test_replaced_weights_are_freed():
    """By the next call, without a collection of garbage."""
    model, plain, _ = make(Scaled())
    gc.collect()
    gc.disable()
    try:
        for rows in (1, 3, 5):
            model(draw(rows))  # watched, and not captured: what stands for a graph has cycles
            gone = weakref.ref(model.fc.weight)
            replace(model.fc, "weight", torch.ones(N, K))
            model(draw(rows + 1))
            assert gone() is None
    finally:
        gc.enable()


class Counting(nn.Module):
    """forward writes: to a buffer, to an attribute, or to its input."""

    def __init__(self, what):
        super().__init__()
        self.fc, self.what, self.calls = nn.Linear(K, N), what, 0
        self.register_buffer("total", torch.zeros(()))

    def forward(self, x):
        if self.what == "buffer":
            self.total += 1.0
        elif self.what == "attribute":
            self.calls += 1
        elif self.what == "input":
            x.mul_(2.0)
        return F.gelu(self.fc(x)) * (1.0 + self.total) + self.calls


@pytest.mark.parametrize(
    "what, why",
    [
        ("buffer", "its forward writes to a parameter or a buffer"),
        ("attribute", "its attributes or tensors are others from call to call"),
        ("input", "its forward writes to an input"),
    ],
)
def test_forward_that_writes(what, why):
    """It is called as often as it is asked for, and finds what it wrote."""
    model, plain, graphs = make(Counting(what))
    for _ in range(20):
        x = draw()
        y = x.clone()
        torch.testing.assert_close(model(x), plain(y))
        assert torch.equal(x, y)
    assert torch.equal(model.total, plain.total) and model.calls == plain.calls
    assert RecordedOps.captured == 0 and graphs.why == why


VIEWS = {
    "an input": lambda m, z, x: (F.gelu(z), x[:2]),
    "a parameter": lambda m, z, x: (F.gelu(z), m.fc.bias[:2]),
}


@pytest.mark.parametrize("what", VIEWS)
def test_results_that_are_others(what):
    model, plain, graphs = make(Behind(VIEWS[what]))
    for _ in range(4):
        x = draw()
        found = model(x)[1]
        expected = (x if what == "an input" else model.fc.bias).data_ptr()
        assert found.data_ptr() == expected
    assert graphs.replayed == 0 and graphs.why.startswith("its result is a view")


def test_result_that_is_no_tensor():
    model, _, graphs = make(Behind(lambda m, z, x: {"z": z, "set": {1}}))
    for _ in range(4):
        assert model(draw())["set"] == {1}
    assert graphs.why == "its result holds a set"


def test_what_cannot_be_captured(monkeypatch):
    def refuse(self, warm_up, run):
        warm_up()
        raise RuntimeError("operation not permitted when stream is capturing\nand more")

    monkeypatch.setattr(RecordedOps, "capture", refuse)
    model, plain, graphs = make()
    for _ in range(4):
        check(model, plain, draw())
    said = "it cannot be captured: operation not permitted when stream is capturing"
    assert graphs.why == said and not graphs.graphs and said in str(graphs)


def add_hook(model):
    return model.fc1.register_forward_hook(lambda m, args, y: y + 1.0)


@pytest.mark.parametrize("what", ["gradients", "autocast", "mode", "training", "hook", "autotune"])
def test_calls_that_are_no_replays(what, monkeypatch):
    """Between replays, and the replays behind them."""
    model, plain, graphs = make()
    for _ in range(3):
        check(model, plain, draw())
    handles = []
    if what == "gradients":
        with torch.enable_grad():
            y = model(draw())
            assert y.requires_grad
            y.sum().backward()
    elif what == "autocast":
        with torch.autocast("cpu", torch.bfloat16):
            x = draw()
            torch.testing.assert_close(model(x), plain(x), rtol=0.02, atol=0.02)
    elif what == "mode":
        with FlopCounterMode(display=False):
            check(model, plain, draw())
    elif what == "training":
        model.train(), plain.train()
        check(model, plain, draw())
        model.eval(), plain.eval()
    elif what == "hook":
        handles = [add_hook(each) for each in (model, plain)]
        check(model, plain, draw())
    else:
        with monkeypatch.context() as patch:  # which does nothing without a GPU
            patch.setattr(replays_module, "is_tuning", lambda: True)
            check(model, plain, draw())
    said = {
        "gradients": "gradients are enabled",
        "autocast": "autocast is on",
        "mode": "a mode of PyTorch or a derivative in forward mode sees its ops",
        "training": "Residual is in training",
        "hook": "fc1 has hooks",
        "autotune": "cutlass_fused.autotune writes down its products",
    }
    assert graphs.why == said[what]
    for handle in handles:
        handle.remove()
    for _ in range(30):  # after a while of calls that do not look
        check(model, plain, draw())
    assert graphs.why is None
    # Products may have other kernels behind autotune; another mode or hook is another model.
    assert RecordedOps.captured == (1 if what in ("gradients", "autocast", "mode") else 2)


class Prepared:
    """As what cutlass_fused.prepare leaves with a layer on a GPU."""

    def __init__(self, weight):
        self.weight, self.state = weight, (weight._version,)

    def is_of(self, weight):
        return self.weight is weight and self.state == (weight._version,)


@pytest.mark.parametrize("what", ["written", "forgotten", "prepared again"])
def test_prepared_weights(what):
    """A graph reads the split that was made of a weight, and not what is written to it later."""
    model = Scaled().eval()
    weight = model.fc.weight
    model.fc.__dict__["_prepared_split"] = Prepared(weight)
    watched = Watched(model, weight.device)
    assert watched.is_current()
    if what == "written":
        weight.mul_(2.0)
        assert not watched.is_current()
        # Now the graph splits the weight itself.
        watched = Watched(model, weight.device)
        weight.mul_(2.0)
        assert watched.is_current()
        return
    if what == "forgotten":
        model.fc.__dict__["_prepared_split"].state = None
    else:
        model.fc.__dict__["_prepared_split"] = Prepared(weight)
    assert not watched.is_current()
