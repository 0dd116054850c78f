"""python -m cutlass_fused.row_ops: the same as python -m cutlass_fused.epilogues."""

from ..epilogues.__main__ import main

if __name__ == "__main__":
    main()
