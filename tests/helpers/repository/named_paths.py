"""Names of files and folders in the documents, and those that need not be there."""

import re

from documents import list_files, remove_blocks

from build_system.paths import ROOT

# Files that the recipes tell to write, and places that are filled by who builds or measures.
TO_WRITE = {"include/cutlass_fused/epilogue/prelu.hpp", "src/ops/linear_prelu.cpp"}
TO_WRITE |= {"cutlass_fused/epilogues/linear_prelu.py", "cutlass_fused/nn/linear_prelu.py"}
TO_WRITE |= {"tests/epilogues/test_linear_prelu.py"}
TO_WRITE |= {"include/cutlass_fused/norm/rms_norm.hpp", "src/ops/rms_norm.cpp"}
TO_WRITE |= {"include/cutlass_fused/norm/run_rms_norm.cuh", "cutlass_fused/row_ops/rms_norm.py"}
TO_WRITE |= {"cutlass_fused/nn/rms_norm.py", "tests/row_ops/test_rms_norm.py"}
PLACES = {"third_party/cutlass", "build/bench", "build/trust", "cutlass_library/source"}
PLACES |= {"include/cutlass/version.h", "LICENSE.txt"}  # in a checkout of CUTLASS
PLACES |= {"build/gpu0", "build/gpu1"}  # folders of results
FILES = [str(path.relative_to(ROOT)) for path in list_files("*.*")]
FILE_NAME = r"(?:[\w-]+/)*[\w-]+\.(?:py|hpp|cuh|cpp|cu|h|md|txt|toml|so)"


def list_paths(text):
    """Names of files and folders, outside of the examples, links and addresses."""
    text = re.sub(r"\]\([^)]+\)|https?://[^\s)]+", "", remove_blocks(text))
    return set(re.findall(rf"(?<![\w./-])({FILE_NAME}|[\w-]+/[\w/-]*)(?![\w*.-]*[\w*])", text))
