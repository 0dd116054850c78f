"""fuse(model, graphs=True) on a GPU: the bits of the calls that were captured, in any order of
shapes, streams and threads, and memory that has an end."""

import copy
import threading

import pytest
import torch
from linear_tails import Residual
from torch import nn

import cutlass_fused

pytestmark = pytest.mark.gpu

WIDTH = 256
ROWS = (1, 16, 133)  # few, whole and cut tiles


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


def make_layers(device, dtype=torch.float32, depth=4):
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.LeakyReLU(0.2)) for _ in range(depth)]
    return nn.Sequential(*layers).to(device, dtype).eval()


def make_pair(device, dtype=torch.float32, precision="ieee", is_prepared=True):
    """The same model behind fuse, without and with graphs; both multiply the same parts."""
    eager = make_layers(device, dtype)
    captured = copy.deepcopy(eager)
    cutlass_fused.fuse(eager, precision=precision)
    graphs = cutlass_fused.fuse(captured, precision=precision, graphs=True).graphs
    if is_prepared:
        cutlass_fused.prepare(eager)
        cutlass_fused.prepare(captured)
    return eager, captured, graphs


def draw(rows, device, dtype=torch.float32):
    return torch.randn(rows, WIDTH, device=device).to(dtype)


def check_close(y, plain, x):
    truth = plain.double()(x.double())
    assert (y.double() - truth).norm() <= 1e-5 * truth.norm()
    plain.float()


@pytest.mark.parametrize(
    "precision, dtype",
    [("ieee", torch.float32), ("tf32", torch.float32), (None, torch.bfloat16)],
    ids=str,
)
def test_same_bits(precision, dtype, device):
    eager, captured, graphs = make_pair(device, dtype, precision)
    for _ in range(4):
        for rows in ROWS:
            x = draw(rows, device, dtype)
            assert torch.equal(captured(x), eager(x))
    assert len(graphs.graphs) == 3 and graphs.replayed == 9 and graphs.why is None


@pytest.mark.parametrize("is_prepared", [True, False])
def test_weights_written_in_place_are_seen(is_prepared, device):
    eager, captured, graphs = make_pair(device, is_prepared=is_prepared)
    plain = make_layers(device)
    for step in range(6):
        x = draw(16, device)
        check_close(captured(x), plain, x)
        for model in (captured, plain):
            model[1][0].weight.mul_(1.0 + step / 3)
            model[2][0].bias.copy_(torch.full((WIDTH,), step / 2, device=device))
    # Behind the first write nothing that was prepared is read, and a graph splits the weight.
    assert graphs.replayed > 0 and graphs.why is None


def test_weights_written_by_an_optimizer(device):
    _, captured, graphs = make_pair(device, is_prepared=False)
    plain = make_layers(device)
    optimizer = torch.optim.AdamW(captured.parameters(), 0.01, fused=True)  # it counts no writes
    for _ in range(5):
        x = draw(16, device)
        with torch.enable_grad():
            optimizer.zero_grad()
            captured(x).square().mean().backward()
        optimizer.step()
        plain.load_state_dict(captured.state_dict())
        check_close(captured(x), plain, x)
    assert graphs.replayed == 4 and len(graphs.graphs) == 1


def test_weights_that_are_replaced(device):
    _, captured, graphs = make_pair(device, is_prepared=False)
    plain = make_layers(device)
    for _ in range(3):
        for model in (captured, plain):
            torch.manual_seed(3)
            model[0][0].weight = nn.Parameter(torch.randn(WIDTH, WIDTH, device=device) / 16)
            model[1][0].weight.data = torch.randn(WIDTH, WIDTH, device=device) / 16
        for _ in range(4):
            x = draw(16, device)
            check_close(captured(x), plain, x)
    assert graphs.why is None and len(graphs.graphs) == 1


def test_results_stay_as_they_are(device):
    eager, captured, _ = make_pair(device)
    drawn = [draw(16, device) for _ in range(6)]
    results = [captured(x) for x in drawn]
    for x, y in zip(drawn, results, strict=True):
        assert torch.equal(y, eager(x))


def test_memory_has_an_end(device):
    _, captured, graphs = make_pair(device)
    for _ in range(3):
        for rows in range(1, 40):
            captured(draw(rows, device))
    assert len(graphs.graphs) == 16
    torch.cuda.synchronize()
    used = torch.cuda.memory_allocated()
    reserved = torch.cuda.memory_reserved()
    for _ in range(20):
        for rows in range(1, 40):
            captured(draw(rows, device))
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() <= used
    assert torch.cuda.memory_reserved() <= reserved
    cutlass_fused.unfuse(captured)
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() < used


