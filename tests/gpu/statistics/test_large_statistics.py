"""Softmax and batch norm of more than 2^31 elements, of more rows than a grid has blocks, and of
rows far apart; a few rows or columns are judged."""

import pytest
import torch
from accuracy import ulp
from accuracy_statistics import StatisticsJudge
from calls import NORM, NORM_TRAIN, SOFTMAX, Call
from check_call import run_all_poisoned, run_poisoned

pytestmark = pytest.mark.gpu

BEYOND = 2**31


def draw(m, n, device, dtype=torch.bfloat16):
    generator = torch.Generator(device).manual_seed(0)
    return torch.empty(m, n, dtype=dtype, device=device).normal_(generator=generator)


def pick(count, stride):
    """First, last and some between, and those where an offset passes 2^31."""
    places = {0, 1, 31, 32, 255, 256, count // 2, count - 33, count - 2, count - 1}
    places |= {BEYOND // stride - 1, BEYOND // stride, BEYOND // stride + 1}
    return torch.tensor(sorted(place for place in places if 0 <= place < count))


@pytest.mark.parametrize(
    ("m", "n"),
    [(70000, 32768), (65551, 32769), (2**23 + 8, 264), (2**30 + 9, 2)],
    ids=["wide", "unaligned", "many rows", "more rows than one launch takes"],
)
def test_softmax(device, m, n):
    call = Call(SOFTMAX, draw(m, n, device))
    y = run_poisoned(call)
    rows = pick(m, n).to(device)
    StatisticsJudge(call.change(x=call.x[rows])).check({"y": y[rows]})
    # The other rows must have been written: the sum of NaN would not be 1.
    sums = y.sum(-1, dtype=torch.float32)
    torch.testing.assert_close(sums, torch.ones_like(sums), rtol=0, atol=2.0**-7)


@pytest.mark.parametrize("n", [32768, 32769], ids=["aligned", "unaligned"])
@pytest.mark.parametrize("op", [NORM_TRAIN, NORM])
def test_batch_norm(device, op, n):
    """Columns do not depend on each other, so that some of them can be judged alone."""
    m = 65552
    call = Call(op, draw(m, n, device), eps=1e-2)
    generator = torch.Generator(device).manual_seed(1)
    vectors = {
        name: torch.rand(n, generator=generator, device=device) + 0.5
        for name in ("running_mean", "running_var", "gamma", "beta")
    }
    call = call.change(**vectors)
    if op == NORM_TRAIN:
        call = call.change(num_batches_tracked=torch.tensor(4, device=device))
    results = run_all_poisoned(call)
    columns = pick(n, n).to(device)
    part = call.change(x=call.x[:, columns], **{k: v[columns] for k, v in vectors.items()})
    StatisticsJudge(part).check(
        {
            name: result if result.dim() == 0 else result[..., columns].contiguous()
            for name, result in results.items()
        }
    )
    assert results["y"].isfinite().all()


def test_more_ranges_of_rows_than_blocks_in_a_grid(device):
    """Beyond 65535 * 512 rows a range has more rows. Mean and variance as accurate as eager's."""
    m, n = 65535 * 512 + 77777, 2
    x = draw(m, n, device, torch.float32) + 1.5
    _, mean, rstd = torch.ops.cutlass_fused.batch_norm_train(x, None, None, None)
    exact = x.double()
    variance, exact_mean = torch.var_mean(exact, 0, correction=0)
    eager_mean, eager_var = torch.zeros(n, device=device), torch.zeros(n, device=device)
    torch.nn.functional.batch_norm(x, eager_mean, eager_var, None, None, True, 1.0)
    for ours, eager, truth in (
        (mean, eager_mean, exact_mean),
        (rstd, 1 / torch.sqrt(eager_var + 1e-5), 1 / torch.sqrt(variance + 1e-5)),
    ):
        error, eager_error = ((t.double() - truth).abs().max() for t in (ours, eager))
        assert error <= 2 * eager_error + ulp(truth.abs().max(), torch.float32)


@pytest.mark.parametrize("op", [SOFTMAX, NORM_TRAIN])
def test_rows_far_apart(device, op):
    """Further than 2^31 elements."""
    memory = torch.full((BEYOND + 2**20,), torch.nan, dtype=torch.bfloat16, device=device)
    x = torch.as_strided(memory, (2, 1032), (BEYOND + 16, 1))
    x.copy_(torch.randn(2, 1032, device=device))
    call = Call(op, x, eps=0.5)
    results = run_all_poisoned(call) if op == NORM_TRAIN else {"y": run_poisoned(call)}
    StatisticsJudge(call.change(x=x.contiguous())).check(results)
