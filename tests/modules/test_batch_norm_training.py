"""Training the modules with a batch norm beside the plain ones, autocast too."""

import copy

import pytest
import torch
from accuracy import ulp
from norm_modules import OUT, in_train_and_eval, pairs

pytestmark = pytest.mark.usefixtures("language")


def train(model, x, target, steps, dtype):
    """Outputs, gradients and running statistics of every step, in float64."""
    model = model.to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    history = []
    for step in range(steps):
        optimizer.zero_grad()
        y = model(x[step].to(dtype))
        # The loss is a mean: a sum diverges, and errors of both models with it, by luck.
        loss = ((y * target[step].to(dtype)).sum() + y.square().sum()) / len(y)
        loss.backward()
        seen = {"y": y.detach().clone()}
        seen |= {f"gradient of {n}": p.grad.clone() for n, p in model.named_parameters()}
        seen |= {n: b.clone() for n, b in model.named_buffers()}
        history.append({name: t.double() for name, t in seen.items()})
        optimizer.step()
    return history


@pairs
def test_twenty_steps_of_training(pair):
    """Errors of all steps by the judge's rule: twice those of the plain model and one ulp."""
    steps = 20
    x, target = pair.draw(steps, 64), torch.randn(steps, 64, OUT)
    plain, ours = pair.build()
    truth = train(copy.deepcopy(plain), x, target, steps, torch.float64)
    plain = train(plain, x, target, steps, torch.float32)
    ours = train(ours, x, target, steps, torch.float32)
    assert truth[-1]["y"].isfinite().all()
    for name in truth[0]:

        def largest_error(history, name=name):
            errors = [(h[name] - t[name]).abs().max() for h, t in zip(history, truth, strict=True)]
            return torch.stack(errors).max()

        size = torch.stack([t[name].abs().max() for t in truth]).max()
        limit = 2 * largest_error(plain) + ulp(size, torch.float32)
        assert largest_error(ours) <= limit, name


@pairs
def test_new_parameters_are_used_at_once(pair):
    """However they are changed, nothing of an earlier call comes back."""
    plain, ours = (model.eval() for model in pair.build())
    x = pair.draw(5)
    ours(x)
    for change in (
        lambda t: t.data.mul_(-1.5),
        lambda t: t.data.copy_(torch.rand_like(t) + 0.5),
        lambda t: setattr(t, "data", torch.rand_like(t) + 0.5),
    ):
        for name in ours.state_dict():
            if name.endswith("num_batches_tracked") or name.endswith("running_var"):
                continue
            change(ours.get_parameter(name) if "running" not in name else ours.get_buffer(name))
            plain.load_state_dict(ours.state_dict())
            torch.testing.assert_close(ours(x), plain(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("cast", [torch.bfloat16, torch.float16], ids=str)
@in_train_and_eval
@pairs
def test_autocast_gives_the_plain_dtype(pair, training, cast):
    plain, ours = (model.train(training) for model in pair.build())
    x = pair.draw(64)
    with torch.autocast("cpu", dtype=cast):
        expected, y = plain(x), ours(x)
    assert y.dtype == expected.dtype == torch.float32
    torch.testing.assert_close(y, expected, rtol=0.05, atol=0.05)
    y.square().sum().backward()
    assert all(p.grad.dtype == torch.float32 for p in ours.parameters())
