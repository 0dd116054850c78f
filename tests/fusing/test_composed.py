"""Whether a call that has run has gradients by PyTorch's ops alone, which ends its chain sooner."""

import contextlib

import pytest
import torch
from linear_tails import CASES, K

import cutlass_fused

BF16 = torch.bfloat16
# In eager mode, and where autocast takes x and weight in another dtype.
SETTINGS = {
    "plain": contextlib.nullcontext,
    "autocast": lambda: torch.autocast("cpu", BF16),
}


def run(name, setting, is_trained=True):
    """What the site's call says of itself."""
    model, x = CASES[name].make(), torch.randn(5, K)
    (site,) = cutlass_fused.fuse(model).sites
    with SETTINGS[setting](), torch.set_grad_enabled(is_trained):
        y = model(x)
        weight, bias, _, operands = site.take(x, ())
        assert site.last.why is None
        return site.call.is_composed(x, weight, bias, operands, y.dtype)


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("name", ["layer norm", "gelu, softmax", "log softmax", "gelu of tanh"])
def test_programs(name, setting):
    assert not run(name, setting)


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("name", ["windows", "largest, less the mean, gelu"])
def test_composed(name, setting):
    assert run(name, setting) and not run(name, setting, is_trained=False)


@pytest.mark.parametrize("name", ["scale, leaky", "nothing", "batch norm"])
def test_calls_of_their_own(name):
    assert not run(name, "plain")
