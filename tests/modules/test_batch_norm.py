"""The modules with a batch norm: drop-in for the plain ones, in training and in eval."""

import copy

import pytest
import torch
from norm_modules import (
    IN,
    NORM,
    NORM_SOFTMAX,
    OUT,
    Pair,
    assert_same_state,
    fused,
    in_train_and_eval,
    pairs,
)
from plain import PlainLinearScaleBatchNorm1d
from recorded_ops import RecordOps

from cutlass_fused import nn

# ---- parameters and state dicts ----


@pytest.mark.parametrize("options", [{}, {"bias": False}, {"dtype": torch.bfloat16}], ids=str)
@fused
def test_same_seed_same_parameters(pair, options):
    plain, ours = pair.build(**options)
    state = torch.get_rng_state()
    torch.manual_seed(7)
    pair.plain(*pair.arguments, **options)
    assert torch.equal(torch.get_rng_state(), state)  # nothing else was drawn
    assert_same_state(ours, plain)
    assert [n for n, _ in ours.named_parameters()] == [n for n, _ in plain.named_parameters()]


@pairs
def test_state_dict_loads_strictly_both_ways(pair):
    plain, ours = pair.build()
    x = pair.draw(5)
    plain(x)  # statistics that are not those of the beginning
    ours.load_state_dict(plain.state_dict(), strict=True)
    assert_same_state(ours, plain)
    other, _ = pair.build()
    other.load_state_dict(ours.state_dict(), strict=True)
    torch.testing.assert_close(ours.eval()(x), plain.eval()(x))
    assert torch.equal(other.eval()(x), plain(x))


@fused
def test_state_dicts_of_other_models_are_refused(pair):
    plain, _ = pair.build()
    _, without_bias = pair.build(bias=False)
    with pytest.raises(RuntimeError, match="Unexpected key"):
        without_bias.load_state_dict(plain.state_dict(), strict=True)


@fused
def test_parts_are_the_real_ones(pair):
    _, ours = pair.build()
    assert type(ours.gemm) is torch.nn.Linear and type(ours.bn) is torch.nn.BatchNorm1d
    assert type(ours.scale) is torch.nn.Parameter


def test_batch_norm_is_one():
    assert isinstance(nn.BatchNorm1d(OUT), torch.nn.BatchNorm1d)


@pytest.mark.parametrize("shape", [(), 1, (1,), OUT, (OUT,), [OUT]], ids=str)
def test_scale_shapes(shape):
    for plain, ours in (
        Pair(PlainLinearScaleBatchNorm1d, nn.LinearScaleBatchNorm1d, IN, OUT, shape).build(),
        NORM_SOFTMAX.build(scale_shape=shape),
    ):
        assert ours.scale.shape == plain.scale.shape
        x = torch.randn(6, IN)
        torch.testing.assert_close(ours(x), plain(x), rtol=1e-4, atol=1e-5)


# True and 1.0 are equal to 1, and an iterator gives its sizes only once.
NO_SIZES = [None, 1.0, True, (True,), (1.0,), "", "1", {1}, (None,)]
NO_SIZES.append(pytest.param(iter((OUT,)), id="iterator"))


@pytest.mark.parametrize("shape", [(2,), (2, OUT), (OUT, 1), (0,), OUT + 1, *NO_SIZES], ids=str)
def test_other_scale_shapes_are_refused(shape):
    for build in (
        lambda: nn.LinearScaleBatchNorm1d(IN, OUT, shape),
        lambda: nn.LinearBatchNorm1dScaleSoftmax(IN, OUT, scale_shape=shape),
    ):
        with pytest.raises(ValueError, match=r"scale_shape must be \(\), \(1,\) or \(out_features"):
            build()


# ---- forward ----


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@in_train_and_eval
@pairs
def test_forward_is_that_of_the_plain_model(pair, dtype, training):
    plain, ours = (model.to(dtype).train(training) for model in pair.build())
    for batch in (0, 2, 5):
        x = pair.draw(batch, dtype=dtype)
        expected, y = plain(x), ours(x)
        assert y.dtype == expected.dtype and y.shape == expected.shape
        tolerance = 32 * torch.finfo(dtype).eps
        torch.testing.assert_close(y, expected, rtol=tolerance, atol=tolerance)
        assert_same_state(ours, plain, tolerance)


