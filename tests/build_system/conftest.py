"""Tools that no machine has to have."""

from pathlib import Path

import pytest

from build_system import flags
from build_system.architectures import parse_architectures
from build_system.cuda_toolkit import CudaToolkit
from build_system.cutlass_headers import CutlassHeaders
from build_system.torch_library import TorchLibrary


@pytest.fixture
def tools():
    """Made-up tools, one with a space in its path."""
    return flags.Tools(
        CudaToolkit(
            Path("/cuda/bin/nvcc"), Path("/cuda/include"), Path("/cuda/lib/libcudart.a"), (13, 0)
        ),
        CutlassHeaders(Path("/my cutlass/include"), Path("/util"), "4.2.0"),
        TorchLibrary(Path("/torch/include"), Path("/torch/lib"), "2.11.0"),
        "g++",
        parse_architectures("8.0;9.0a"),
    )
