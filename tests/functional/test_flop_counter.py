"""torch.utils.flop_counter counts our modules as the plain ones."""

import subprocess
import sys

import pytest
import torch
from pairs import PAIRS
from torch.utils.flop_counter import FlopCounterMode

from cutlass_fused import nn

M, K = 5, 4


def count(module, backward):
    x = torch.randn(M, K, requires_grad=backward)
    with FlopCounterMode(display=False) as counter:
        y = module(x)
        if backward:
            y.square().sum().backward()
    return counter.get_total_flops()


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("name", PAIRS)
def test_as_the_plain_module(name, backward):
    ours, plain = (make() for make in PAIRS[name])
    expected = count(plain, backward)
    assert count(ours, backward) == expected
    with torch.no_grad():
        assert count(ours, False) == count(plain, False)
    assert (expected > 0) == ("Linear" in name)


def test_more_dimensions():
    linear, x = torch.nn.Linear(K, 3), torch.randn(2, M, K)
    ours = nn.Linear.from_eager(linear)
    counts = []
    for module in (ours, linear):
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            module(x)
        counts.append(counter.get_total_flops())
    assert counts == [2 * 2 * M * K * 3] * 2


@pytest.mark.parametrize("first", ["cutlass_fused", "torch.utils.flop_counter"])
def test_in_any_order_of_imports(first):
    code = f"""
import sys, torch, {first}
from cutlass_fused import functional
if {first!r} == "cutlass_fused":
    assert "torch.utils.flop_counter" not in sys.modules
from torch.utils.flop_counter import FlopCounterMode
with FlopCounterMode(display=False) as counter, torch.no_grad():
    functional.linear(torch.ones(2, 3), torch.ones(5, 3))
assert counter.get_total_flops() == 2 * 2 * 3 * 5
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
