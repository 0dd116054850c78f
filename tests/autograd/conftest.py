"""What tests of derivatives run through."""

import pytest

from cutlass_fused.functional import _product


@pytest.fixture(params=["PyTorch", "kernels"])
def products(request, monkeypatch):
    """Who multiplies where derivatives are taken: PyTorch, as it does of float64, or the ops, as of
    float32 on a GPU, here with float64."""
    if request.param == "kernels":
        monkeypatch.setattr(_product, "_has_kernel", lambda a: True)


@pytest.fixture(autouse=True)
def both_languages(language):
    pass
