"""Parts of a model that compute something else: called as they are, by from_eager as where they
take the place of a part later. A module that takes only what they hold refuses them."""

import pytest
import torch
from parts import BUILD, FUSED, IN, OUT, build
from plain import PlainLinearScaleLeakyReLU, run_parts
from recorded_ops import RecordOps
from torch.ao.nn import qat
from torch.ao.quantization import get_default_qat_qconfig

from cutlass_fused import nn


class DoubledLinear(torch.nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


class DoubledBatchNorm1d(torch.nn.BatchNorm1d):
    def forward(self, x):
        return 2 * super().forward(x)


class DoubledLeakyReLU(torch.nn.LeakyReLU):
    def forward(self, x):
        return 2 * super().forward(x)


class DoubledSoftmax(torch.nn.Softmax):
    def forward(self, x):
        return 2 * super().forward(x)


class NamedLinear(torch.nn.Linear):
    """Another class that computes the same."""


class NamedBatchNorm1d(torch.nn.BatchNorm1d):
    pass


def replace_forward(module):
    """Packages that wrap each call of a module do so."""
    plain = module.forward
    module.forward = lambda x: 2 * plain(x)
    return module


def make_quantised():
    return qat.Linear(IN, OUT, qconfig=get_default_qat_qconfig())


LINEARS = {
    "subclass": lambda: DoubledLinear(IN, OUT),
    "quantised": make_quantised,
    "instance": lambda: replace_forward(torch.nn.Linear(IN, OUT)),
}
BATCH_NORMS = {
    "subclass": lambda: DoubledBatchNorm1d(OUT),
    "instance": lambda: replace_forward(torch.nn.BatchNorm1d(OUT)),
}


def full_name(module):
    return f"{type(module).__module__}.{type(module).__qualname__}"


# ---- from_eager ----


@pytest.mark.parametrize("make", LINEARS.values(), ids=LINEARS)
def test_linear_with_another_forward_is_refused(make):
    linear = make()
    with pytest.raises(TypeError) as error:
        build("Linear", linear=linear)
    expected = "linear must be a torch.nn.Linear with the forward of that class"
    assert str(error.value) == f"Linear: {expected}, got {full_name(linear)} with another"


@pytest.mark.parametrize("make", BATCH_NORMS.values(), ids=BATCH_NORMS)
def test_batch_norm_with_another_forward_is_refused(make):
    bn = make()
    with pytest.raises(TypeError) as error:
        build("BatchNorm1d", bn=bn)
    expected = "bn must be a torch.nn.BatchNorm1d with the forward of that class"
    assert str(error.value) == f"BatchNorm1d: {expected}, got {full_name(bn)} with another"


@pytest.mark.parametrize("make", LINEARS.values(), ids=LINEARS)
@pytest.mark.parametrize("kind", FUSED)
def test_from_eager_calls_a_linear_with_another_forward(kind, make):
    module, x = build(kind, linear=make()), torch.randn(6, IN)
    torch.testing.assert_close(module(x), run_parts(module, x))


@pytest.mark.parametrize("make", BATCH_NORMS.values(), ids=BATCH_NORMS)
@pytest.mark.parametrize("kind", FUSED[1:])
def test_from_eager_calls_a_batch_norm_with_another_forward(kind, make):
    module, x = build(kind, bn=make()), torch.randn(6, IN)
    torch.testing.assert_close(module(x), run_parts(module, x), rtol=1e-4, atol=1e-5)


def test_activations_with_another_forward_are_refused():
    linear = torch.nn.Linear(IN, OUT)
    with pytest.raises(TypeError, match="negative_slope must be a torch.nn.LeakyReLU with the for"):
        nn.LinearScaleLeakyReLU.from_eager(linear, 2.0, DoubledLeakyReLU(0.1))
    with pytest.raises(TypeError, match="softmax must be a torch.nn.Softmax with the forward"):
        nn.Softmax.from_eager(DoubledSoftmax(dim=1))


@pytest.mark.parametrize("kind", BUILD)
def test_subclasses_with_the_same_forward_are_taken(kind):
    build(kind, NamedLinear(IN, OUT), NamedBatchNorm1d(OUT))


def test_parametrized_weights_are_computed_on_each_call():
    """Such a module has a class of its own, which computes the weight where it is read."""
    plain = PlainLinearScaleLeakyReLU(IN, OUT, 2.0, 0.1)
    torch.nn.utils.parametrizations.weight_norm(plain.gemm)
    module = nn.LinearScaleLeakyReLU.from_eager(plain.gemm, 2.0, 0.1)
    x = torch.randn(5, IN)
    for _ in range(2):
        torch.testing.assert_close(module(x), plain(x))
        with torch.no_grad():
            plain.gemm.parametrizations.weight.original0.mul_(2.0)


# ---- in the place of a part ----


@pytest.mark.parametrize("make", LINEARS.values(), ids=LINEARS)
@pytest.mark.parametrize("kind", FUSED)
def test_linear_in_the_place_of_gemm_is_called(kind, make):
    """PyTorch's conversion for quantisation-aware training puts one there."""
    module, x = build(kind), torch.randn(6, IN)
    module(x)
    module.gemm = make()
    with RecordOps() as record:
        ours = module(x)
    # What follows it is fused where that is exact.
    behind = {"LinearScaleLeakyReLU": [], "LinearScaleBatchNorm1d": ["batch_norm_train"]}
    assert [op for op, _ in record.calls] == behind.get(kind, ["batch_norm_train", "softmax"])
    torch.testing.assert_close(ours, run_parts(module, x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", BATCH_NORMS.values(), ids=BATCH_NORMS)
@pytest.mark.parametrize("kind", FUSED[1:])
def test_batch_norm_in_the_place_of_bn_is_called(kind, make):
    module, x = build(kind), torch.randn(6, IN)
    module(x)
    module.bn = make()
    with RecordOps() as record:
        ours = module(x)
    behind = ["softmax"] if "Softmax" in kind else []
    assert [op for op, _ in record.calls] == ["linear", *behind]
    torch.testing.assert_close(ours, run_parts(module, x), rtol=1e-4, atol=1e-5)
    assert module.bn.num_batches_tracked == 2


@pytest.mark.parametrize("kind", FUSED)
def test_compiled_modules_notice_the_new_part(kind):
    module, x = build(kind), torch.randn(6, IN)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    compiled(x)
    for gemm in (DoubledLinear(IN, OUT), replace_forward(torch.nn.Linear(IN, OUT))):
        module.gemm = gemm
        torch.testing.assert_close(compiled(x), run_parts(module, x), rtol=1e-4, atol=1e-5)
