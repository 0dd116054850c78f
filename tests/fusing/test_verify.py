"""verify, the report, and what an exception leaves."""

import copy

import pytest
import torch
from linear_tails import CASES, Behind, K, N, Residual
from torch import nn
from torch.nn import functional as F

import cutlass_fused
from cutlass_fused.fusing import calls, forward, install, plan, sites, verify
from cutlass_fused.fusing.recorded import recording
from cutlass_fused.fusing.report import Report


def draw():
    return torch.randn(6, K)


@pytest.mark.parametrize("name", CASES)
def test_errors_of_all_sites(name):
    model = CASES[name].make()
    buffers = [each.clone() for each in model.buffers()]
    state = torch.random.get_rng_state()
    x = draw()
    after = torch.random.get_rng_state()
    report = cutlass_fused.fuse(model, verify=x)
    assert {site.where for site in report.sites} == set(report.errors)
    for error in report.errors.values():
        assert error.ours <= 1e-5 and error.eager <= 1e-5
        assert "error / PyTorch's" in str(report)
    # Nothing was called but copies.
    assert all(torch.equal(*pair) for pair in zip(buffers, model.buffers(), strict=True))
    assert torch.equal(torch.random.get_rng_state(), after) and not torch.equal(state, after)


@pytest.mark.parametrize("given", ["tuple", "list", "dict"])
def test_inputs(given):
    x = draw()
    inputs = {"tuple": (x,), "list": [x], "dict": {"x": x}}[given]
    assert cutlass_fused.fuse(Residual(), verify=inputs).errors


def list_dictionaries(model):
    return {name: dict(module.__dict__) for name, module in model.named_modules()}


def check_untouched(model, before, x):
    assert list_dictionaries(model).keys() == before.keys()
    for name, module in model.named_modules():
        assert module.__dict__.keys() == before[name].keys()
        assert all(module.__dict__[key] is value for key, value in before[name].items())
    assert "__getattribute__" not in nn.Module.__dict__
    model(x)


STAGES = {
    "reading arguments": (recording, "_read_arguments"),
    "recording": (recording._Tracer, "create_node"),
    "checking code": (recording, "check_code"),
    "finding products": (plan, "find_product"),
    "making functions": (plan, "make_functions"),
    "finding a call": (calls, "_find_named"),
    "writing": (plan, "_write_forward"),
    "copying": (verify.copy, "deepcopy"),
    "calling": (sites.Site, "_find_reason"),
    "comparing": (verify, "_compare"),
    "a forward": (forward.FusedForward, "__init__"),
}


@pytest.mark.parametrize("is_fused", [False, True], ids=["plain", "fused"])
@pytest.mark.parametrize("stage", STAGES)
def test_exceptions_leave_the_model(stage, is_fused, monkeypatch):
    model, x = Residual(), draw()
    if is_fused:
        cutlass_fused.fuse(model)
    before = list_dictionaries(model)

    class Planted(Exception):
        pass

    def fail(*_, **__):
        raise Planted

    with monkeypatch.context() as patch:
        patch.setattr(*STAGES[stage], fail)
        if stage in ("recording", "checking code"):
            # Whatever a forward raises while it is recorded is a reason to leave it.
            report = cutlass_fused.fuse(copy.deepcopy(model))
            assert not report.sites
        else:
            with pytest.raises(Planted):
                cutlass_fused.fuse(model, verify=x)
    check_untouched(model, before, x)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_exception_while_it_is_installed(count, monkeypatch):
    """Half of the modules have their new forward."""
    model = nn.ModuleList([Residual() for _ in range(4)])
    plain = copy.deepcopy(model)
    before, x = list_dictionaries(model), draw()
    found = install._find_forwards(model, None, Report(model))

    class Failing(list):
        def __iter__(self):
            yield from list.__iter__(self[:count])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        install._install(model, Failing(found))
    for each, other in zip(model, plain, strict=True):
        torch.testing.assert_close(each(x), other(x))
    for name, module in model.named_modules():
        assert module.__dict__.keys() == before[name].keys()


