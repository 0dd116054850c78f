"""Fixtures of the GPU tests."""

import os

import pytest
import torch

# More than nearly all tests need. A dozen processes with less leave room for the largest tests.
KEPT_BYTES = 6 * 2**30


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


@pytest.fixture(autouse=True)
def give_memory_back():
    """What a large test leaves in PyTorch's cache would be missing in other processes of a run."""
    yield
    if torch.cuda.memory_reserved() > KEPT_BYTES:
        torch.cuda.empty_cache()


@pytest.fixture
def choose_freely(free_the_tile):
    """For tests of the choice itself."""
    torch.ops.cutlass_fused.force_tile("")
