"""What the pass changes in graphs on a GPU it changes on the CPU here, small products too."""

import pytest

from cutlass_fused.graphs.epilogues import _fuse, _worth


@pytest.fixture
def fused_on_cpu(on_cpu, monkeypatch):
    monkeypatch.setattr(_fuse, "DEVICES", {"cpu"})
    monkeypatch.setattr(_worth, "LEAST_ROWS", 2)
    monkeypatch.setattr(_worth, "LEAST_WORK", 1)
    monkeypatch.setattr(_worth, "LEAST_SIDE_16", 1)
    monkeypatch.setattr(_worth, "LEAST_WEIGHT", 1)
