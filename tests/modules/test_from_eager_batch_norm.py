"""from_eager of the modules with a batch norm: it shares everything with the plain model."""

import copy

import pytest
import torch
from norm_modules import (
    IN,
    NORM_SOFTMAX,
    OUT,
    assert_same_state,
    fused,
    in_train_and_eval,
    pairs,
    wrap,
)

from cutlass_fused import nn


@in_train_and_eval
@pairs
def test_from_eager_shares_everything(pair, training):
    plain, _ = pair.build()
    plain.train(training)
    state = torch.get_rng_state()
    ours = wrap(plain)
    assert torch.equal(torch.get_rng_state(), state)
    assert ours.training == training == plain.training
    assert_same_state(ours, plain)
    for name, tensor in [*plain.named_parameters(), *plain.named_buffers()]:
        assert dict([*ours.named_parameters(), *ours.named_buffers()])[name] is tensor
    x = pair.draw(6)
    expected = copy.deepcopy(plain)
    torch.testing.assert_close(ours(x), expected(x), rtol=1e-4, atol=1e-5)
    assert_same_state(plain, expected, 1e-6)  # trained through ours
    plain.load_state_dict(ours.state_dict(), strict=True)


@in_train_and_eval
@fused
def test_from_eager_leaves_the_modes_of_the_parts(pair, training):
    """The mode is that of the batch norm."""
    plain, _ = pair.build()
    plain.train(not training)
    plain.bn.train(training)
    ours = wrap(plain)
    assert ours.training == plain.bn.training == training == (not plain.gemm.training)


def test_from_eager_keeps_the_options():
    plain = torch.nn.BatchNorm1d(OUT, 0.3, None, False, True, dtype=torch.float64)
    assert repr(nn.BatchNorm1d.from_eager(plain)) == f"cutlass_fused.{plain!r}"
    model, _ = NORM_SOFTMAX.build()
    assert wrap(model, precision="tf32").precision == "tf32"


def test_from_eager_takes_the_parts_only():
    linear, bn = torch.nn.Linear(IN, OUT), torch.nn.BatchNorm1d(OUT)
    scale, relu = torch.nn.Parameter(torch.ones(OUT)), torch.nn.ReLU()
    for build in (
        lambda a, b, c: nn.LinearScaleBatchNorm1d.from_eager(a, b, c),
        lambda a, b, c: nn.LinearBatchNorm1dScaleSoftmax.from_eager(a, c, b),
    ):
        build(linear, scale, bn)
        for parts, message in (
            ((relu, scale, bn), r"linear must be a torch\.nn\.Linear, got ReLU"),
            ((linear, "2", bn), r"scale must be a torch\.nn\.Parameter or a number, got str"),
            (
                (linear, scale.data, bn),
                r"scale must be a torch\.nn\.Parameter or a number, got Ten",
            ),
            ((linear, scale, relu), r"bn must be a torch\.nn\.BatchNorm1d, got ReLU"),
        ):
            with pytest.raises(TypeError, match=message):
                build(*parts)
        with pytest.raises(ValueError, match="scale_shape must be"):
            build(linear, torch.nn.Parameter(torch.ones(3)), bn)
        for features in (1, OUT - 1, IN):
            message = rf"num_features = out_features of linear = {OUT}, got {features}$"
            with pytest.raises(ValueError, match=message):
                build(linear, scale, torch.nn.BatchNorm1d(features))
    with pytest.raises(TypeError, match=r"bn must be a torch\.nn\.BatchNorm1d, got BatchNorm2d"):
        nn.BatchNorm1d.from_eager(torch.nn.BatchNorm2d(OUT))
