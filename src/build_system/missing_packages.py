"""The pip packages that stand in for what a machine that builds does not have.

`python -m build_system.missing_packages` prints pip's arguments, one installation a line.
"""

import os

from . import cuda_toolkit, cutlass_headers


def skip_kernels() -> bool:
    """CUTLASS_FUSED_SKIP_KERNELS=1: install the Python package alone, for the CPU."""
    return os.environ.get("CUTLASS_FUSED_SKIP_KERNELS", "") not in ("", "0")


def missing_packages() -> list[str]:
    if skip_kernels():
        return []
    packages = []
    if cutlass_headers.locate_cutlass() is None:
        packages.append(cutlass_headers.REQUIREMENT)
    if cuda_toolkit.locate_nvcc() is None:
        packages += filter(None, [cuda_toolkit.find_requirement()])
    return packages


if __name__ == "__main__":
    for package in missing_packages():
        # Only CUTLASS's headers are used, not the tools that its dependencies are for.
        options = "--no-deps " if package == cutlass_headers.REQUIREMENT else ""
        print(options + package)
