"""What a call of a fused model decides, and which functions it reaches."""

import copy
import threading

import pytest
import torch
from linear_tails import Behind, K, N, Residual
from plain import (
    PlainLinearBatchNorm1dScaleSoftmax,
    PlainLinearScaleBatchNorm1d,
    PlainLinearScaleLeakyReLU,
)
from torch import nn
from torch.nn import functional as F

import cutlass_fused
from cutlass_fused import functional
from cutlass_fused import nn as ours_nn

# The plain model, the module that is written by hand, and the function that it calls.
TARGETS = {
    "12": (
        lambda: PlainLinearScaleLeakyReLU(K, N, 2.0, 0.1),
        lambda m: ours_nn.LinearScaleLeakyReLU.from_eager(m.gemm, m.multiplier, 0.1),
        "linear_scale_leaky_relu",
    ),
    "33": (
        lambda: PlainLinearScaleBatchNorm1d(K, N, (N,)),
        lambda m: ours_nn.LinearScaleBatchNorm1d.from_eager(m.gemm, m.scale, m.bn),
        "linear_scale_batch_norm",
    ),
    "84": (
        lambda: PlainLinearBatchNorm1dScaleSoftmax(K, N),
        lambda m: ours_nn.LinearBatchNorm1dScaleSoftmax.from_eager(m.gemm, m.bn, m.scale),
        "linear_batch_norm_scale_softmax",
    ),
}


def draw(*shape, **options):
    return torch.randn(*(shape or (6, K)), **options)


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no grad"])
@pytest.mark.parametrize("target", TARGETS)
def test_targets_reach_the_same_functions(target, grad, training, monkeypatch):
    """With the same arguments as the modules that are written by hand, and the same bits."""
    make, by_hand, name = TARGETS[target]
    model = make().train(training)
    twin = copy.deepcopy(model)
    module = by_hand(twin).train(training)
    report = cutlass_fused.fuse(model, precision="ieee")
    module.precision = "ieee"
    seen, function = [], getattr(functional, name)

    def watch(*args, **kwargs):
        seen.append((args, kwargs))
        return function(*args, **kwargs)

    monkeypatch.setattr(functional, name, watch)
    with torch.set_grad_enabled(grad):
        x = draw()
        y, expected = model(x), module(x)
    assert torch.equal(y, expected)
    (args, kwargs), (other_args, other_kwargs) = seen
    assert_same([*args[1:], kwargs], [*other_args[1:], other_kwargs])
    assert [site.names[0] for site in report.sites] == ["Linear"]


def assert_same(ours, theirs):
    if isinstance(ours, torch.Tensor):
        torch.testing.assert_close(ours, theirs, check_stride=True)
    elif isinstance(ours, dict):
        assert list(ours) == list(theirs)
        assert_same(list(ours.values()), list(theirs.values()))
    elif isinstance(ours, list):
        for each in zip(ours, theirs, strict=True):
            assert_same(*each)
    else:
        assert ours == theirs


def test_batch_norm_behind_an_activation(monkeypatch):
    """A call of its own in training; in eval it is part of the chain."""
    model = nn.Sequential(nn.Linear(K, N), nn.ReLU(), nn.BatchNorm1d(N))
    plain, seen, function = copy.deepcopy(model), [], functional.batch_norm
    report = cutlass_fused.fuse(model)
    monkeypatch.setattr(
        functional, "batch_norm", lambda *a, **o: seen.append(1) or function(*a, **o)
    )
    for training in (True, False, True):
        x = draw()
        torch.testing.assert_close(model.train(training)(x), plain.train(training)(x))
        assert len(seen) == training
        seen.clear()
    for ours, theirs in zip(model.buffers(), plain.buffers(), strict=True):
        torch.testing.assert_close(ours, theirs)
    assert [len(site.names) for site in report.sites] == [2, 3]
    hook = model[2].register_forward_hook(lambda m, args, y: y * 2.0)
    torch.testing.assert_close(model(x), plain(x) * 2.0)
    hook.remove()
    assert "batch norm is computed by functional.batch_norm" in report.sites[0].obstacle


def fuse(model, **options):
    plain = copy.deepcopy(model)
    return plain, cutlass_fused.fuse(model, **options)


def check(model, plain, *args, rtol=None, atol=None):
    ours, theirs = model(*args), plain(*args)
    torch.testing.assert_close(ours, theirs, rtol=rtol, atol=atol)
    return ours


TAILS = {
    "pointwise": (lambda m, z, x: torch.sigmoid(z) * 0.5 + z, True),
    "softmax of the last": (lambda m, z, x: torch.softmax(z * 2.0, dim=-1), True),
    "softmax of the second": (lambda m, z, x: torch.softmax(z * 2.0, dim=1), False),
    "mean of the second": (lambda m, z, x: z.mean(1), False),
    "mean of the last": (lambda m, z, x: z.mean(-1), True),
    "group norm": (lambda m, z, x: F.group_norm(z, 2), False),
    "normalize": (lambda m, z, x: F.normalize(z), False),
}