def test_inputs_that_the_model_refuses():
    model = Residual()
    before = list_dictionaries(model)
    with pytest.raises(RuntimeError):
        cutlass_fused.fuse(model, verify=torch.randn(6, K + 1))
    with pytest.raises(TypeError, match="verify must be a tensor, a tuple or a dict"):
        cutlass_fused.fuse(model, verify="x")
    check_untouched(model, before, draw())


def test_no_rows():
    model = Residual().eval()
    report = cutlass_fused.fuse(model, verify=torch.randn(0, K))
    assert set(report.errors.values()) == {(0.0, 0.0)}


def test_infinities():
    """Where PyTorch's ops have them, ours have."""

    def mask(m, z, x):
        return z.masked_fill(m.mask > 0.0, float("-inf")) * 2.0

    model = Behind(mask, mask=nn.Parameter(torch.linspace(-1, 1, N)))
    report = cutlass_fused.fuse(model, verify=draw())
    ((ours, eager),) = report.errors.values()
    assert 0.0 < ours < 1e-6 and 0.0 < eager < 1e-6
    report = cutlass_fused.fuse(model, verify=torch.full((2, K), float("inf")))
    assert list(report.errors.values()) == [(0.0, 0.0)]


def test_models_in_float64():
    """There the truth is rounded, too."""
    for seed in range(20):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(K, 64), nn.GELU(), nn.Linear(64, N), nn.Tanh()).double()
        cutlass_fused.fuse(model, verify=torch.randn(64, K, dtype=torch.float64))


@pytest.mark.parametrize("factor", [1.001, float("nan")])
def test_a_wrong_function_is_found(factor, monkeypatch):
    from cutlass_fused import functional

    right = functional.linear_epilogue
    monkeypatch.setattr(functional, "linear_epilogue", lambda *a, **o: right(*a, **o) * factor)
    model, x = nn.Sequential(nn.Linear(K, N), nn.GELU()), draw()
    before = list_dictionaries(model)
    with pytest.raises(RuntimeError, match="fuse: 0 must be within twice PyTorch's error"):
        cutlass_fused.fuse(model, verify=x)
    check_untouched(model, before, x)


def test_report():
    model = nn.Sequential(
        *(nn.Linear(K, N), nn.GELU(), nn.Dropout(0.1), nn.Linear(N, N), nn.Softmax(0)),
        nn.utils.parametrizations.weight_norm(nn.Linear(N, 3)),
    )
    report = cutlass_fused.fuse(model)
    title, header, _, *rows, note = str(report).splitlines()
    assert title == "Sequential: 2 sites fused, 1 left"
    assert header.split()[:4] == ["site", "fused", "by", "kernel"]
    assert [row.split()[0] for row in rows] == ["0", "3", "5"]
    assert "Linear + GELU" in rows[0] and "linear_epilogue, gelu" in rows[0]
    assert "dropout stays PyTorch's" in rows[0]
    assert "parametrization" in rows[2]
    assert "need a GPU" in note
    # A decision of a call comes in.
    model(torch.randn(2, 3, K))
    assert "the last call" not in str(report)
    model(torch.randn(K).unsqueeze(0).squeeze(0))
    assert "the last call was PyTorch's: x has 1 dimensions" in str(report)


def test_modes_are_not_told_twice():
    model = Behind(lambda m, z, x: F.relu(m.bn(z)), bn=nn.BatchNorm1d(N))
    report = cutlass_fused.fuse(model)
    for training in (True, False, True):
        model.train(training)(draw())
    assert len(report.sites) == 2  # of training and of eval, which are two chains
    rows = [line for line in str(report).splitlines() if line.startswith("fc ")]
    assert ["linear_scale_batch_norm" in row for row in rows] == [True, False]


@pytest.mark.parametrize("wrong", [None, 1, torch.randn(2), F.relu])
def test_no_module(wrong):
    for function in (cutlass_fused.fuse, cutlass_fused.unfuse):
        with pytest.raises(TypeError, match=r"model must be a torch.nn.Module, got"):
            function(wrong)