def test_weights_replaced_often_leave_no_memory(device):
    _, captured, graphs = make_pair(device, is_prepared=False)

    def swap():
        captured[0][0].weight = nn.Parameter(torch.randn(WIDTH, WIDTH, device=device))
        for _ in range(12):
            captured(draw(16, device))
        torch.cuda.synchronize()
        return torch.cuda.memory_allocated()

    first = [swap() for _ in range(3)]
    later = [swap() for _ in range(10)]
    assert max(later) <= max(first) and graphs.why is None


def test_streams(device):
    """Each call is behind the one before, on whichever stream."""
    eager, captured, graphs = make_pair(device)
    streams = [torch.cuda.Stream() for _ in range(3)]
    drawn = [draw(16, device) for _ in range(60)]
    expected = [eager(x) for x in drawn]
    torch.cuda.synchronize()
    results = []
    for index, x in enumerate(drawn):
        with torch.cuda.stream(streams[index % 3]):
            results.append(captured(x))
    torch.cuda.synchronize()
    for ours, theirs in zip(results, expected, strict=True):
        assert torch.equal(ours, theirs)
    assert graphs.replayed == 59


def test_threads(device):
    """Each on a stream of its own, of shapes that are met and captured meanwhile."""
    eager, captured, graphs = make_pair(device)
    drawn = {rows: [draw(rows, device) for _ in range(40)] for rows in (1, 2, 3, 16)}
    expected = {rows: [eager(x) for x in xs] for rows, xs in drawn.items()}
    torch.cuda.synchronize()
    failures = []

    def work(rows):
        try:
            with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
                results = [captured(x) for x in drawn[rows]]
                torch.cuda.current_stream().synchronize()
            for ours, theirs in zip(results, expected[rows], strict=True):
                assert torch.equal(ours, theirs), rows
        except BaseException as error:  # seen by the main thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=(rows,)) for rows in drawn]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not failures and graphs.replayed == 4 * 39


class Asking(nn.Module):
    """Reads a number from the GPU, which a capture forbids."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        y = torch.tanh(self.fc(x))
        return y * 2.0 if y.sum().item() > 0 else y


def test_what_cannot_be_captured(device):
    """It runs as before, and so does what is captured or drawn later."""
    model = Asking().to(device).eval()
    plain = copy.deepcopy(model)
    graphs = cutlass_fused.fuse(model, precision="ieee", graphs=True).graphs
    for _ in range(4):
        x = draw(16, device)
        torch.testing.assert_close(model(x), plain(x), rtol=1e-4, atol=1e-5)
    assert graphs.why.startswith("it cannot be captured") and not graphs.graphs
    assert torch.isfinite(torch.rand(8, device=device)).all()
    torch.manual_seed(1)
    first = torch.rand(8, device=device)
    torch.manual_seed(1)
    assert torch.equal(first, torch.rand(8, device=device))
    eager, captured, later = make_pair(device)
    for _ in range(4):
        x = draw(16, device)
        assert torch.equal(captured(x), eager(x))
    assert later.replayed == 3


def test_within_a_graph_of_the_caller(device):
    eager, captured, graphs = make_pair(device)
    x = draw(16, device)
    for _ in range(3):
        captured(x)
    replayed = graphs.replayed
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = captured(x)
    x.copy_(draw(16, device))
    graph.replay()
    assert graphs.replayed == replayed and torch.equal(y, eager(x))
    assert graphs.why == "the call is captured by its caller"


def test_inference_mode(device):
    eager, captured, graphs = make_pair(device)
    for mode in (torch.inference_mode, torch.no_grad, torch.inference_mode):
        with mode():
            for _ in range(3):
                x = draw(16, device)
                assert torch.equal(captured(x), eager(x))
    assert graphs.why is None and len(graphs.graphs) == 1


def test_trained_in_between(device):
    model = Residual().to(device)
    plain = copy.deepcopy(model)
    cutlass_fused.fuse(model, precision="ieee", graphs=True)
    optimizers = [torch.optim.SGD(m.parameters(), 0.1) for m in (model, plain)]
    for _ in range(4):
        x = torch.randn(133, 8, device=device)
        for each, optimizer in zip((model.train(), plain.train()), optimizers, strict=True):
            with torch.enable_grad():
                optimizer.zero_grad()
                each(x).square().mean().backward()
            optimizer.step()
        model.eval(), plain.eval()
        for _ in range(20):
            torch.testing.assert_close(model(x), plain(x), rtol=1e-4, atol=1e-5)
