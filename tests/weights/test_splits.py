"""What is kept of a weight is never that of another one, or of what it was before."""

import copy
import gc
import io
import os
import subprocess
import sys
import threading
import weakref

import pytest
import torch

import cutlass_fused
from cutlass_fused import nn
from cutlass_fused.weights import splits as weight_splits
from cutlass_fused.weights.splits import SplitCache


class CountingCache(SplitCache):
    """Keeps a copy of the weight itself in place of a split, and counts how often one was made."""

    def __init__(self):
        super().__init__(self.copy)
        self.copies = 0

    def copy(self, weight, precision):
        self.copies += 1
        return weight.detach().clone()

    def is_right(self, weight, precision="ieee"):
        return torch.equal(self.find(weight, precision), weight)


@pytest.fixture
def cache():
    return CountingCache()


@pytest.fixture
def weight():
    return torch.nn.Parameter(torch.randn(6, 6))


def write(weight):
    with torch.no_grad():
        weight.mul_(2)


def write_to_a_view(weight):
    with torch.no_grad():
        weight[2:4].zero_()


def step(weight):
    optimizer = torch.optim.SGD([weight], lr=0.5)
    weight.square().sum().backward()
    optimizer.step()


def load(weight):
    module = torch.nn.Linear(6, 6, bias=False)
    module.weight = weight
    module.load_state_dict({"weight": torch.randn(6, 6)})


def replace_data(weight):
    weight.data = torch.randn(6, 6)


def replace_data_at_the_same_address(weight):
    # The allocator may give back what was freed.
    address = weight.data_ptr()
    weight.data = torch.empty(0)
    gc.collect()
    tensors = [torch.randn(6, 6) for _ in range(64)]
    weight.data = next((t for t in tensors if t.data_ptr() == address), tensors[0])


def transpose(weight):
    with torch.no_grad():
        weight.t_()


def move_within_the_storage(weight):
    storage = torch.randn(100)
    storage[:36] = weight.detach().flatten()
    weight.data = storage[:36].view(6, 6)
    weight.data = weight.data.as_strided((6, 6), (6, 1), 36)


