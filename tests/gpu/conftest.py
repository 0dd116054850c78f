"""Fixtures of the GPU tests."""

import pytest
import torch


@pytest.fixture
def device():
    return torch.device("cuda", 0)


@pytest.fixture(autouse=True)
def free_the_tile():
    """A tile that a test forces must not stay forced for the next one, also if the test fails."""
    yield
    torch.ops.cutlass_fused.force_tile("")
