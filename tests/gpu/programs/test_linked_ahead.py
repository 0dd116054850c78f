"""Epilogues on a machine without NVRTC: linked ahead of time, or by PyTorch's ops."""

import os
import subprocess
import sys

import pytest
from logged import run_logged

pytestmark = pytest.mark.gpu

MODULE = """\
import torch
from cutlass_fused.programs.epilogue import epilogue

@epilogue
def gated(acc, bias, gate):
    return torch.nn.functional.gelu(acc + bias) * gate

def make(dtype, m=1024, n=1024, k=1024):
    torch.manual_seed(0)
    shapes = {"x": (m, k), "weight": (n, k), "bias": (n,), "gate": (m, n)}
    tensors = {name: torch.randn(shape).cuda().to(dtype) for name, shape in shapes.items()}
    return tensors.pop("x"), tensors.pop("weight"), tensors

def compute(x, weight, bias, gate):
    acc = (x.double() @ weight.double().T).float()
    return (torch.nn.functional.gelu(acc + bias.float()) * gate.float()).to(x.dtype)

def is_close(y, expected):
    return (y - expected).abs().max() <= 2e-2 * expected.abs().max()
"""
SHAPE = "1024x1024x1024"
PRECISIONS = {"bf16": "bfloat16", "fp16": "float16", "ieee": "float32", "tf32": "float32"}


@pytest.fixture
def run(tmp_path):
    """Runs code beside the module above, without a compiler; run.build links."""
    (tmp_path / "tails.py").write_text(MODULE)
    path = os.pathsep.join([str(tmp_path), *sys.path])
    environment = {"CUTLASS_FUSED_CACHE_DIR": str(tmp_path / "out"), "PYTHONPATH": path}

    def execute(code):
        none = {"CUTLASS_FUSED_NVRTC": str(tmp_path / "none")}
        return run_logged(f"import torch, tails\n{code}", **environment, **none)

    def build(*arguments):
        command = [sys.executable, "-m", "cutlass_fused.build_epilogues", "tails:gated", *arguments]
        command += ["--operands", "bias=N,gate=MN", "--out", str(tmp_path / "out")]
        subprocess.run(command, env=os.environ | environment, check=True)

    execute.build = build
    return execute


INFERENCE = """\
x, weight, operands = tails.make(torch.{dtype})
y = tails.gated(x, weight, precision={precision!r}, **operands)
assert tails.is_close(y, tails.compute(x, weight, **operands))
"""
TRAINING = """\
x, weight, operands = tails.make(torch.{dtype})
for each in (x, weight, *operands.values()):
    each.requires_grad_()
y = tails.gated(x, weight, precision={precision!r}, **operands)
y.backward(torch.ones_like(y))
grads = [each.grad for each in (x, weight, *operands.values())]
for each in (x, weight, *operands.values()):
    each.grad = None
expected = tails.compute(x, weight, **operands)
expected.backward(torch.ones_like(y))
assert tails.is_close(y, expected)
for grad, each in zip(grads, (x, weight, *operands.values())):
    assert tails.is_close(grad, each.grad)
"""


def fill(code, precision):
    word = precision if precision in ("ieee", "tf32") else "ieee"
    return code.format(dtype=PRECISIONS[precision], precision=word)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("tiles", [("--shape", SHAPE), ()], ids=["shape", "every tile"])
def test_linked_ahead(run, precision, tiles):
    """By the kernels that were linked, in both passes, without a word of another way."""
    run.build("--precision", precision, "--gradients", *tiles)
    _, log = run(fill(INFERENCE + TRAINING, precision))
    assert not any("a program runs" in line for line in log), log
    assert sum("; program within" in line for line in log) == 2, log


def test_captured(run):
    """What was linked ahead need not run once before."""
    run.build("--precision", "bf16", "--shape", SHAPE)
    _, log = run(
        """\
x, weight, operands = tails.make(torch.bfloat16)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    y = tails.gated(x, weight, **operands)
graph.replay()
assert tails.is_close(y, tails.compute(x, weight, **operands))
"""
    )
    assert len(log) == 1 and "; program within" in log[0], log


@pytest.mark.parametrize("precision", PRECISIONS)
def test_by_pytorch(run, precision):
    """Nothing is linked: each way that fails is told once, and the results are right."""
    _, log = run(fill((INFERENCE + TRAINING) * 2, precision))
    told = [line for line in log if "a program runs" in line]
    assert len(told) == len(set(told)), told
    assert any("runs behind its product, not within: there is no NVRTC" in line for line in told)
    assert any("runs by PyTorch's ops, as it cannot be compiled" in line for line in told)
    assert not any("program within" in line for line in log)


def test_captured_by_pytorch(run):
    """What failed once runs by PyTorch's ops in a graph, too; what did not run is refused."""
    run(
        """\
import pytest
x, weight, operands = tails.make(torch.bfloat16)
graph = torch.cuda.CUDAGraph()
with pytest.raises(RuntimeError, match="or be linked ahead of time by python -m cutlass_fused.bu"):
    with torch.cuda.graph(graph):
        tails.gated(x, weight, **operands)
expected = tails.gated(x, weight, **operands)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    y = tails.gated(x, weight, **operands)
y.zero_()
graph.replay()
assert torch.equal(y, expected)
"""
    )
