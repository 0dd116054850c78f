"""Fixtures of the GPU tests."""

import os

import pytest
import torch


@pytest.fixture
def device():
    return torch.device("cuda", 0)


@pytest.fixture(autouse=True)
def free_the_tile():
    """A tile that a test forces must not stay forced for the next one, also if the test fails.

    CUTLASS_FUSED_TEST_TILE=sm80 has the tests that force none run older kernels on a newer GPU.
    """
    tile = os.environ.get("CUTLASS_FUSED_TEST_TILE", "")
    torch.ops.cutlass_fused.force_tile(tile)
    yield
    torch.ops.cutlass_fused.force_tile("")


@pytest.fixture
def choose_freely(free_the_tile):
    """For tests of the choice itself."""
    torch.ops.cutlass_fused.force_tile("")
