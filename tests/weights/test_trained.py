"""What is kept of a weight that is trained: from when on, and what drops it. What the GPU finds out
about contents is tested there (tests/gpu/derivatives/test_kept_parts.py)."""

import gc

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import cutlass_fused
from cutlass_fused.weights import splits as weight_splits
from cutlass_fused.weights.trained import TrainedSplits

STREAM = 7


class Counting(TrainedSplits):
    def __init__(self):
        super().__init__(self.copy, weight_splits.describe)
        self.made = []

    def copy(self, weight, precision):
        self.made.append(precision)
        return weight.detach().clone(), torch.zeros(1)

    def call(self, weight, precision="ieee", stream=STREAM, asks=True):
        """A forward pass; whether it found parts."""
        return self.find(weight, precision, stream, lambda: asks) is not None


@pytest.fixture
def trained(monkeypatch):
    trained = Counting()
    monkeypatch.setattr(weight_splits, "_trained", trained)
    return trained


@pytest.fixture
def weight():
    return torch.nn.Parameter(torch.randn(8, 8))


def test_kept_from_the_second_pass_on(trained, weight):
    assert [trained.call(weight) for _ in range(4)] == [False, True, True, True]
    assert trained.made == ["ieee"]
    assert trained.find(weight, "ieee", STREAM, None) is trained.find(weight, "ieee", STREAM, None)


def test_a_step_that_changes_its_weights_keeps_nothing(trained, weight):
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for _ in range(4):
        assert not trained.call(weight)
        weight.square().sum().backward()
        optimizer.step()
    assert not trained.made


def write(weight):
    with torch.no_grad():
        weight.mul_(2)


def load(weight):
    module = torch.nn.Linear(8, 8, bias=False)
    module.weight = weight
    module.load_state_dict({"weight": torch.randn(8, 8)})


def step(make, own=True):
    def run(weight):
        other = weight if own else torch.nn.Parameter(torch.randn(3))
        other.grad = torch.ones_like(other)
        make([other]).step()

    return run


CHANGES = {
    "a write": write,
    "load": load,
    "other data": lambda weight: setattr(weight, "data", torch.randn(8, 8)),
    "other strides": lambda weight: setattr(weight, "data", weight.data.t()),
    "a step": step(lambda weights: torch.optim.SGD(weights, lr=0.1)),
    "an uncounted step": step(lambda weights: torch.optim.AdamW(weights, fused=True)),
    "a step of others, of which this may be a copy": step(torch.optim.SGD, own=False),
    "invalidate": cutlass_fused.invalidate,
    "invalidate all": lambda weight: cutlass_fused.invalidate(),
    "keep_splits": lambda weight: (
        cutlass_fused.keep_splits(False),
        cutlass_fused.keep_splits(True),
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_drops_it(trained, weight, change):
    trained.call(weight)
    trained.call(weight)
    CHANGES[change](weight)
    assert [trained.call(weight) for _ in range(2)] == [False, True]
    assert len(trained.made) == 2 and len(trained) == 1


def test_a_step_has_the_memory_from_its_beginning_on(trained, weight):
    class Looking(torch.optim.SGD):
        def step(self, closure=None):
            assert len(trained) == 0
            trained.call(weight)  # as the closure of a line search does
            trained.call(weight)

    trained.call(weight)
    trained.call(weight)
    assert len(trained) == 1
    Looking([weight]).step()
    assert len(trained) == 0


@pytest.mark.parametrize("other", [{"precision": "tf32"}, {"stream": 8}])
def test_in_turn_nothing_is_kept(trained, weight, other):
    """On another stream parts that may be made again there must not be read."""
    trained.call(weight)
    assert trained.call(weight)
    for _ in range(3):
        assert not trained.call(weight, **other) and not trained.call(weight)
    assert len(trained.made) == 1 and len(trained) == 0


def test_calls_that_read_no_parts(trained, weight):
    for _ in range(3):
        assert not trained.call(weight, asks=False)
    assert trained.call(weight) and trained.call(weight, asks=False)
    assert len(trained.made) == 1


def test_it_goes_with_its_weight(trained):
    weight = torch.nn.Parameter(torch.randn(8, 8))
    trained.call(weight)
    trained.call(weight)
    del weight
    gc.collect()
    assert len(trained) == 0


def test_what_was_only_seen_has_no_reference(trained, weight):
    """torch.utils.swap_tensors would refuse it, and what is seen does not grow."""
    trained.call(weight)
    torch.utils.swap_tensors(weight, torch.nn.Parameter(torch.randn(8, 8)))
    for _ in range(5000):
        trained.call(torch.randn(1))
    assert len(trained._seen) <= 4096


def test_what_is_forgotten_while_it_is_made_is_not_kept(trained, weight):
    copy = trained.copy

    def forget(weight, precision):
        trained.forget(weight)
        return copy(weight, precision)

    trained._split = forget
    assert not trained.call(weight) and trained.call(weight) and len(trained) == 0


# ---- which calls ask ----


@pytest.fixture
def asked(trained, monkeypatch):
    """How often parts were asked for, by calls as on a GPU."""
    asked = []

    def find(*arguments):
        asked.append(arguments)

    monkeypatch.setattr(weight_splits, "_find_trained", find)
    monkeypatch.setattr(weight_splits, "may_share", lambda weight: weight_splits._cache.enabled)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: capturing[0])
    capturing = [False]
    asked_of = lambda: len(asked)  # noqa: E731
    asked_of.capturing = capturing
    return asked_of


LARGE = torch.nn.Parameter(torch.empty(1024, 1024))  # as large as parts are kept of


def ask(x, weight=LARGE):
    return weight_splits.share(x, weight, "ieee")


def test_large_weights_alone(asked, weight):
    x = torch.empty(2, 1024, requires_grad=True)
    assert ask(x, weight) == (True, None, None) and asked() == 0
    assert ask(x) == (True, None, None) and asked() == 1


def test_the_first_layer_leaves_none(asked):
    assert ask(torch.empty(2, 1024)) == (True, None, None) and asked() == 0


def test_not_for_a_graph_that_is_captured(asked):
    asked.capturing[0] = True
    assert ask(torch.empty(2, 1024, requires_grad=True)) == (True, None, None) and asked() == 0


def test_not_with_keep_splits_false(asked):
    cutlass_fused.keep_splits(False)
    try:
        assert ask(torch.empty(2, 1024, requires_grad=True)) == (False, None, None)
    finally:
        cutlass_fused.keep_splits(True)
    assert asked() == 0


@pytest.mark.parametrize("reentrant", [False, True])
def test_not_under_checkpointing(asked, reentrant):
    """Neither in the forward pass, whose saved tensors go, nor when it is run again."""
    runs = []

    def layer(x):
        if torch.is_grad_enabled():  # else no such function is called
            runs.append(ask(x))
        return x * x

    x = torch.ones(2, requires_grad=True)
    checkpoint(layer, x, use_reentrant=reentrant).sum().backward()
    assert len(runs) == (1 if reentrant else 2) and asked() == 0
    layer(x)
    assert asked() == 1
