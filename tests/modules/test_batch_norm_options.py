"""The modules with a batch norm: other layouts, devices, copies, precision."""

import copy
import io
import pickle

import pytest
import torch
from norm_modules import (
    IN,
    NORM,
    NORM_SOFTMAX,
    OUT,
    assert_same_state,
    fused,
    in_train_and_eval,
    pairs,
    wrap,
)
from recorded_ops import RecordOps, record_precision
from torch._subclasses.fake_tensor import FakeTensorMode

from cutlass_fused import nn

# ---- other layouts and modules ----


@pytest.mark.parametrize("precision", ["ieee", "tf32"])
@in_train_and_eval
@fused
def test_another_batch_norm_is_used_as_it_is(pair, training, precision):
    """SyncBatchNorm adds up over processes, which the fused kernel would not."""

    class Another(torch.nn.modules.batchnorm._BatchNorm):
        def _check_input_dim(self, input):
            pass

    plain, ours = pair.build()
    other = Another(OUT)
    ours.bn = plain.bn = other
    ours.precision = precision
    ours.train(training), other.train(training)
    x = pair.draw(6)
    with torch.no_grad(), RecordOps() as record:
        torch.testing.assert_close(ours(x), plain(x), rtol=1e-4, atol=1e-5)
    (op, arguments), *behind = record.calls
    assert (op, arguments.get("precision", "ieee")) == ("linear", precision)
    assert [op for op, _ in behind] == (["softmax"] if pair is NORM_SOFTMAX else [])
    assert other.num_batches_tracked == (2 if training else 0)


@fused
def test_sync_batch_norm_takes_the_place(pair):
    plain, ours = pair.build()
    ours = torch.nn.SyncBatchNorm.convert_sync_batchnorm(ours).eval()
    assert type(ours.bn) is torch.nn.SyncBatchNorm
    x = pair.draw(6)
    torch.testing.assert_close(ours(x), plain.eval()(x), rtol=1e-4, atol=1e-5)


@in_train_and_eval
@fused
def test_channels_of_three_dimensions_are_those_of_the_plain_model(pair, training):
    """(M, OUT, IN): the plain model's batch norm and softmax are along dim 1, not the last."""
    options = {"scale_shape": (OUT,)} if pair is NORM_SOFTMAX else {}
    plain, ours = (model.train(training) for model in pair.build(**options))
    x = torch.randn(3, OUT, IN)
    torch.testing.assert_close(ours(x), plain(x), rtol=1e-4, atol=1e-5)
    assert_same_state(ours, plain, 1e-5)
    for wrong in (torch.randn(IN), torch.randn(3, OUT + 1, IN)):
        for model in (plain, ours):
            with pytest.raises((ValueError, RuntimeError)):
                model(wrong)


@in_train_and_eval
def test_float64_on_a_gpu_is_left_to_pytorch(training):
    """The kernels have no float64; fake tensors tell what a GPU would run."""
    options = {"dtype": torch.float64, "device": "cuda"}
    with FakeTensorMode(), RecordOps() as record:
        x = torch.empty(6, OUT, **options)
        for module in (nn.BatchNorm1d(OUT, **options), nn.Softmax(dim=1)):
            y = module.train(training)(x)
            assert (y.shape, y.dtype, y.device.type) == ((6, OUT), torch.float64, "cuda")
    assert not record.calls


@in_train_and_eval
@pytest.mark.parametrize("shape", [(6, OUT, 5), (6, OUT, 1), (6, OUT, 0)], ids=str)
def test_other_layouts_are_those_of_pytorch(shape, training):
    plain, ours = (model.train(training) for model in NORM.build())
    x = torch.randn(shape)
    with RecordOps() as record:
        torch.testing.assert_close(ours(x), plain(x))
    assert not record.calls
    assert_same_state(ours, plain)


@pytest.mark.parametrize("x", [torch.randn(OUT), torch.randn(2, OUT, 3, 4)], ids=["1-D", "4-D"])
def test_other_ranks_are_refused_by_pytorch(x):
    with pytest.raises(ValueError, match="expected 2D or 3D input"):
        nn.BatchNorm1d(OUT)(x)


def test_float64_is_left_to_pytorch():
    plain, ours = (model.double() for model in NORM.build())
    x = torch.randn(6, OUT, dtype=torch.float64)
    with RecordOps() as record:
        assert torch.equal(ours(x), plain(x))
    assert not record.calls


# ---- options, copies, precision ----


@pairs
def test_device_and_dtype(pair):
    module = pair.ours(*pair.arguments, device="meta", dtype=torch.bfloat16)
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        count = name.endswith("num_batches_tracked")
        assert tensor.device.type == "meta"
        assert tensor.dtype == (torch.int64 if count else torch.bfloat16)
    y = module(torch.empty(5, pair.width, device="meta", dtype=torch.bfloat16))
    assert y.shape == (5, OUT) and y.dtype == torch.bfloat16 and y.device.type == "meta"


@pytest.mark.parametrize("precision", ["ieee", "tf32"])
@in_train_and_eval
@fused
def test_precision_of_the_module_reaches_the_op(pair, training, precision):
    torch.backends.cuda.matmul.fp32_precision = "tf32" if precision == "ieee" else "ieee"
    module = pair.ours(*pair.arguments, precision=precision).train(training)
    assert record_precision(lambda: module(pair.draw(5))) == [precision]


@fused
def test_unknown_precision(pair):
    plain, _ = pair.build()
    for build in (
        lambda: pair.ours(*pair.arguments, precision="fp8"),
        lambda: wrap(plain, precision="fp8"),
    ):
        with pytest.raises(ValueError, match="'ieee', 'tf32' or None, got 'fp8'"):
            build()


def test_options_are_keyword_only():
    with pytest.raises(TypeError):
        nn.LinearScaleBatchNorm1d(IN, OUT, (OUT,), 1e-5, 0.1, True)
    with pytest.raises(TypeError):
        nn.LinearBatchNorm1dScaleSoftmax(IN, OUT, 1e-5, 0.1, (1,), True)


@pairs
def test_copies_are_independent(pair):
    _, module = pair.build()
    x = pair.draw(5)
    expected = copy.deepcopy(module)(x).detach()

    def save_and_load(module):
        file = io.BytesIO()
        torch.save(module, file)
        file.seek(0)
        return torch.load(file, weights_only=False)

    for duplicate in (copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m)), save_and_load):
        twin = duplicate(module)
        assert type(twin) is type(module) and repr(twin) == repr(module)
        assert torch.equal(twin(x), expected)
    bn = module if pair is NORM else module.bn
    assert bn.num_batches_tracked == 0  # the twins have counted for themselves


@fused
def test_repr_tells_the_options(pair):
    text = repr(pair.ours(*pair.arguments, precision="tf32"))
    for part in ("scale_shape=(", "precision='tf32'", "in_features=12", "eps=1e-05", "momentum"):
        assert part in text
