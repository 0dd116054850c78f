"""Common epilogues without NVRTC and with nothing on disk, by kernels that came with the library;
and where the plan's tile is not among them, by another."""

import textwrap

import pytest
import torch
from logged import run_logged

import cutlass_fused

pytestmark = pytest.mark.gpu

# Tiles are linked for Hopper alone; with other GPUs a build has those of its own architectures.
SETUP = """\
import torch
import cutlass_fused
from torch.nn import functional as F

def make(dtype, m, n, k):
    torch.manual_seed(0)
    x, weight, bias = torch.randn(m, k), torch.randn(n, k) / k**0.5, torch.randn(n)
    return [each.cuda().to(dtype) for each in (x, weight, bias)]

ACTIVATIONS = {
    "identity": lambda z: z, "relu": F.relu, "leaky_relu": F.leaky_relu, "gelu": F.gelu,
    "gelu_tanh": lambda z: F.gelu(z, approximate="tanh"), "silu": F.silu,
    "sigmoid": torch.sigmoid, "tanh": torch.tanh, "hardtanh": F.hardtanh,
    "hardswish": F.hardswish, "mish": F.mish, "softplus": F.softplus, "elu": F.elu,
}

def check(y, activation, x, weight, bias):
    expected = activation(x.double() @ weight.double().T + bias.double())
    tolerance = 2e-2 if x.dtype != torch.float32 else 2e-3
    assert (y - expected).abs().max() <= tolerance * expected.abs().max()
"""
PRECISIONS = {"bf16": "bfloat16", "fp16": "float16", "ieee": "float32", "tf32": "float32"}


@pytest.fixture(autouse=True)
def needs_pack():
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("kernels that came with the library are those of 9.0")
    if "no kernel came with the library" in cutlass_fused.show_config():
        pytest.skip("the library was built without NVRTC")


@pytest.fixture
def run(tmp_path):
    none = {"CUTLASS_FUSED_NVRTC": str(tmp_path / "none")}
    none["CUTLASS_FUSED_CACHE_DIR"] = str(tmp_path / "cache")

    def execute(code, precision):
        word = precision if precision in ("ieee", "tf32") else "ieee"
        values = f"dtype, precision = torch.{PRECISIONS[precision]}, {word!r}\n"
        return run_logged(SETUP + values + code, **none)[1]

    return execute


ALL = """\
x, weight, bias = make(dtype, 1024, 1024, 1024)
for name, activation in ACTIVATIONS.items():
    y = cutlass_fused.functional.linear_epilogue(x, weight, name, bias=bias, precision=precision)
    check(y, activation, x, weight, bias)
"""


@pytest.mark.parametrize("precision", PRECISIONS)
def test_all(run, precision):
    """Each runs within its product."""
    log = run(ALL, precision)
    assert sum("; program within" in line for line in log) == 13, log
    assert not any("PyTorch" in line or "behind" in line for line in log), log


OTHER = """\
for m, n, k in {sizes}:
    x, weight, bias = make(dtype, m, n, k)
    for _ in range(2):
        y = cutlass_fused.functional.linear_epilogue(x, weight, "silu", bias=bias,
                                                     precision=precision)
        check(y, F.silu, x, weight, bias)
"""


@pytest.mark.parametrize("precision", PRECISIONS)
def test_other_tile(run, precision):
    """Of sizes whose own tile is not there: few rows, and rows of y that are no whole pieces."""
    sizes = [(48, 4096, 4096), (300, 4096, 4096), (2048, 2048, 2048), (1000, 1024, 1032)]
    log = run(OTHER.format(sizes=sizes), precision)
    ours = [line for line in log if "linear_epilogue M=" in line and ": cublas" not in line]
    assert len(ours) >= 4 and all("; program within" in line for line in ours), log
    told = [line for line in log if "another tile than the fastest: there is no NVRTC" in line]
    assert len(told) <= 1, log
    assert not any("runs behind its product" in line for line in log), log


CAPTURED = """\
x, weight, bias = make(dtype, 2048, 2048, 2048)
cutlass_fused.functional.linear(x, weight, precision=precision)  # cuBLAS, memory, splits
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    y = cutlass_fused.functional.linear_epilogue(x, weight, "gelu", bias=bias, precision=precision)
y.zero_()
graph.replay()
check(y, F.gelu, x, weight, bias)
"""


@pytest.mark.parametrize("precision", PRECISIONS)
def test_captured(run, precision):
    """Nothing has run before, and nothing is linked in the capture."""
    log = run(CAPTURED, precision)
    assert any("; program within" in line for line in log), log


NOT_THERE = """\
x, weight, bias = make(dtype, 1024, 1024, 1024)
own = cutlass_fused.epilogue(lambda acc, bias: torch.sin(acc + bias))
graph = torch.cuda.CUDAGraph()
try:
    with torch.cuda.graph(graph):
        own(x, weight, bias=bias, precision=precision)
except RuntimeError as error:
    assert "linked ahead of time by python -m cutlass_fused.build_epilogues" in str(error)
else:
    raise AssertionError("captured")
"""


def test_not_there(run):
    """A program that is not common is refused in a capture, as ever."""
    run(NOT_THERE, "bf16")


def test_forced_tile(run):
    """A tile that is forced runs itself, or nothing within the product."""
    code = "torch.ops.cutlass_fused.force_tile('256x192x128B/2x1.cooperative.swapped')\n"
    # It writes no fp32, as a product does that has its program behind it.
    code += f"try:\n{textwrap.indent(ALL, '    ')}except RuntimeError as error:\n"
    code += "    assert 'the forced tile must be one' in str(error)\n"
    log = run(code, "bf16")
    assert not any("another tile" in line for line in log), log
