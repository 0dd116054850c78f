"""What is changed in graphs on a GPU is changed on the CPU here, and nothing comes from a cache."""

import pytest
import torch

from cutlass_fused.graphs import _kept, _products


@pytest.fixture
def on_cpu(monkeypatch):
    monkeypatch.setattr(_products, "DEVICES", {"cpu"})
    monkeypatch.setattr(_kept, "DEVICES", {"cpu"})
    monkeypatch.setattr(_kept, "LEAST", 1)


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    with torch._inductor.config.patch(
        force_disable_caches=True, cpp_cache_precompile_headers=False
    ):
        yield
    torch._dynamo.reset()
