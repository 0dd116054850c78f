"""Epilogues whose calls wait for no link: first behind the product, then within it."""

import pytest
from logged import run_logged

pytestmark = pytest.mark.gpu

SETUP = """\
import time
import torch
import cutlass_fused

@cutlass_fused.epilogue(asynchronous=True)
def tail(acc, bias, gate):
    return torch.sin(acc + bias) * gate.sigmoid() + torch.cos(acc)

def make(dtype, m=1024, n=1024, k=1024, **options):
    torch.manual_seed(0)
    shapes = ((m, k), (n, k), (n,), (m, n))
    return [(torch.randn(*shape, device="cuda") / 8).to(dtype).requires_grad_(**options)
            for shape in shapes]

def compute(x, weight, bias, gate):
    acc = x.double() @ weight.double().T
    return torch.sin(acc + bias.double()) * gate.double().sigmoid() + torch.cos(acc)

def call(x, weight, bias, gate):
    return tail(x, weight, bias=bias, gate=gate, precision=precision)

def check(y, *tensors):
    expected = compute(*tensors)
    assert (y - expected).abs().max() <= 2e-2 * expected.abs().max()
"""
PRECISIONS = {"bf16": "bfloat16", "fp16": "float16", "ieee": "float32", "tf32": "float32"}


@pytest.fixture
def run(tmp_path):
    def execute(code, precision="bf16", **environment):
        word = precision if precision in ("ieee", "tf32") else "ieee"
        values = f"dtype, precision = torch.{PRECISIONS[precision]}, {word!r}\n"
        folder = {"CUTLASS_FUSED_CACHE_DIR": str(tmp_path / "cache")}
        return run_logged(SETUP + values + code, **folder, **environment)[1]

    return execute


LATER = """\
import sys
tensors = make(dtype, requires_grad=False)
start = time.monotonic()
while time.monotonic() - start < 8:
    check(call(*tensors), *tensors)
    torch.cuda.synchronize()
    sys.stderr.write("--\\n")
    sys.stderr.flush()
    time.sleep(0.25)
"""


@pytest.mark.parametrize("precision", PRECISIONS)
def test_later_linked(run, precision):
    """The first call runs by PyTorch's ops, and none waits; the last ones within the product."""
    log = run(LATER, precision)
    first, last = log[: log.index("--")], log[-2]
    assert not any("program within" in line for line in first), log
    assert "program within" in last, log
    assert not any("a program runs" in line for line in log), log


def test_next_process(run):
    """What is on disk is linked at once."""
    run(LATER)
    log = run("tensors = make(dtype, requires_grad=False)\ncheck(call(*tensors), *tensors)\n")
    assert len(log) == 1 and "program within" in log[0], log


TRAINING = """\
tensors = make(dtype, requires_grad=True)
for wait in (0, 8):
    time.sleep(wait)
    for each in tensors:
        each.grad = None
    call(*tensors).backward(torch.ones(1024, 1024, device="cuda", dtype=dtype))
    grads = [each.grad for each in tensors]
    exact = torch.autograd.grad(compute(*tensors).sum(), tensors)
    for grad, each in zip(grads, exact):
        assert (grad - each).abs().max() <= 4e-2 * each.abs().max()
"""


@pytest.mark.parametrize("precision", PRECISIONS)
def test_training(run, precision):
    """Both passes, before and behind the links."""
    log = run(TRAINING, precision)
    assert any("program within" in line for line in log), log


ROWS = """\
@cutlass_fused.epilogue(asynchronous=True)
def tail(acc, bias, gate):
    return torch.softmax(acc + bias, dim=1) * gate * 1000.0

def compute(x, weight, bias, gate):
    acc = x.double() @ weight.double().T
    return torch.softmax(acc + bias.double(), dim=1) * gate.double() * 1000.0
"""


PROFILED = """\
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
    call(*tensors).backward(torch.ones(1024, 1024, device="cuda", dtype=dtype))
    torch.cuda.synchronize()
names = [each.name for each in profile.events()]
assert sum("cutlass_fused_rows" in name for name in names) >= 2, names
"""


@pytest.mark.parametrize("precision", PRECISIONS)
def test_training_of_rows(run, precision):
    """The same of kernels of rows, one for each pass."""
    run(ROWS + TRAINING + PROFILED, precision)


CAPTURED = """\
tensors = make(dtype, requires_grad=False)
call(*tensors)  # begins the link
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    y = call(*tensors)
y.zero_()
graph.replay()
check(y, *tensors)
"""


@pytest.mark.parametrize("precision", PRECISIONS)
def test_captured(run, precision):
    """A capture waits for the link that has begun, which loads its code meanwhile."""
    log = run(CAPTURED, precision)
    assert "program within" in log[-1], log


def test_nothing_begins_in_a_capture(run):
    run(
        """\
tensors = make(dtype, requires_grad=False)
graph = torch.cuda.CUDAGraph()
try:
    with torch.cuda.graph(graph):
        call(*tensors)
except RuntimeError as error:
    assert "must run once before a graph is captured" in str(error)
else:
    raise AssertionError("captured")
"""
    )


def test_failed(run, tmp_path):
    """Told once, from the other thread or from here; every result is right."""
    log = run(LATER, CUTLASS_FUSED_NVRTC=str(tmp_path / "none"))
    told = [line for line in log if "a program runs" in line]
    assert told and len(told) == len(set(told)), log


def test_ends_meanwhile(run):
    """A process that ends while a kernel is linked ends as any."""
    run("call(*make(dtype, requires_grad=False))\n")