@pytest.mark.parametrize("momentum", [0.1, 0.0, 1.0, None])
@pytest.mark.parametrize("eps", [1e-5, 0.1])
@pairs
def test_options_of_the_batch_norm(pair, eps, momentum):
    names = ("bn_eps", "bn_momentum") if pair is NORM_SOFTMAX else ("eps", "momentum")
    plain, ours = pair.build(**dict(zip(names, (eps, momentum), strict=True)))
    for _ in range(3):
        x = pair.draw(6)
        torch.testing.assert_close(ours(x), plain(x), rtol=1e-4, atol=1e-5)
    assert_same_state(ours, plain, 1e-6)
    plain.eval(), ours.eval()
    torch.testing.assert_close(ours(x), plain(x), rtol=1e-4, atol=1e-5)


STATISTICS = {
    "not affine": lambda bn: torch.nn.BatchNorm1d(OUT, affine=False),
    "not tracked": lambda bn: torch.nn.BatchNorm1d(OUT, track_running_stats=False),
    "not tracked any more": lambda bn: setattr(bn, "track_running_stats", False),
    "no count": lambda bn: setattr(bn, "num_batches_tracked", None),
    "no count, no momentum": lambda bn: (
        setattr(bn, "num_batches_tracked", None),
        setattr(bn, "momentum", None),
    ),
    "count not tracked, no momentum": lambda bn: torch.nn.BatchNorm1d(
        OUT, momentum=None, track_running_stats=False
    ),
}


@pytest.mark.parametrize("change", STATISTICS.values(), ids=STATISTICS)
@in_train_and_eval
@pairs
def test_unusual_statistics(pair, change, training):
    """Which statistics are used and which are updated is decided as torch.nn.BatchNorm1d does."""
    models = []
    for model in pair.build():
        bn = model if pair is NORM else model.bn
        changed = change(bn)
        if isinstance(changed, torch.nn.BatchNorm1d):
            if pair is not NORM:
                model.bn = changed
            elif isinstance(model, nn.BatchNorm1d):
                model = nn.BatchNorm1d.from_eager(changed)
            else:
                model = changed
        models.append(model.train(training))
    plain, ours = models
    for _ in range(2):
        x = pair.draw(6)
        torch.testing.assert_close(ours(x), plain(x), rtol=1e-4, atol=1e-5)
        assert_same_state(ours, plain, 1e-6)


@in_train_and_eval
@fused
def test_the_mode_is_that_of_the_batch_norm(pair, training):
    """The plain model does so too: people freeze a batch norm within a model that trains."""
    plain, ours = (model.train() for model in pair.build())
    plain.bn.train(training), ours.bn.train(training)
    x = pair.draw(6)
    torch.testing.assert_close(ours(x), plain(x), rtol=1e-4, atol=1e-5)
    assert ours.bn.num_batches_tracked == (1 if training else 0)
    assert_same_state(ours, plain, 1e-6)


@in_train_and_eval
@fused
def test_the_batch_norm_itself_is_not_called(pair, training):
    """Its kernel is part of the op; a call of the module would only cost time."""
    _, ours = pair.build()
    ours.train(training)
    with torch.no_grad(), RecordOps() as record:
        ours(pair.draw(6))
    assert len(record.calls) == 1


@pytest.mark.parametrize("make", [lambda x: x[:1], lambda x: x[:1, :5]], ids=["one row", "narrow"])
@pairs
def test_refused_calls_update_nothing(pair, make):
    _, ours = pair.build()
    before = copy.deepcopy(ours.state_dict())
    with pytest.raises((ValueError, RuntimeError)):
        ours(make(pair.draw(6)))
    for name, value in ours.state_dict().items():
        assert torch.equal(value, before[name]), name


@pairs
def test_what_is_no_tensor_is_refused(pair):
    with pytest.raises(TypeError, match="x must be a tensor, got list"):
        pair.build()[1]([[1.0]])


@pairs
def test_one_row_is_refused_as_by_pytorch(pair):
    plain, ours = pair.build()
    x = pair.draw(1)
    messages = []
    for model in (plain, ours):
        with pytest.raises(ValueError, match="Expected more than 1 value per channel") as error:
            model(x)
        messages.append(str(error.value))
        assert model.eval()(x).shape == (1, OUT)
    assert messages[0] in messages[1]