CHANGES = [
    write,
    write_to_a_view,
    step,
    load,
    replace_data,
    replace_data_at_the_same_address,
    transpose,
    move_within_the_storage,
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_weight_is_split_anew(cache, weight, change):
    assert cache.is_right(weight)
    change(weight)
    assert cache.is_right(weight)
    assert cache.copies == 2
    assert len(cache) == 1


def transpose_data(weight):
    weight.data = weight.data.t()


def cut_rows(weight):
    weight.data = weight.data[:3]


def take_other_half(weight):
    weight.data = weight.data.as_strided((6, 6), (6, 1), 36)


# The parts of a weight's description that have a change of their own.
PARTS = {"version": (0, write), "address": (1, take_other_half), "shape": (3, cut_rows)}
PARTS["strides"] = (4, transpose_data)


@pytest.mark.parametrize("part", PARTS)
def test_every_part_of_the_description_is_needed(cache, part, monkeypatch):
    """With it the change is seen, and without it is not."""
    index, change = PARTS[part]
    describe = weight_splits.describe
    for lost in (None, index):
        weight = torch.nn.Parameter(torch.randn(100)[:36].view(6, 6))
        with monkeypatch.context() as patch:
            patch.setattr(
                weight_splits,
                "describe",
                lambda w, lost=lost: [v for i, v in enumerate(describe(w)) if i != lost],
            )
            cache.find(weight, "ieee")
            change(weight)
            assert torch.equal(cache.find(weight, "ieee"), weight) == (lost is None)


def test_an_unchanged_weight_is_split_once(cache, weight):
    first = cache.find(weight, "ieee")
    assert all(cache.find(weight, "ieee") is first for _ in range(3))
    assert cache.copies == 1


def test_each_precision_has_its_own(cache, weight):
    assert cache.find(weight, "ieee") is not cache.find(weight, "tf32")
    assert cache.copies == len(cache) == 2


def test_columns_have_a_split_of_their_own(cache, weight):
    def find_both():
        assert torch.equal(cache.find(weight, "ieee", of_columns=True), weight.t())
        assert cache.is_right(weight)

    find_both()
    find_both()
    assert cache.copies == 2
    write(weight)
    find_both()
    assert cache.copies == 4


def test_an_equal_weight_has_its_own(cache, weight):
    other = torch.nn.Parameter(weight.detach().clone())
    assert cache.find(weight, "ieee") is not cache.find(other, "ieee")


def test_views_of_one_weight_have_their_own(cache, weight):
    """They share a storage and the count of its writes."""
    with torch.no_grad():
        above, below = weight[:3], weight[3:]
    assert cache.is_right(above)
    assert cache.is_right(below)
    assert cache.is_right(weight)


def test_a_write_through_data_is_not_seen_until_invalidated(cache, weight):
    assert cache.is_right(weight)
    weight.data.mul_(2)
    assert not cache.is_right(weight)  # as documented
    cache.forget(weight)
    assert cache.is_right(weight)


def test_nothing_outlives_its_weight(cache):
    for _ in range(20):
        weight = torch.randn(6, 6)
        assert cache.is_right(weight)
        del weight
    gc.collect()
    assert len(cache) == 0


@pytest.mark.parametrize("move", [torch.nn.Module.half, lambda m: replace_data(m.weight)])
def test_a_weight_that_moved_has_none(cache, move):
    """It is the same tensor object in other memory, and nobody may ask for its split again."""
    module, other = torch.nn.Linear(6, 6), torch.randn(6, 6)
    weight = module.weight
    splits = [weakref.ref(cache.find(weight, "ieee", of_columns=side)) for side in (False, True)]
    assert cache.is_right(other)
    move(module)
    assert module.weight is weight and len(cache) == 1 and cache.is_right(other)
    assert [split() for split in splits] == [None, None]


def test_an_inference_tensor_is_not_kept(cache):
    """It does not count its writes."""
    with torch.inference_mode():
        weight = torch.randn(6, 6)
    assert cache.find(weight, "ieee") is None
    assert len(cache) == 0


def test_a_disabled_cache_keeps_nothing(cache, weight):
    cache.enabled = False
    assert cache.find(weight, "ieee") is None
    assert cache.copies == len(cache) == 0


@pytest.fixture
def global_cache(cache, monkeypatch):
    monkeypatch.setattr(weight_splits, "_cache", cache)
    return cache


def test_invalidate(global_cache):
    module = nn.LinearScaleLeakyReLU(6, 6, 2.0, 0.1)
    others = torch.randn(6, 6), torch.randn(6, 6)
    weights = module.gemm.weight, *others
    for weight in weights:
        global_cache.find(weight, "ieee")
    for count, argument in ((2, module), (1, others[0]), (0, None)):
        cutlass_fused.invalidate(argument)
        assert len(global_cache) == count
    with pytest.raises(TypeError, match="must be a tensor, a module or None, got str"):
        cutlass_fused.invalidate("weight")


def test_keep_splits(global_cache, weight):
    global_cache.find(weight, "ieee")
    cutlass_fused.keep_splits(False)
    assert len(global_cache) == 0
    assert global_cache.find(weight, "ieee") is None
    cutlass_fused.keep_splits(True)
    assert global_cache.find(weight, "ieee") is not None
    with pytest.raises(TypeError, match="enabled must be a bool, got 'off'"):
        cutlass_fused.keep_splits("off")
    assert global_cache.find(weight, "ieee") is not None


def test_copies_and_pickles_hold_nothing_of_it(global_cache):
    module = nn.LinearScaleLeakyReLU(64, 64, 2.0, 0.1)
    plain = io.BytesIO()
    torch.save(module, plain)
    names = set(vars(module.gemm)), set(vars(module.gemm.weight))
    global_cache.find(module.gemm.weight, "ieee")
    kept = io.BytesIO()
    torch.save(module, kept)
    assert len(kept.getvalue()) == len(plain.getvalue())
    assert names == (set(vars(module.gemm)), set(vars(module.gemm.weight)))
    copied = copy.deepcopy(module)
    assert len(global_cache) == 1
    assert list(copied.state_dict()) == list(module.state_dict())


FUSED = {
    "Adam": lambda weights: torch.optim.Adam(weights, fused=True),
    "AdamW": lambda weights: torch.optim.AdamW(weights, fused=True),
    "SGD": lambda weights: torch.optim.SGD(weights, lr=0.1, fused=True),
}


@pytest.mark.parametrize("optimizer", FUSED)
def test_steps_of_fused_optimizers_are_noticed(global_cache, weight, optimizer):
    """They do not count their writes. The splits of other weights stay."""
    other = torch.nn.Parameter(torch.randn(6, 6))
    assert global_cache.is_right(weight) and global_cache.is_right(other)
    step, version = FUSED[optimizer]([weight]).step, weight._version
    weight.grad = torch.ones_like(weight)
    step()
    assert weight._version == version, "it counts now: is the hook still needed?"
    assert global_cache.is_right(weight) and global_cache.is_right(other)
    assert global_cache.copies == 3


def test_nothing_is_kept_of_a_weight_that_is_trained(global_cache, weight):
    frozen = torch.randn(6, 6)
    for each in (weight, frozen):
        global_cache.find(each, "ieee")
        weight_splits.find_split_under_grad(each, "ieee")
    assert len(global_cache) == 1
    assert global_cache.is_right(frozen) and global_cache.copies == 2


def test_within_splitting_in_every_call_nothing_is_kept(global_cache, weight):
    kept = global_cache.find(weight, "ieee")
    with weight_splits.split_in_every_call():
        assert global_cache.find(weight, "ieee") is None
    assert global_cache.find(weight, "ieee") is kept


@pytest.mark.parametrize(("word", "enabled"), [("0", False), ("1", True), (None, True)])
def test_variable(word, enabled):
    environment = {k: v for k, v in os.environ.items() if k != "CUTLASS_FUSED_KEEP_SPLITS"}
    if word is not None:
        environment["CUTLASS_FUSED_KEEP_SPLITS"] = word
    code = "from cutlass_fused.weights import splits; print(splits._cache.enabled)"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(enabled)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.randn(6, 6, dtype=torch.float64),
        lambda: torch.randn(6),
        lambda: torch.randn(()).expand(6, 6),
        lambda: torch.nn.Buffer(torch.randn(6, 6)).as_subclass(OfItsOwnKind),
    ],
    ids=["float64", "a vector", "one element", "a subclass"],
)
def test_what_is_never_kept(cache, make):
    assert cache.find(make(), "ieee") is None
    assert len(cache) == 0


