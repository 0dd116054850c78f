"""fuse(model, graphs=True): which calls are replays, and that each gives what the model gives.

There is no CUDA here: recorded_calls.py has what stands for a CUDA graph.
"""

import copy
import gc
import threading
import weakref
from typing import NamedTuple

import pytest
import torch
from linear_tails import Behind, K, N, Residual
from recorded_calls import RecordedOps, Scaled, check, draw, make, recorded  # noqa: F401
from torch import nn
from torch.nn import functional as F

import cutlass_fused
from cutlass_fused.fusing.captured import replays as replays_module

pytestmark = pytest.mark.usefixtures("recorded")


def test_third_call_is_a_replay():
    model, plain, graphs = make()
    for call in range(5):
        check(model, plain, draw())
        assert graphs.replayed == max(0, call)
    assert graphs.why is None and RecordedOps.captured == 1 and len(graphs.graphs) == 1


def test_shapes_have_graphs_of_their_own():
    model, plain, graphs = make()
    for _ in range(3):
        for rows in (1, 4, 6):
            check(model, plain, draw(rows))
    assert RecordedOps.captured == len(graphs.graphs) == 3 and graphs.replayed == 6
    check(model, plain, torch.randn(K, 6).t())  # other strides
    assert graphs.replayed == 6


def test_graphs_share_memory():
    model, plain, graphs = make()
    for _ in range(2):
        for rows in (1, 4):
            check(model, plain, draw(rows))
    assert len({id(each._graph.pool) for each in graphs.graphs.values()}) == 1


def test_number_of_graphs():
    model, plain, graphs = make(graphs=2)
    for _ in range(3):
        for rows in range(1, 6):
            check(model, plain, draw(rows))
    assert len(graphs.graphs) == RecordedOps.captured == 2
    assert graphs.why == "there are 2 graphs of other shapes"


def test_shapes_that_never_come_twice():
    model, plain, graphs = make()
    for rows in range(1, 300):
        model(draw(rows))
    assert RecordedOps.captured == 0 and len(graphs._met) <= 256


def test_results_stay():
    """The next replay does not overwrite them."""
    model, plain, _ = make()
    drawn = [draw() for _ in range(5)]
    results = [model(x) for x in drawn]
    for x, y in zip(drawn, results, strict=True):
        torch.testing.assert_close(y, plain(x))


def test_inputs_stay():
    model, plain, _ = make()
    drawn = [draw() for _ in range(4)]
    before = copy.deepcopy(drawn)
    for x in drawn:
        model(x)
    assert all(torch.equal(x, y) for x, y in zip(drawn, before, strict=True))


class Pair(NamedTuple):
    first: torch.Tensor
    second: dict


def test_results_of_every_kind():
    def tail(m, z, x):
        return Pair(F.gelu(z), {"x": [z.sum(1), None], "n": 1})

    model, plain, graphs = make(Behind(tail))
    for _ in range(4):
        x = draw()
        ours, theirs = model(x), plain(x)
        assert type(ours) is Pair and ours.second["n"] == 1 and ours.second["x"][1] is None
        torch.testing.assert_close(ours.first, theirs.first)
        torch.testing.assert_close(ours.second["x"][0], theirs.second["x"][0])
    assert graphs.replayed == 3


def test_arguments():
    model, plain, graphs = make(Scaled())
    for _ in range(3):
        check(model, plain, draw())
        check(model, plain, draw(), 2.0)
        check(model, plain, draw(), scale=-0.0)
        check(model, plain, draw(), scale=0.0)
        check(model, plain, x=draw(), mask=torch.rand(6, N))
        check(model, plain, draw(), mask=torch.rand(6, 1))
    assert RecordedOps.captured == 6 and graphs.replayed == 12


