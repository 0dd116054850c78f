"""When a call with a trained weight leaves its split for the next call, and until when."""

import gc
import types

import pytest
import torch

import cutlass_fused
from cutlass_fused.weights import prepared
from cutlass_fused.weights import splits as weight_splits
from cutlass_fused.weights.trained import TrainedSplits


@pytest.fixture
def trained():
    return TrainedSplits()


@pytest.fixture
def weight():
    return torch.nn.Parameter(torch.randn(6, 6))


def call(trained, weight, precision="ieee", stream=0):
    """As a call does, which leaves something where nothing is."""
    kept = trained.find(weight, precision, stream)
    if kept is not None and kept.numel() == 0:
        kept.set_(torch.ones(9, dtype=torch.uint8))
    return kept


def write(weight):
    with torch.no_grad():
        weight.mul_(2)


def step(weight):
    weight.grad = torch.ones_like(weight)
    torch.optim.SGD([weight], lr=0.5).step()


def test_the_second_call_leaves_what_the_third_one_finds(trained, weight):
    assert call(trained, weight) is None and len(trained) == 0
    kept = call(trained, weight)
    assert kept.dtype == torch.uint8 and kept.numel() == 9 and len(trained) == 1
    assert call(trained, weight) is kept


def replace_data(weight):
    weight.data = torch.randn(6, 6)


@pytest.mark.parametrize("change", [write, replace_data])
def test_steps_of_one_call_leave_nothing(trained, weight, change):
    for _ in range(3):
        assert call(trained, weight) is None
        change(weight)
    assert len(trained) == 0


def test_steps_of_more_calls_keep_from_the_first_one_on(trained, weight):
    call(trained, weight)
    first = call(trained, weight)
    write(weight)
    second = call(trained, weight)
    assert second is not None and second is not first
    assert call(trained, weight) is second
    write(weight)
    call(trained, weight)
    write(weight)  # behind one call alone
    assert call(trained, weight) is None


def test_a_write_that_is_not_counted_is_left_to_the_gpu(trained, weight):
    call(trained, weight)
    kept = call(trained, weight)
    weight.data.mul_(2)
    assert call(trained, weight) is kept


@pytest.mark.parametrize("other", [{"precision": "tf32"}, {"stream": 1}])
def test_another_precision_or_stream_starts_anew(trained, weight, other):
    for _ in range(2):
        call(trained, weight)
    assert call(trained, weight, **other) is not call(trained, weight)


def test_the_end_of_a_step(trained, weight):
    other = torch.nn.Parameter(torch.randn(6, 6))
    for _ in range(2):
        call(trained, weight)
        call(trained, other)
    trained.end_step([weight, torch.randn(2), torch.eye(2).to_sparse()])
    assert len(trained) == 1
    assert call(trained, weight) is not None  # it is called more than once a step
    trained.end_step()
    trained.end_step()
    assert len(trained) == 0
    call(trained, weight)
    trained.end_step([weight])
    assert call(trained, weight) is None  # it was not


@pytest.mark.parametrize("lose", ["weight", "memory"])
def test_it_lives_no_longer_than_the_memory(trained, lose):
    weight = torch.nn.Parameter(torch.randn(6, 6))
    for _ in range(2):
        call(trained, weight)
    if lose == "weight":
        del weight
    else:
        weight.data = torch.randn(6, 6)
    gc.collect()
    assert len(trained) == 0 and not trained.is_called


def test_a_weight_of_which_another_tensor_is_left(trained, weight):
    """As one that is made anew of a buffer in every step."""
    kept = [call(trained, torch.nn.Parameter(weight.data)) for _ in range(4)]
    assert kept[0] is None and kept[1] is kept[2] is kept[3] is not None
    assert len(trained._entries) == 1


def test_weights_that_share_an_address(trained, weight):
    part = torch.nn.Parameter(weight.data[:3])
    for _ in range(3):
        assert call(trained, weight) is None
        assert call(trained, part) is None


def test_other_memory_at_the_address_of_what_is_gone(trained, weight):
    other = torch.nn.Parameter(torch.randn(6, 6))
    for _ in range(2):
        call(trained, other)
    entries, address = trained._entries, weight.data_ptr()
    gone = entries[address] = entries.pop(other.data_ptr())
    assert call(trained, weight) is None and entries[address] is not gone
    mine = entries[address]
    gone.memory.__callback__(gone.memory)
    assert entries == {address: mine}


@pytest.fixture
def used(trained, weight, monkeypatch):
    """The one that calls use, with what two calls have left."""
    monkeypatch.setattr(weight_splits, "_trained", trained)
    for _ in range(2):
        call(trained, weight)
    return trained


