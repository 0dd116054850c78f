"""examples/serve_graphs.py on the CPU, where a bucket calls the model in place of a graph."""

import collections
import concurrent.futures
import queue
import threading

import pytest
import torch

from examples import serve_graphs
from examples.serve_graphs import GraphServer, Request, serve, take_batch

WIDTH = 6


class Counted(torch.nn.Module):
    """Notes how many rows each call has."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(WIDTH, 5), torch.nn.BatchNorm1d(5), torch.nn.Tanh()
        )
        torch.nn.init.normal_(self.layers[1].running_mean)
        self.rows = []

    def forward(self, x):
        self.rows.append(len(x))
        return self.layers(x)


@pytest.fixture
def model():
    return Counted().eval()


@pytest.fixture
def server(model):
    server = GraphServer(model, torch.randn(1, WIDTH), (8, 2, 4))
    assert model.rows == [8, 4, 2]  # once each, as a capture
    model.rows.clear()
    return server


@pytest.mark.parametrize("rows, buckets", [(1, [2]), (2, [2]), (3, [4]), (8, [8]), (19, [8, 8, 4])])
def test_a_batch_goes_into_the_smallest_bucket(rows, buckets, server, model):
    x = torch.randn(rows, WIDTH)
    y = server(x)
    assert model.rows == buckets
    torch.testing.assert_close(y, model.layers(x))


def test_answers_stay_when_the_bucket_is_used_again(server, model):
    batches = [torch.randn(3, WIDTH) for _ in range(4)]
    answers = [server(x) for x in batches]
    for x, y in zip(batches, answers, strict=True):
        torch.testing.assert_close(y, model.layers(x))
    assert not answers[0].requires_grad


def test_no_rows(server):
    assert server(torch.randn(0, WIDTH)).shape == (0, 5)


def test_rows_of_an_earlier_batch_do_not_count(server, model):
    """Not even where they are no numbers."""
    server(torch.full((4, WIDTH), torch.nan))
    x = torch.randn(3, WIDTH)
    torch.testing.assert_close(server(x), model.layers(x))


def test_what_cannot_be_served_is_refused(server, model):
    for x in (torch.randn(2, WIDTH + 1), torch.randn(2, WIDTH).double()):
        with pytest.raises(ValueError, match="GraphServer: rows of x must be"):
            server(x)
    model.layers[1].train()
    with pytest.raises(ValueError, match="call model.eval"):
        GraphServer(model, torch.randn(1, WIDTH))


def make_request(rows):
    return Request(torch.randn(rows, WIDTH), concurrent.futures.Future())


def test_a_batch_takes_what_fits_in_order():
    waiting = collections.deque(make_request(rows) for rows in (3, 4, 2, 1))
    waiting.append(None)
    taken = [[len(r.x) for r in take_batch(waiting, 8)] for _ in range(2)]
    assert taken == [[3, 4], [2, 1]] and list(waiting) == [None]
    alone = collections.deque([make_request(20), make_request(1)])
    assert [len(r.x) for r in take_batch(alone, 8)] == [20]  # in pieces


def test_requests_that_wait_are_answered_together(server, model):
    asked, requests = [make_request(rows) for rows in (1, 2, 3, 5, 9)], queue.SimpleQueue()
    refused = Request(torch.randn(1, WIDTH + 1), concurrent.futures.Future())
    for request in (*asked[:2], refused, *asked[2:], None):
        requests.put(request)
    serve(server, requests)
    # 1 + 2 + 1 that is refused + 3; 5; 9 in pieces.
    assert model.rows == [8, 8, 8, 2]
    for request in asked:
        torch.testing.assert_close(request.answer.result(), model.layers(request.x))
    with pytest.raises(ValueError, match="rows of x must be"):
        refused.answer.result()


def test_a_server_waits_for_requests(server, model):
    requests = queue.SimpleQueue()
    thread = threading.Thread(target=serve, args=(server, requests))
    thread.start()
    for rows in (1, 3):
        request = make_request(rows)
        requests.put(request)
        y = request.answer.result(timeout=60)
        torch.testing.assert_close(y, model.layers(request.x))
    requests.put(None)
    thread.join(timeout=60)
    assert not thread.is_alive() and model.rows == [2, 4]


def test_what_goes_wrong_is_told_and_the_server_goes_on(server, model):
    """An error of the model, a request that nobody waits for any more, one without rows."""
    asked, requests = [make_request(rows) for rows in (8, 8, 8, 1)], queue.SimpleQueue()
    asked.append(Request(torch.tensor(1.0), concurrent.futures.Future()))
    forward, calls = model.forward, iter([torch.OutOfMemoryError("too little"), None, None])

    def fail_first(x):
        if (error := next(calls)) is not None:
            raise error
        return forward(x)

    model.forward = fail_first
    assert asked[1].answer.cancel()
    for request in (*asked, None):
        requests.put(request)
    serve(server, requests)
    with pytest.raises(torch.OutOfMemoryError, match="too little"):
        asked[0].answer.result(timeout=0)
    for request in asked[2:4]:
        torch.testing.assert_close(request.answer.result(timeout=0), model.layers(request.x))
    with pytest.raises(ValueError, match="rows of x must be"):
        asked[4].answer.result(timeout=0)


@pytest.mark.parametrize("buckets", [(), (0, 4)])
def test_buckets_that_hold_nothing_are_refused(buckets, model):
    with pytest.raises(ValueError, match="buckets must be positive sizes, got"):
        GraphServer(model, torch.randn(1, WIDTH), buckets)


def test_command(capsys, monkeypatch):
    monkeypatch.setattr(serve_graphs, "BUCKETS", (1, 16))
    arguments = ["--model", "pinn", "--requests", "20", "--most-rows", "5", "--device", "cpu"]
    assert serve_graphs.main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "pinn, 20 requests of 1 to 5 rows"
    assert [line.split()[0] for line in lines[2:]] == ["plain", "fused"]
    assert all(float(cell) > 0 for line in lines[2:] for cell in line.split()[1:])
