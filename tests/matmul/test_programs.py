"""Whole modules and functions of PyTorch, whose products arrive."""

import pytest
import torch
from switched import call_module, check_like_eager, count_under, outcomes
from torch import nn

BATCH, LENGTH, WIDTH, HEADS = 3, 40, 64, 2


class SelfAttention(nn.Module):
    """A MultiheadAttention of one input, with the weights, so that its products are bmm."""

    def __init__(self, attention):
        super().__init__()
        self.attention = attention

    def forward(self, x):
        return self.attention(x, x, x, need_weights=True)[0]


@pytest.fixture
def x():
    return torch.randn(BATCH, LENGTH, WIDTH)


def test_linear_of_three_dimensions(x):
    check_like_eager(call_module(nn.Linear(WIDTH, 48)), x, served=["addmm"])
    check_like_eager(call_module(nn.Linear(WIDTH, 48, bias=False)), x, served=["mm"])


def test_multi_head_attention(x):
    attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
    report = check_like_eager(call_module(SelfAttention(attention)), x)
    assert "served" in outcomes(report, "addmm", "mm")


@pytest.mark.parametrize("training", [True, False])
def test_encoder_layer(x, training):
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 96, 0.0, batch_first=True).train(training)
    with torch.set_grad_enabled(training):
        report = check_like_eager(call_module(layer), x)
    assert "served" in outcomes(report, "addmm")
    if not training:  # PyTorch's fast path
        assert outcomes(report, "_addmm_activation") == {"served"}


@pytest.mark.parametrize(
    "equation, shapes, op",
    [
        ("ik,kj->ij", [(40, 64), (64, 48)], "bmm"),
        ("bik,kj->bij", [(3, 40, 64), (64, 48)], "bmm"),
        ("abk,kcd->abcd", [(4, 5, 64), (64, 6, 7)], "bmm"),
        ("bik,bjk->bij", [(3, 40, 64), (3, 48, 64)], None),
    ],
)
def test_einsum(equation, shapes, op):
    operands = [torch.randn(shape) for shape in shapes]
    report = check_like_eager(lambda *x: torch.einsum(equation, *x), *operands)
    if op is not None:
        assert outcomes(report, op) == {"served"}


def test_scaled_dot_product_attention_by_its_math():
    """What the documents advise where its products are to arrive."""
    q = torch.randn(BATCH, HEADS, LENGTH, WIDTH)

    def attend(q):
        with nn.attention.sdpa_kernel(nn.attention.SDPBackend.MATH):
            return nn.functional.scaled_dot_product_attention(q, q, q)

    report = check_like_eager(attend, q)
    assert [op for op, *_ in report.rows] == ["bmm", "bmm"]


def test_autocast_is_left():
    x = torch.randn(40, 64)
    with count_under() as report, torch.autocast("cpu", torch.bfloat16):
        y = nn.Linear(64, 48)(x)
    assert y.dtype == torch.bfloat16 and outcomes(report) == {"not float32"}


def test_autocast_casts_nothing_in_place_and_with_out():
    x, weight = torch.randn(40, 64), torch.randn(64, 48)
    with count_under() as report, torch.autocast("cpu", torch.bfloat16):
        torch.mm(x, weight, out=torch.empty(40, 48))
        torch.zeros(40, 48).addmm_(x, weight)
    assert outcomes(report, "mm.out", "addmm_") == outcomes(report) == {"served"}


def test_a_lstm_is_seen():
    with count_under() as report:
        nn.LSTM(WIDTH, WIDTH)(torch.randn(4, 2, WIDTH))
    assert "seen, not served" in outcomes(report)


def test_linalg():
    """matrix_power multiplies; what solves is seen at most."""
    a = torch.randn(48, 48) / 8
    check_like_eager(lambda a: torch.linalg.matrix_power(a, 4), a, served=["mm"])