def test_optimizers_end_steps(used, weight):
    step(torch.nn.Parameter(torch.randn(2)))
    assert len(used) == 1
    step(weight)
    assert len(used) == 0
    assert call(used, weight) is not None  # called twice in the step before
    step(weight)
    assert call(used, weight) is None


@pytest.mark.parametrize("forget", ["invalidate", "invalidate all", "keep_splits"])
def test_what_the_user_says(used, weight, forget):
    if forget == "keep_splits":
        cutlass_fused.keep_splits(False)
        cutlass_fused.keep_splits(True)
    else:
        cutlass_fused.invalidate(weight if forget == "invalidate" else None)
    assert len(used) == 0
    # Which refuses a tensor that has weak references.
    torch.utils.swap_tensors(weight, torch.nn.Parameter(torch.randn(6, 6)))


def test_others_are_not_forgotten(used):
    cutlass_fused.invalidate(torch.nn.Parameter(torch.randn(2)))
    assert len(used) == 1


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    """What is asked there; the answer that may change."""
    state = types.SimpleNamespace(is_capturing=False)
    monkeypatch.setattr(weight_splits.trained, "LEAST", 36)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: state.is_capturing)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 7, raising=False)
    return state


def test_a_large_weight_is_looked_for(used, weight, as_on_a_gpu):
    kept = weight_splits._find_trained(weight, "tf32")
    assert kept.numel() == 0  # of another precision, on another stream
    assert used.find(weight, "tf32", stream=7) is kept


def test_nothing_is_left_where_a_backward_pass_computes_again(trained, monkeypatch, as_on_a_gpu):
    monkeypatch.setattr(weight_splits, "_trained", trained)
    weight = torch.nn.Parameter(torch.randn(6, 6))
    found = []
    y = weight * 2
    y.register_hook(lambda grad: found.extend(find_often(weight)))
    y.sum().backward()
    assert found == [None] * 3 and find_often(weight)[-1] is not None


def find_often(weight):
    return [weight_splits._find_trained(weight, "ieee") for _ in range(3)]


def make_inferred():
    with torch.inference_mode():
        return torch.nn.Parameter(torch.randn(6, 6))


OTHERS = {
    "small": lambda: torch.nn.Parameter(torch.randn(5, 7)),
    "computed": lambda: torch.nn.Parameter(torch.randn(6, 6)) * 2,
    "inferred": make_inferred,
    "sparse": lambda: torch.nn.Parameter(torch.eye(6).to_sparse()),
}


@pytest.mark.parametrize("name", [*OTHERS, "captured"])
def test_nothing_is_left_of_others(trained, monkeypatch, as_on_a_gpu, name):
    monkeypatch.setattr(weight_splits, "_trained", trained)
    as_on_a_gpu.is_capturing = name == "captured"
    other = OTHERS.get(name, lambda: torch.nn.Parameter(torch.randn(6, 6)))()
    for _ in range(3):
        assert weight_splits._find_trained(other, "ieee") is None
    assert not trained.is_called


def test_what_is_shared(monkeypatch):
    weight = types.SimpleNamespace(is_cuda=True, dtype=torch.float32)
    monkeypatch.setattr(weight_splits, "_find_trained", lambda *given: given)
    monkeypatch.setattr(weight_splits, "is_gathered", lambda given: False)
    assert weight_splits.share(weight, "tf32") == (True, (weight, "tf32"))
    with weight_splits.split_in_every_call():
        assert weight_splits.share(weight, "tf32") == (False, None)
    monkeypatch.setattr(weight_splits, "is_gathered", lambda given: given is weight)
    assert weight_splits.share(weight, "tf32") == (False, None)
    weight.dtype = torch.float64
    monkeypatch.setattr(weight_splits, "is_gathered", lambda given: False)
    assert weight_splits.share(weight, "tf32") == (False, None)


def test_nothing_is_kept_of_what_fsdp_gathers(monkeypatch):
    """Its next writes are not counted. Neither from call to call nor for good."""
    weight, other = torch.nn.Parameter(torch.randn(6, 6)), torch.nn.Parameter(torch.randn(6, 6))
    monkeypatch.setattr(weight_splits, "is_gathered", lambda given: given is weight)
    cache = weight_splits.SplitCache(lambda matrix, precision: matrix.detach().clone())
    assert cache.find(weight, "ieee") is None and cache.find(other, "ieee") is not None
    assert not prepared.PreparedSplit(weight, "ieee").is_of(weight)
    assert prepared.PreparedSplit(other, "ieee").is_of(other)


def test_weights_on_a_cpu_have_no_split(used, weight):
    assert weight_splits.share(weight, "ieee") == (False, None)