class OfItsOwnKind(torch.Tensor):
    pass


def test_nothing_is_kept_within_torch_func(cache, weight):
    """Neither of what it wraps nor of another weight."""

    def compute(wrapped):
        assert cache.find(wrapped, "ieee") is None
        assert cache.find(weight, "ieee") is None
        return wrapped.sum()

    torch.func.grad(compute)(torch.randn(6, 6))
    assert len(cache) == 0


def test_threads(cache):
    """Some find, others forget: nothing is lost but what was forgotten, and nothing raised."""
    weights = [torch.randn(6, 6) for _ in range(4)]
    stop, errors = threading.Event(), []

    def work(act):
        try:
            while not stop.is_set():
                for weight in weights:
                    act(weight)
        except Exception as error:
            errors.append(error)

    acts = [cache.is_right, cache.is_right, cache.forget, lambda _: cache.forget()]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(act,)) for act in acts]
        for thread in threads:
            thread.start()
        stop.wait(0.5)
        stop.set()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not errors


def test_what_is_forgotten_while_it_is_made_is_not_kept(weight):
    def split(weight, precision):
        cache.forget(weight)
        return weight.detach().clone()

    cache = SplitCache(split)
    assert torch.equal(cache.find(weight, "ieee"), weight)
    assert len(cache) == 0


def test_a_cpu_weight_is_not_split():
    assert weight_splits.find_split(torch.randn(6, 6), "ieee") is None
    assert torch.ops.cutlass_fused.split_weight(torch.randn(6, 6)).numel() == 0
