"""The checksum by which kept parts of a weight are known to be of it still: the code of the
kernels, run on the host, against the reference, and what it must notice."""

import itertools

import pytest
import torch
from host_program import compile_host_program

from cutlass_fused.reference._split_weight import compute_checksum

ops = torch.ops.cutlass_fused
SPECIAL = [0.0, -0.0, torch.inf, -torch.inf, torch.nan, 1e-45, -1e-45, 3.4028234e38]


@pytest.fixture(scope="module")
def checksum(tmp_path_factory):
    return compile_host_program("kernels/checksum", tmp_path_factory.mktemp("checksum"))


def draw():
    weight = torch.randn(24, 36, generator=torch.Generator().manual_seed(0))
    weight[3, : len(SPECIAL)] = torch.tensor(SPECIAL)
    return weight


@pytest.mark.parametrize("backwards", [0, 1])
def test_the_kernels_code_in_any_order(checksum, backwards):
    weight = draw()
    words = (weight.view(torch.int32).flatten().long() & 0xFFFFFFFF).tolist()
    *sums, size = map(int, checksum([backwards, *words])[0].split())
    assert sums == [number % 2**64 for number in compute_checksum(weight).tolist()]
    assert size == ops.split_weight_checked(weight)[1].numel()


def swap(weight, a, b):
    weight.view(-1)[[a, b]] = weight.view(-1)[[b, a]]


def set_bits(weight, bits):
    weight.view(torch.int32)[5, 5] = bits


CHANGES = {
    "one bit": lambda w: w.view(torch.int32)[7, 7].bitwise_xor_(1),
    "neighbours": lambda w: swap(w, 100, 101),
    "elements far apart": lambda w: swap(w, 3, 800),
    "rows": lambda w: w.copy_(w[[1, 0, *range(2, 24)]]),
    "all rows": lambda w: w.copy_(w.roll(1, 0)),
    "columns": lambda w: w.copy_(w.roll(1, 1)),
    "transposed": lambda w: w[:, :24].copy_(w[:, :24].t().clone()),
    "sign of a zero": lambda w: w[3, 0].neg_(),
    "signs of both zeros": lambda w: w[3, :2].neg_(),
    "all signs": lambda w: w.neg_(),
    "doubled": lambda w: w.mul_(2),
    "payload of a NaN": lambda w: w.view(torch.int32)[3, 4].bitwise_xor_(1),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changes_are_noticed_by_either_sum(change):
    """Each of both sums differs: no change hangs on one of them."""
    weight = draw()
    before = compute_checksum(weight)
    CHANGES[change](weight)
    assert (compute_checksum(weight) != before).all()


def test_a_word_never_has_the_sum_of_another():
    """Words that differ in one bit, or two, of the same place; and places of one word."""
    bits = [1 << i for i in range(32)]
    words = {0, *bits, *(a | b for a, b in itertools.combinations(bits, 2))}
    sums = set()
    for word in words:
        one = torch.tensor([[word - (1 << 32 if word >= 1 << 31 else 0)]], dtype=torch.int32)
        sums.add(tuple(compute_checksum(one.view(torch.float32)).tolist()))
    assert len(sums) == len(words)
    places = torch.zeros(1000, 1000)
    for place in range(1000):
        places[place, place] = 1
    assert len({tuple(compute_checksum(row).tolist()) for row in places}) == 1000


# ---- the ops, by their definition ----


def test_the_state_follows_the_weight():
    weight = draw()
    split, state = ops.split_weight_checked(weight)
    flag = 1 << 32
    for write, has_changed in ((False, 0), (True, flag), (False, 0)):
        if write:
            weight[0, 0] += 1
        ops.split_weight_if_changed(weight, split, state)
        assert torch.equal(state[:2], compute_checksum(weight)) and state[2] & flag == has_changed
    torch.library.opcheck(ops.split_weight_checked.default, (weight,))
    torch.library.opcheck(ops.split_weight_if_changed.default, (weight, split, state))


@pytest.mark.parametrize(
    ("replace", "message"),
    [
        (
            {"weight": torch.rand(24, 36, dtype=torch.float64)},
            "weight must be float32",
        ),
        ({"weight": torch.rand(36, 24).t()}, "weight must be contiguous, .* got shape"),
        ({"weight": torch.rand(24, 35)}, "and K a multiple of 4, got shape"),
        (
            {"split": torch.zeros(5, dtype=torch.uint8)},
            r"uint8 of shape \(0,\), got uint8 of",
        ),
        ({"checksum": torch.zeros(260)}, r"int64 of shape \(260,\), got float32 of shape"),
        ({"precision": "bf16"}, "precision"),
    ],
)
def test_bad_input(replace, message):
    weight = draw()
    split, checksum = ops.split_weight_checked(weight)
    given = {"weight": weight, "split": split, "checksum": checksum, "precision": "ieee"} | replace
    with pytest.raises(RuntimeError, match=f"split_weight_if_changed: .*{message}|{message}"):
        ops.split_weight_if_changed(*given.values())
