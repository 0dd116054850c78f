"""Whole programs under the switch on a GPU, with PyTorch allowing TF32, beside PyTorch's fp32."""

import pytest
import torch
from switched import call_module, check_like_eager, count_under, outcomes, was_served
from torch import nn

pytestmark = pytest.mark.gpu


def make(*shape):
    return torch.randn(shape, device="cuda")


def differentiate(module):
    """The gradients of x and all parameters."""
    call = call_module(module.cuda())

    def gradients(x):
        x = x.detach().requires_grad_()
        call(x).square().sum().backward()
        parameters = call.parameters(x.dtype)
        grads = [x.grad, *(p.grad for p in parameters)]
        for p in parameters:
            p.grad = None
        return torch.cat([g.flatten() for g in grads])

    return gradients


def test_training_of_an_mlp():
    model = nn.Sequential(nn.Linear(96, 256), nn.SiLU(), nn.Linear(256, 64))
    report = check_like_eager(differentiate(model), make(133, 96), allowed="tf32")
    assert outcomes(report) == {"served"} and report.rows.total() >= 6


def test_forces_of_a_potential():
    """Double backward: the loss holds the gradient of an energy."""
    model = nn.Sequential(nn.Linear(96, 128), nn.SiLU(), nn.Linear(128, 64)).cuda()
    call = call_module(model)

    def gradients(x):
        x = x.detach().requires_grad_()
        parameters = [p for p in call.parameters(x.dtype) if p.dim() == 2]
        (forces,) = torch.autograd.grad(call(x).tanh().sum(), x, create_graph=True)
        grads = torch.autograd.grad(forces.square().sum(), parameters)
        return torch.cat([g.flatten() for g in grads])

    report = check_like_eager(gradients, make(133, 96), allowed="tf32")
    assert outcomes(report) == {"served"}


class SelfAttention(nn.Module):
    def __init__(self, width, heads, need_weights):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.need_weights = need_weights

    def forward(self, x):
        return self.attention(x, x, x, need_weights=self.need_weights)[0]


@pytest.mark.parametrize("need_weights", [True, False])
def test_multi_head_attention(need_weights):
    model = SelfAttention(128, 2, need_weights).cuda()
    # Scaled-dot-product attention is PyTorch's, under PyTorch's own setting.
    allowed = "tf32" if need_weights else "ieee"
    report = check_like_eager(call_module(model), make(4, 65, 128), allowed=allowed)
    assert "served" in outcomes(report, "addmm", "mm")


def test_the_fast_path_of_an_encoder_layer():
    """Its gelu is that of tanh, and its attention may be fused; so PyTorch's own is beside it."""
    layer = nn.TransformerEncoderLayer(128, 2, 256, 0.0, "gelu", batch_first=True).cuda().eval()
    x = make(4, 65, 128)
    with torch.inference_mode():
        eager = layer(x)
        with count_under() as report:
            y = layer(x)
    torch.testing.assert_close(y, eager, rtol=1e-5, atol=1e-5)
    assert outcomes(report, "_addmm_activation") == {"served"}


def test_vmap_of_grad():
    def per_sample(weight, x):
        def loss(weight, x):
            return (x @ weight).square().sum()

        return torch.func.vmap(torch.func.grad(loss), (None, 0))(weight, x)

    check_like_eager(per_sample, make(64, 48), make(3, 40, 64), allowed="tf32")


def test_a_lstm_without_cudnn():
    """What the documents advise where its products are to arrive."""
    with count_under() as report, torch.backends.cudnn.flags(enabled=False):
        y, _ = nn.LSTM(64, 64).cuda()(make(5, 2, 64))
    assert y.shape == (5, 2, 64)
    assert was_served(report) and outcomes(report, "_cudnn_rnn") == set()


SEEN = {
    "convolution": lambda: nn.Conv2d(3, 8, 3).cuda()(make(2, 3, 16, 16)),
    "_cudnn_rnn": lambda: nn.LSTM(64, 64).cuda()(make(5, 2, 64)),
    "mv": lambda: make(64, 64) @ make(64),
    "mm.dtype": lambda: torch.mm(
        make(64, 64).bfloat16(), make(64, 64).bfloat16(), out_dtype=torch.float32
    ),
    "_scaled_dot_product_efficient_attention": lambda: attend(),
}


def attend():
    with nn.attention.sdpa_kernel(nn.attention.SDPBackend.EFFICIENT_ATTENTION):
        return nn.functional.scaled_dot_product_attention(*[make(2, 2, 64, 32)] * 3)


@pytest.mark.parametrize("op", SEEN)
def test_seen_not_served(op):
    with count_under() as report:
        SEEN[op]()
    assert outcomes(report, op) == {"seen, not served"}
