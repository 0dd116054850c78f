"""Accuracy at the size of the models, M = 1024, K = N = 8192, against eager in that precision."""

import pytest
from accuracy import Judge
from calls import LEAKY
from cases import BF16, BF16_FP32, FP16, IEEE, TF32, Shape, make_call
from check_call import run_poisoned

pytestmark = pytest.mark.gpu

MODEL = Shape(1024, 8192, 8192, "the target models")
DISTRIBUTIONS = ("model", "positive", "normal", "log_normal")
# What ||ours - truth|| may be, in units of ||eager - truth||. TF32's own error is that of the
# rounded operands, which is the same for both but for the order of sums.
LIMITS = {IEEE: 1.0, TF32: 1.05}


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("numerics", [IEEE, TF32], ids=str)
def test_fp32(device, numerics, distribution):
    call = make_call(LEAKY, MODEL, numerics, device, distribution=distribution)
    judge, ours = Judge(call), run_poisoned(call)
    judge.check(ours)
    error, limit = judge.relative_l2(ours), LIMITS[numerics] * judge.relative_l2(judge.eager)
    assert error <= limit, f"relative L2 error {error:.3e}, limit {limit:.3e}"


@pytest.mark.parametrize("distribution", ["model", "positive", "normal"])
@pytest.mark.parametrize("numerics", [FP16, BF16, BF16_FP32], ids=str)
def test_16_bit(device, numerics, distribution):
    call = make_call(LEAKY, MODEL, numerics, device, distribution=distribution)
    Judge(call).check(run_poisoned(call))


@pytest.mark.parametrize("m", [1, 16, 128])
@pytest.mark.parametrize("numerics", [FP16, BF16, IEEE, TF32], ids=str)
def test_few_rows(device, numerics, m):
    """Other tiles and stream-K at the same K."""
    call = make_call(LEAKY, Shape(m, 1032, 8192, "few rows"), numerics, device)
    Judge(call).check(run_poisoned(call))
