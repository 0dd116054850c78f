"""python -m cutlass_fused.epilogues: writes what C++ reads of the descriptions, in a checkout.

The lines of schemas.txt, and src/ops/<op>.cpp of each op that has none; those of
cutlass_fused.row_ops too.
"""

import pathlib
import sys

from ..row_ops import ROW_OPS
from ..row_ops._op_file import make_op_file as make_row_op_file
from . import EPILOGUES
from ._op_file import make_op_file
from ._schema import make_schema

_PACKAGE = pathlib.Path(__file__).parents[1]
_OPS = _PACKAGE.parent / "src/ops"


def write_schemas(path: pathlib.Path) -> None:
    """Each line that is there stays where it is; new ones come last."""
    lines = path.read_text(encoding="utf-8").splitlines()
    derived = {op: make_schema(each) for op, each in (EPILOGUES | ROW_OPS).items()}
    lines = [derived.pop(line.partition("(")[0], line) for line in lines]
    path.write_text("\n".join([*lines, *derived.values()]) + "\n", encoding="utf-8")


def write_op_files(folder: pathlib.Path) -> None:
    texts = {op: make_op_file(epilogue) for op, epilogue in EPILOGUES.items()}
    texts |= {op: make_row_op_file(row_op) for op, row_op in ROW_OPS.items()}
    for op, text in texts.items():
        path = folder / f"{op}.cpp"
        if not path.exists():
            path.write_text(text, encoding="utf-8")


def main() -> None:
    if not _OPS.is_dir():
        sys.exit(f"cutlass_fused.epilogues: the package must be in a checkout, got {_PACKAGE}")
    write_schemas(_PACKAGE / "schemas.txt")
    write_op_files(_OPS)


if __name__ == "__main__":
    main()
