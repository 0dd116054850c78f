"""What only packages need: isolated builds, metadata, and tags."""

import os

VARIABLE = "CUTLASS_FUSED_MANYLINUX"


def is_for_other_machines() -> bool:
    """`make wheel`: for every GPU of the usual list, on Linux distributions as old as torch's."""
    return os.environ.get(VARIABLE, "") not in ("", "0")