@pytest.mark.parametrize("name", TAILS)
def test_more_dimensions(name):
    """A chain of matrices is PyTorch's there, since dimension 1 is another one."""
    tail, is_served = TAILS[name]
    model = Behind(tail)
    plain, report = fuse(model)
    check(model, plain, draw())
    assert report.sites[0].last.why is None
    x = draw(4, 6, K)
    check(model, plain, x)
    assert (report.sites[0].last.why is None) == is_served
    check(model, plain, draw(2, 4, 6, K))


def test_one_dimension():
    model = nn.Sequential(nn.Linear(K, N), nn.GELU())
    plain, report = fuse(model)
    check(model, plain, draw(K))
    assert report.sites[0].last.why == "x has 1 dimensions"


def test_batches_of_every_size():
    model = Residual()
    plain, report = fuse(model)
    for m in (0, 1, 2, 7, N, K, 300):
        check(model, plain, draw(m, K))
    assert {site.last.why for site in report.sites} == {None}


def test_batch_of_one_in_training():
    model = nn.Sequential(nn.Linear(K, N), nn.BatchNorm1d(N))
    plain, _ = fuse(model)
    for each in (model, plain):
        with pytest.raises(ValueError, match="Expected more than 1 value per channel"):
            each(draw(1, K))
    for ours, theirs in zip(model.buffers(), plain.buffers(), strict=True):
        assert torch.equal(ours, theirs)
    check(model.eval(), plain.eval(), draw(1, K))


