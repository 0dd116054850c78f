"""TorchScript: torch.jit.trace of every module without gradients, a sentence for the rest."""

import copy
import io

import pytest
import torch

from cutlass_fused import nn

IN, OUT = 12, 20
MODULES = {
    "Linear": lambda: nn.Linear(IN, OUT),
    "LinearScaleLeakyReLU": lambda: nn.LinearScaleLeakyReLU(IN, OUT, 2.0, 0.1),
    "LinearScaleBatchNorm1d": lambda: nn.LinearScaleBatchNorm1d(IN, OUT, (OUT,)),
    "LinearBatchNorm1dScaleSoftmax": lambda: nn.LinearBatchNorm1dScaleSoftmax(IN, OUT),
    "BatchNorm1d": lambda: nn.BatchNorm1d(IN),
    "Softmax": lambda: nn.Softmax(-1),
}
each = pytest.mark.parametrize("make", MODULES.values(), ids=MODULES)
# They are announced to be replaced by torch.export.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")


def save_and_load(traced):
    file = io.BytesIO()
    torch.jit.save(traced, file)
    file.seek(0)
    return torch.jit.load(file)


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@each
def test_trace(make, training):
    """Saved, loaded, and run on other numbers of rows; what training updates is updated."""
    module = make().train(training)
    with torch.no_grad():
        loaded = save_and_load(torch.jit.trace(module, (torch.randn(6, IN),)))
        expected = copy.deepcopy(module)  # tracing itself has updated it
        expected.load_state_dict(loaded.state_dict())
        for rows in (9, 2):
            x = torch.randn(rows, IN)
            torch.testing.assert_close(loaded(x), expected(x))
    torch.testing.assert_close(dict(loaded.state_dict()), dict(expected.state_dict()))
    assert "cutlass_fused::" in str(loaded.inlined_graph)


@each
def test_trace_with_gradients(make):
    """A trace has none, and PyTorch would say so by a comparison of two graphs, if at all."""
    module, x = make(), torch.randn(6, IN, requires_grad=True)
    message = r"^cutlass_fused: torch.jit.trace must be called under torch.no_grad\(\)"
    with pytest.raises(RuntimeError, match=message):
        torch.jit.trace(module, (x,))
    module(x).sum().backward()  # tracing has ended


@each
def test_script(make):
    module = make()
    message = f"^{type(module).__name__}: TorchScript must be made by torch.jit.trace"
    for model in (module, torch.nn.Sequential(torch.nn.ReLU(), module)):
        with pytest.raises(NotImplementedError, match=message):
            torch.jit.script(model)
