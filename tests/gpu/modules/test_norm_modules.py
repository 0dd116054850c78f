"""The modules with a batch norm on the GPU: steps of training, autocast, dtypes, state dicts."""

import copy
import dataclasses

import pytest
import torch
from accuracy import matmul_settings, ulp
from judge_gradients import differentiate
from norm_modules import NORM, Pair, assert_same_state, wrap
from plain import PlainLinearBatchNorm1dScaleSoftmax, PlainLinearScaleBatchNorm1d

from cutlass_fused import nn

pytestmark = pytest.mark.gpu

M, IN, OUT = 64, 96, 136
STEPS = 20
SCALE_NORM = Pair(PlainLinearScaleBatchNorm1d, nn.LinearScaleBatchNorm1d, IN, OUT, (OUT,))
NORM_SOFTMAX = Pair(PlainLinearBatchNorm1dScaleSoftmax, nn.LinearBatchNorm1dScaleSoftmax, IN, OUT)
LONE_NORM = Pair(NORM.plain, NORM.ours, IN, has_product=False)
PAIRS = (SCALE_NORM, NORM_SOFTMAX, LONE_NORM)
FUSED = PAIRS[:2]


@dataclasses.dataclass(frozen=True)
class Mode:
    name: str
    dtype: torch.dtype = torch.float32
    precision: str = "ieee"
    cast: torch.dtype | None = None  # of autocast

    def __str__(self):
        return self.name

    def build(self, pair, device):
        plain, ours = (model.to(device, self.dtype) for model in pair.build())
        if pair.has_product:
            ours.precision = self.precision
        return plain, ours

    def quantise(self, pair, exact, x):
        """The numbers that truth works on: those that autocast casts are rounded, in float64."""
        if self.cast is None or not pair.has_product:
            return x.double()
        with torch.no_grad():
            for parameter in exact.gemm.parameters():
                parameter.copy_(parameter.to(self.cast))
        return x.to(self.cast).double()

    def run(self, model, x):
        with torch.autocast("cuda", dtype=self.cast or torch.float16, enabled=bool(self.cast)):
            return model(x)


MODES = (
    Mode("ieee"),
    Mode("tf32", precision="tf32"),
    Mode("bf16", torch.bfloat16),
    Mode("autocast_bf16", cast=torch.bfloat16),
    Mode("autocast_fp16", cast=torch.float16),
)
pairs = pytest.mark.parametrize("pair", PAIRS, ids=str)
fused = pytest.mark.parametrize("pair", FUSED, ids=str)
in_train_and_eval = pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])


def take_step(run, model, x, grad_y):
    """Output, gradients of x and of the parameters, and buffers behind the step, by name."""
    x = x.detach().requires_grad_()
    leaves = {"x": x, **dict(model.named_parameters())}
    seen = differentiate(lambda: run(model, x), leaves, grad_y)
    return seen | {name: buffer.clone() for name, buffer in model.named_buffers()}


def measure(seen, truth):
    return {name: (seen[name].double() - exact).abs().max() for name, exact in truth.items()}


@pytest.mark.parametrize("mode", MODES, ids=str)
@in_train_and_eval
@pairs
def test_twenty_steps(device, pair, training, mode):
    """From the plain model's parameters in each step: y and the gradients of matrices within twice
    its error and one ulp, step by step; vectors, which are few numbers, over all steps."""
    generator = torch.Generator(device).manual_seed(0)
    plain, ours = (model.train(training) for model in mode.build(pair, device))
    exact = copy.deepcopy(plain).double()
    optimizer = torch.optim.SGD(plain.parameters(), lr=1e-3)
    worst = {}
    for step in range(STEPS):
        x = torch.randn(M, IN, generator=generator, device=device).to(mode.dtype)
        grad_y = torch.randn(M, OUT if pair.has_product else IN, generator=generator, device=device)
        for model in (ours, exact):
            model.load_state_dict(plain.state_dict())
        exact_x = mode.quantise(pair, exact, x)
        mine = take_step(mode.run, ours, x, grad_y)
        with matmul_settings(mode.precision):
            theirs = take_step(mode.run, plain, x, grad_y)
        truth = take_step(lambda model, x: model(x), exact, exact_x, grad_y.double())
        errors = [measure(seen, truth) for seen in (mine, theirs)]
        for name, number in truth.items():
            assert mine[name].dtype == theirs[name].dtype, name
            if name.endswith("num_batches_tracked"):
                assert int(mine[name]) == int(theirs[name]) == (step + 1) * training
                continue
            last_place = ulp(number.abs().max(), mine[name].dtype)
            both = torch.stack([errors[0][name], errors[1][name], last_place])
            worst[name] = torch.maximum(worst.get(name, both), both)
            if number.dim() == 2:
                assert both[0] <= 2 * both[1] + both[2], (step, name, both.tolist())
        for name, parameter in plain.named_parameters():
            parameter.grad = theirs[name]
        optimizer.step()
    for name, (error, eager_error, last_place) in worst.items():
        assert error <= 2 * eager_error + last_place, (name, worst[name].tolist())