def test_arguments_of_one_shape_by_other_names():
    class Shifts(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(K, N)

        def forward(self, x, shift=None, scale=None):
            y = torch.tanh(self.fc(x))
            return y * scale if shift is None else y + shift

    model, plain, graphs = make(Shifts())
    for _ in range(3):
        for name in ("shift", "scale"):
            check(model, plain, draw(), **{name: torch.rand(6, N)})
    assert RecordedOps.captured == 2 and graphs.replayed == 4


def test_hooks_of_the_model_itself_run():
    model, plain, graphs = make()
    for each in (model, plain):
        each.register_forward_hook(lambda m, args, y: y * 2.0)
    for _ in range(4):
        check(model, plain, draw())
    assert graphs.replayed == 3


def test_inference_mode():
    model, plain, graphs = make()
    for mode in (torch.inference_mode, torch.no_grad, torch.inference_mode):
        with mode():
            for _ in range(3):
                assert model(draw()).is_inference() == (mode is torch.inference_mode)
                check(model, plain, draw())
    assert graphs.why is None and RecordedOps.captured == 1


def test_setting_of_precision(monkeypatch):
    """A graph holds the kernels of the word that was set."""
    model, plain, graphs = make()
    words = []
    monkeypatch.setattr(
        replays_module, "resolve_precision", lambda *args: words[-1] if words else "ieee"
    )
    for word in ("ieee", "tf32", "ieee"):
        words.append(word)
        for _ in range(3):
            check(model, plain, draw())
    assert RecordedOps.captured == 2


def test_models_within_a_model():
    """The larger one is captured as a whole."""
    inner, other = Residual().eval(), Residual().eval()
    plain = copy.deepcopy(nn.Sequential(inner, other))
    reports = [cutlass_fused.fuse(each, graphs=True) for each in (inner, other)]

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = inner, other

        def forward(self, x):
            return self.second(self.first(x))

    outer = Outer().eval()
    for _ in range(4):
        check(outer, plain, draw())
    assert [each.graphs.replayed for each in reports] == [3, 3]
    report = cutlass_fused.fuse(outer, graphs=True)
    for _ in range(4):
        check(outer, plain, draw())
    assert report.graphs.replayed == 3


def test_captured_within_a_capture():
    """As where a part of a fused model was fused on its own, behind a forward that is no site."""
    inner = Residual().eval()
    plain = copy.deepcopy(inner)
    run = cutlass_fused.fuse(inner, graphs=True).graphs
    outer = replays_module.Replays(inner, lambda x: inner(x), 4)
    for _ in range(4):
        x = draw()
        torch.testing.assert_close(outer((x,), {}), plain(x))
    assert outer.replayed == 3 and run.replayed == 0


def test_model_without_a_site():
    """What no recording can follow is captured as it is."""

    class Other(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(K, N)

        def forward(self, x):
            try:
                return torch.sin(self.fc(x))
            finally:
                pass

    model, plain, graphs = make(Other())
    for _ in range(4):
        check(model, plain, draw())
    assert graphs.replayed == 3


def test_compilers_and_traces_see_the_plain_model():
    model, plain, graphs = make()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    for _ in range(3):
        check(compiled, plain, draw())
    check(torch.export.export(model, (draw(),)).module(), plain, draw())
    names = {str(n.target) for n in torch.fx.symbolic_trace(model).graph.nodes}
    assert "fc1" in names and graphs.replayed == graphs.called == 0
    other = {name: torch.randn_like(p) for name, p in model.named_parameters()}
    for _ in range(3):
        x = draw()
        found = torch.func.functional_call(model, other, (x,))
        torch.testing.assert_close(found, torch.func.functional_call(plain, other, (x,)))
        check(model, plain, x)


def test_unfuse_and_fuse_again():
    model, plain, graphs = make()
    for _ in range(3):
        model(draw())
    gone = weakref.ref(next(iter(graphs.graphs.values())))
    cutlass_fused.unfuse(model)
    gc.collect()
    assert gone() is None and not graphs.graphs
    assert "forward" not in model.__dict__
    captured = RecordedOps.captured
    for _ in range(3):
        check(model, plain, draw())
    cutlass_fused.fuse(model)
    for _ in range(3):
        check(model, plain, draw())
    assert RecordedOps.captured == captured


def test_is_freed():
    model, _, _ = make()
    for _ in range(3):
        model(draw())
    gone = weakref.ref(model)
    del model, _
    gc.collect()
    assert gone() is None


def test_copies_have_graphs_of_their_own():
    model, plain, graphs = make(Scaled(), graphs=3)
    for _ in range(3):
        model(draw())
    other = copy.deepcopy(model)
    other.fc.weight.zero_()
    theirs = other.__dict__["forward"].replays
    assert theirs is not graphs and theirs.most == 3 and not theirs.graphs
    for _ in range(3):
        check(model, plain, draw())
        torch.testing.assert_close(other(draw()), other(draw()))
    assert theirs.replayed > 0


def test_threads():
    model, plain, graphs = make()
    failures = []

    def work(rows):
        try:
            with torch.no_grad():
                for _ in range(30):
                    check(model, plain, draw(rows))
        except BaseException as error:  # seen by the main thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=(rows,)) for rows in (1, 1, 2, 3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not failures and graphs.replayed == 120 - 3


def test_report():
    model = Residual().eval()
    report = cutlass_fused.fuse(model, graphs=True)
    assert str(report).endswith("CUDA graphs: 0 captured, 0 calls replayed, 0 not")
    for _ in range(3):
        model(draw())
    assert str(report).endswith("CUDA graphs: 1 captured, 2 calls replayed, 1 not")
    assert all(site.last is not None for site in report.sites)
    assert cutlass_fused.fuse(model).graphs is None


@pytest.mark.parametrize("graphs", [1.0, "all", None])
def test_refuses(graphs):
    with pytest.raises(TypeError, match="graphs must be a bool or an int"):
        cutlass_fused.fuse(Residual(), graphs=graphs)
    with pytest.raises(ValueError, match="graphs must be 0 or more, got -1"):
        cutlass_fused.fuse(Residual(), graphs=-1)


def test_on_the_cpu(monkeypatch):
    monkeypatch.undo()
    model, plain, graphs = make()
    for _ in range(3):
        with torch.no_grad():
            check(model, plain, draw())
    assert graphs.why == "an input is on cpu" and graphs.called == 3 and graphs.replayed == 0
