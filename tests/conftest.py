"""Fixtures, and what the mark `gpu` means.

Tests marked `gpu` need a CUDA GPU and the compiled library; elsewhere each is skipped, with the
reason.
"""

import gc
import os
import pathlib
import sys

# The CPU tests are many small products: a second thread would only wait for the first, and on a
# machine that is busy with something else it makes them ten times slower. Before torch is imported,
# for what runs here, and for the processes that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch

import cutlass_fused  # noqa: F401  (defines torch.ops.cutlass_fused)
from cutlass_fused import _library
from cutlass_fused.functional._derived import native

# What tests share are plain modules: `from calls import Call` in a test of any folder.
sys.path[:0] = map(str, (pathlib.Path(__file__).parent / "helpers").glob("*/"))

torch.set_num_threads(1)


def reason_to_skip_gpu():
    """Why the tests marked `gpu` cannot run here, or None."""
    if not torch.cuda.is_available():
        return "no CUDA GPU: torch.cuda.is_available() is False"
    if _library.load_error() is not None:
        return f"the compiled library is not loaded: {_library.load_error()}"
    return None


def pytest_collection_modifyitems(items):
    reason = reason_to_skip_gpu()
    if reason is None:
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason=reason))


def pytest_collection_finish():
    """Tests collect garbage, as torch does for some of them, hundreds of times. What is there now
    stays to the end: each would look through a million objects of the tests themselves."""
    gc.collect()
    gc.freeze()


IS_THERE_A_GPU = torch.cuda.is_available()


@pytest.fixture(autouse=True)
def seed():
    if IS_THERE_A_GPU:
        torch.manual_seed(0)
    else:
        # The other would write down for each GPU to come where it was called from, which takes
        # longer than many a test.
        torch.default_generator.manual_seed(0)


@pytest.fixture
def in_python(monkeypatch):
    """Gradients by the torch.autograd.Functions in Python, also where C++ could give them."""
    monkeypatch.setattr(native, "is_served", lambda *_: False)


@pytest.fixture(params=["C++", "Python"])
def language(request, monkeypatch):
    """Who gives the gradients in plain calls: the library of the switch, or, as without it and on a
    GPU, torch.autograd.Functions."""
    if request.param == "Python":
        monkeypatch.setattr(native, "is_served", lambda *_: False)


@pytest.fixture(autouse=True)
def restore_matmul_precision():
    """PyTorch's fp32 matmul setting is global; no test may leave it changed for the next."""
    matmul, word = torch.backends.cuda.matmul, torch.get_float32_matmul_precision()
    everything, cuda = torch.backends.fp32_precision, matmul.fp32_precision
    yield
    # The older setter first: it sets the newer value too, and after a mixture of both PyTorch
    # refuses to read the older one.
    torch.set_float32_matmul_precision(word)
    torch.backends.fp32_precision = everything
    matmul.fp32_precision = cuda