@pytest.mark.parametrize("shape", [(N,), (1,), (), (6, 1), (6, N), (1, N)])
def test_operands_of_every_shape(shape):
    """A tensor that comes as an argument may have another shape in each call."""

    class Adds(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(K, N)

        def forward(self, x, other):
            return torch.tanh(self.fc(x) * 2.0 + other)

    model = Adds()
    plain, report = fuse(model)
    check(model, plain, draw(), draw(6, N))
    check(model, plain, draw(), torch.randn(shape))
    assert report.sites[0].last.why is None
    check(model, plain, draw(), draw(3, 6, N))  # which broadcasts z
    assert report.sites[0].last.why is not None
    found = check(model, plain, draw(), draw(6, N, dtype=torch.float64))
    assert found.dtype == torch.float64
    with pytest.raises(RuntimeError, match="must match the size"):
        model(draw(), draw(5, N + 1))
    check(model, plain, draw(), torch.ones(6, N, dtype=torch.int64))
    torch.testing.assert_close(model(draw() * 0, 1.5), plain(draw() * 0, 1.5))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_dtypes(dtype):
    model = Behind(lambda m, z, x: torch.softmax(F.gelu(z) * m.s, 1), s=nn.Parameter(torch.rand(N)))
    model = model.to(dtype)
    plain, report = fuse(model)
    size = {torch.float64: 1e-12}.get(dtype, 4 * torch.finfo(dtype).eps)
    assert check(model, plain, draw().to(dtype), rtol=size, atol=size).dtype == dtype
    assert report.sites[0].last.why is None


def test_dtype_that_a_parameter_widens():
    model = Behind(lambda m, z, x: torch.tanh(z) * m.s, s=nn.Parameter(torch.rand(N)))
    model.fc.bfloat16()
    plain, report = fuse(model)
    found = check(model, plain, draw().bfloat16(), rtol=0.01, atol=0.01)
    assert found.dtype == torch.float32
    assert report.sites[0].last.why is None


@pytest.mark.parametrize("is_autocast", [True, False])
def test_dtype_behind_a_batch_norm_of_fp32(is_autocast):
    model = nn.Sequential(nn.Linear(K, N), nn.BatchNorm1d(N), nn.ReLU()).eval()
    model[0].to(torch.float32 if is_autocast else torch.bfloat16)
    plain, report = fuse(model)
    x = draw() if is_autocast else draw().bfloat16()
    with torch.autocast("cpu", torch.bfloat16, enabled=is_autocast):
        found = check(model, plain, x, rtol=0.02, atol=0.02)
    assert found.dtype == torch.bfloat16 and report.sites[0].last.why is None


def test_dtypes_that_differ():
    """PyTorch's error."""
    model = nn.Sequential(nn.Linear(K, N), nn.GELU())
    cutlass_fused.fuse(model)
    with pytest.raises(RuntimeError, match="same dtype"):
        model(draw().bfloat16())


@pytest.mark.parametrize("name", ["gelu", "softplus", "softmax", "layer norm", "bare"])
def test_autocast(name):
    tail = {
        "gelu": lambda m, z, x: F.gelu(z),
        "softplus": lambda m, z, x: F.softplus(z) + 1.0,
        "softmax": lambda m, z, x: torch.softmax(z * 2.0, 1),
        "layer norm": lambda m, z, x: F.layer_norm(z, (N,)),
        "bare": lambda m, z, x: z,
    }[name]
    model = Behind(tail)
    plain, report = fuse(model)
    x = draw()
    check(model, plain, x)
    with torch.autocast("cpu", torch.bfloat16):
        check(model, plain, x, rtol=0.02, atol=0.02)  # dtypes too
    assert report.sites[0].last.why is None
    check(model, plain, x)


def test_autocast_of_a_sum():
    """The product is of 16 bits, and the parameter that is added to it of 32."""

    class Adds(nn.Module):
        def __init__(self):
            super().__init__()
            self.w, self.b = nn.Parameter(torch.rand(N, K)), nn.Parameter(torch.rand(N))

        def forward(self, x):
            return torch.relu(x @ self.w.T + self.b)

    model = Adds()
    plain, report = fuse(model)
    x = draw()
    with torch.autocast("cpu", torch.bfloat16):
        assert check(model, plain, x, rtol=0.02, atol=0.02).dtype == torch.float32
    assert report.sites[0].last.why is not None
    check(model, plain, x)
    assert report.sites[0].last.why is None


def test_inference_mode():
    model = Residual()
    plain, report = fuse(model)
    with torch.inference_mode():
        check(model, plain, draw())
    assert report.sites[0].last.why is None
    check(model, plain, draw())


def test_tensors_of_another_kind():
    class Kind(torch.Tensor):
        pass

    model = Behind(lambda m, z, x: F.gelu(z))
    plain, _ = fuse(model)
    x = draw().as_subclass(Kind)
    assert type(model(x)) is Kind
    check(model, plain, x)
    check(model, plain, draw().to_sparse())
    with torch.device("meta"):
        assert copy.deepcopy(model).to("meta")(torch.empty(6, K)).is_meta


def test_nested_x():
    """It has no shape to ask for."""
    model = nn.Sequential(nn.Linear(K, N), nn.ReLU())
    plain, _ = fuse(model)
    for layout in (torch.strided, torch.jagged):
        x = torch.nested.nested_tensor([draw(2, K), draw(3, K)], layout=layout)
        for ours, theirs in zip(model(x).unbind(), plain(x).unbind(), strict=True):
            torch.testing.assert_close(ours, theirs)


CHANGES = {
    "bias of one number": lambda m: set_bias(m, torch.ones(1)),
    "bias of a row": lambda m: set_bias(m, draw(1, N)),
    "bias of rows": lambda m: set_bias(m, draw(6, N)),
    "weight, sparse": lambda m: set_weight(m, m.fc.weight.detach().to_sparse_csr()),
    "factor, sparse": lambda m: setattr(m, "factor", m.factor.to_sparse()),
}


def set_bias(m, bias):
    m.fc.bias = nn.Parameter(bias)


def set_weight(m, weight):
    m.fc.weight = nn.Parameter(weight, requires_grad=False)


@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no grad"])
@pytest.mark.parametrize("name", CHANGES)
def test_other_tensors_later(name, grad):
    """What fitted and fits no longer, in layout or shape, is PyTorch's."""
    model = Behind(lambda m, z, x: F.relu(z * m.factor))
    model.register_buffer("factor", torch.rand(6, N))
    scaled = Behind(lambda m, z, x: F.leaky_relu(z * 2.0))
    models = [model] if name == "factor, sparse" else [model, scaled]
    for model in models:
        plain, report = fuse(model)
        with torch.set_grad_enabled(grad):
            check(model, plain, draw()), check(model, plain, draw())
            assert report.sites[0].last.why is None
            for each in (model, plain):
                torch.manual_seed(0)
                CHANGES[name](each)
            x = draw()
            for _ in range(2):
                ours, theirs = (m(x) for m in (model, plain))
                torch.testing.assert_close(ours.to_dense(), theirs.to_dense())


def test_precision():
    model = nn.Sequential(nn.Linear(K, N), ours_nn.Linear(N, N, precision="tf32"), nn.GELU())
    report = cutlass_fused.fuse(model)
    assert [site.precision for site in report.sites] == [None, "tf32"]
    report = cutlass_fused.fuse(model, precision="ieee")
    assert [site.precision for site in report.sites] == ["ieee", "ieee"]
    with pytest.raises(ValueError, match="precision"):
        cutlass_fused.fuse(model, precision="fast")


def test_decides_once(monkeypatch):
    """A second call of the same kind describes nothing anew."""
    model = Residual()
    _, report = fuse(model)
    model(draw())
    for site in report.sites:
        monkeypatch.setattr(site, "_decide", lambda *_: pytest.fail("decides again"))
    model(draw())
    model(draw())


def test_many_shapes():
    model = nn.Sequential(nn.Linear(K, N), nn.GELU())
    _, report = fuse(model)
    for m in range(1, 600):
        model(draw(m, K))
    assert len(report.sites[0]._decisions) <= 256


def test_threads():
    """Calls, and a recording, at once."""
    model, others = Residual(), [Residual() for _ in range(3)]
    plain, _ = fuse(model)
    x, failures = draw(), []

    def call():
        try:
            for _ in range(50):
                check(model, plain, x)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=call) for _ in range(3)]
    for each in threads:
        each.start()
    for each in others:
        cutlass_fused.fuse(each)
    for each in threads:
        each.join()
    assert not failures
    assert "__getattribute__" not in nn.Module.__dict__