@pairs
def test_training_alone_follows_the_plain_model(device, pair):
    """Twenty steps from the same beginning, each model with its own parameters and statistics."""
    x, target = (
        torch.randn(STEPS, M, size, device=device) for size in (IN, OUT if pair.has_product else IN)
    )
    losses, models = [], MODES[0].build(pair, device)
    for model in models:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
        history = []
        for step in range(STEPS):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(x[step]), target[step])
            loss.backward()
            optimizer.step()
            history.append(loss.detach())
        losses.append(torch.stack(history))
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-5, atol=1e-6)
    plain, ours = models
    assert_same_state(ours, plain, 1e-3)
    assert int(ours.state_dict()[[n for n in ours.state_dict() if "num_batches" in n][0]]) == STEPS


@pytest.mark.parametrize(
    ("dtype", "cast"),
    [
        (torch.float32, torch.bfloat16),
        (torch.float32, torch.float16),
        (torch.bfloat16, torch.bfloat16),
    ],
    ids=str,
)
@in_train_and_eval
@pairs
def test_autocast_gives_the_plain_dtype(device, pair, training, dtype, cast):
    mode = Mode("autocast", dtype, cast=cast)
    plain, ours = (model.train(training) for model in mode.build(pair, device))
    x = torch.randn(M, IN, device=device).to(dtype)
    expected, y = mode.run(plain, x), mode.run(ours, x)
    assert y.dtype == expected.dtype
    torch.testing.assert_close(y, expected, rtol=0.05, atol=0.05)
    y.float().square().sum().backward()
    assert all(p.grad.dtype == dtype and p.grad.isfinite().all() for p in ours.parameters())
    with torch.no_grad():
        assert mode.run(ours, x).dtype == expected.dtype


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pairs
def test_state_dicts_go_both_ways(device, pair, dtype):
    """Trained on one side, continued on the other, saved on the GPU and loaded on the CPU."""
    plain, ours = Mode("", dtype).build(pair, device)
    x = torch.randn(M, IN, device=device).to(dtype)
    plain(x)
    ours.load_state_dict(plain.state_dict(), strict=True)
    assert_same_state(ours, plain)
    ours(x)
    plain.load_state_dict(ours.state_dict(), strict=True)
    assert_same_state(plain, ours)
    on_cpu = pair.build()[1].to(dtype)
    on_cpu.load_state_dict(ours.state_dict(), strict=True)
    assert on_cpu.eval()(x.cpu()).device.type == "cpu"


@fused
def test_parameters_are_shared_with_the_plain_model(device, pair):
    plain, _ = MODES[0].build(pair, device)
    ours = wrap(plain, precision="ieee")
    assert all(a is b for a, b in zip(ours.parameters(), plain.parameters(), strict=True))
    x = torch.randn(M, IN, device=device)
    ours(x)
    assert int(plain.bn.num_batches_tracked) == 1
    with matmul_settings("ieee"):
        torch.testing.assert_close(ours.eval()(x), plain.eval()(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layout", ["(M, C, L)", "float64"])
@in_train_and_eval
def test_the_rest_is_left_to_pytorch(device, training, layout):
    plain, ours = (model.to(device).train(training) for model in LONE_NORM.build())
    x = torch.randn(M, IN, 5, device=device)
    if layout == "float64":
        plain, ours, x = plain.double(), ours.double(), x[..., 0].double()
    assert torch.equal(ours(x), plain(x))
    assert_same_state(ours, plain)
    assert torch.equal(nn.Softmax(dim=1)(x.double()), torch.softmax(x.double(), 1))
