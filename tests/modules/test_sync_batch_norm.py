"""SyncBatchNorm in one process: what is converted, and that it is a batch norm there.
tests/sharding/test_processes.py has several processes."""

import copy

import pytest
import torch
from norm_modules import IN, NORM_SOFTMAX, OUT, SCALE_NORM
from recorded_ops import RecordOps

from cutlass_fused import nn
from cutlass_fused.sharding import SyncBatchNorm

convert = SyncBatchNorm.convert_sync_batchnorm
fused = pytest.mark.parametrize("pair", [SCALE_NORM, NORM_SOFTMAX], ids=str)


def build_model():
    bn = torch.nn.BatchNorm1d(OUT)
    return torch.nn.ModuleDict(
        {
            "fused": nn.LinearScaleBatchNorm1d(IN, OUT, (OUT,)),
            "ours": nn.BatchNorm1d(OUT, momentum=None),
            "of images": torch.nn.BatchNorm2d(OUT, affine=False),
            "frozen": torch.nn.BatchNorm1d(OUT, track_running_stats=False).eval(),
            "several": torch.nn.Sequential(bn, torch.nn.ReLU(), bn),
            "group": torch.nn.GroupNorm(2, OUT),
        }
    )


def test_all_batch_norms_are_converted():
    model = build_model()
    before = dict(model.named_modules())
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    state, group = copy.deepcopy(model.state_dict()), object()
    assert convert(model, group) is model
    converted = {
        name for name, module in model.named_modules() if isinstance(module, SyncBatchNorm)
    }
    assert converted == {"fused.bn", "ours", "of images", "frozen", "several.0"}
    for name in converted:
        old, new = before[name], model.get_submodule(name)
        for key in ("eps", "momentum", "affine", "track_running_stats", "num_features", "training"):
            assert getattr(old, key) == getattr(new, key)
        assert new.process_group is group
    assert model["several"][0] is model["several"][2]
    assert type(model["group"]) is torch.nn.GroupNorm
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        assert tensor is tensors.pop(name)
    assert not tensors
    model.load_state_dict(state, strict=True)
    build_model().load_state_dict(model.state_dict(), strict=True)


def test_batch_norm_alone():
    bn, group = torch.nn.BatchNorm1d(OUT), object()
    first = convert(bn, group)
    assert type(first) is SyncBatchNorm and first.weight is bn.weight
    assert convert(first).process_group is group  # kept where none is given
    plain = torch.nn.SyncBatchNorm(OUT, process_group=group)
    assert SyncBatchNorm.from_eager(plain).process_group is group
    assert "cutlass_fused.SyncBatchNorm(20, eps=1e-05" in repr(first)


def test_what_is_refused_leaves_the_model_as_it_is():
    class Other(torch.nn.BatchNorm1d):
        def forward(self, input):
            return super().forward(input) + 1

    hooked = torch.nn.BatchNorm1d(OUT)
    hooked.register_forward_hook(lambda *_: None)
    computed = torch.nn.BatchNorm1d(OUT)
    torch.nn.utils.parametrize.register_parametrization(computed, "weight", torch.nn.Identity())
    for bn, said in (
        (Other(OUT), "with the forward of that class"),
        (hooked, "must have no hooks"),
        (computed, "weight of bn must be a torch.nn.Parameter"),
    ):
        model = torch.nn.Sequential(torch.nn.BatchNorm1d(OUT), bn)
        with pytest.raises(TypeError, match=f"SyncBatchNorm: .*{said}"):
            convert(model)
        assert type(model[0]) is torch.nn.BatchNorm1d and model[1] is bn
    with pytest.raises(TypeError, match=r"bn must be a torch\.nn\.BatchNorm1d, got Linear"):
        SyncBatchNorm.from_eager(torch.nn.Linear(3, 4))


@pytest.mark.parametrize("training", [True, False])
@fused
def test_one_process_has_the_fused_call(pair, training):
    """Without a process group nobody shares statistics."""
    plain, ours = (model.train(training) for model in pair.build())
    x = pair.draw(6)
    ours = convert(ours)
    with torch.no_grad(), RecordOps() as record:
        torch.testing.assert_close(ours(x), plain(x), rtol=1e-4, atol=1e-5)
    assert len(record.calls) == 1
    for key, value in plain.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[key], value)


def test_kinds_of_input():
    """Matrices are its own, on the CPU also of float64; all else is PyTorch's."""
    ours, plain = SyncBatchNorm(OUT), torch.nn.BatchNorm1d(OUT)
    for dtype in (torch.float32, torch.float64):
        ours, plain = ours.to(dtype), plain.to(dtype)
        x = torch.randn(5, OUT, dtype=dtype)
        torch.testing.assert_close(ours(x), plain(x), rtol=1e-4, atol=1e-5)
    x = torch.randn(5, OUT, 3, dtype=torch.float64)
    torch.testing.assert_close(ours.eval()(x), plain.eval()(x))
    with pytest.raises(ValueError, match="at least 2D"):
        ours(torch.randn(OUT))


def test_traced_by_fx_as_a_leaf():
    model = torch.nn.Sequential(SyncBatchNorm(OUT))
    traced = torch.fx.symbolic_trace(model)
    assert [node.op for node in traced.graph.nodes] == ["placeholder", "call_module", "output"]


def test_no_script():
    with pytest.raises(Exception, match="SyncBatchNorm"):
        torch.jit.script(SyncBatchNorm(OUT))
