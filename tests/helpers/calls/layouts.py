"""Layouts: the same numbers as views of other strides and offsets, lying among NaN."""

from __future__ import annotations

import itertools

import torch

# ---- vectors ----


def make_vector(kind: str, values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor | None:
    """(N,) values as a vector of this kind; `dtype` is that of x. Views lie among NaN."""
    if kind == "none":
        return None
    n, own = len(values), values.to(dtype)
    if kind == "own":
        return own
    if kind == "fp32":
        return values
    if kind == "scalar":
        return own.sum() if n == 0 else own[0].clone()
    if kind == "scalar_fp32":
        return values.sum() if n == 0 else values[0].clone()
    if kind == "one":
        return own[:1].clone() if n else own.new_ones(1)
    if kind == "one_fp32":
        return values[:1].clone() if n else values.new_ones(1)
    if kind == "offset":  # 16-byte reads from the start would fault or read a neighbour
        around = own.new_full((n + 2,), torch.nan)
        around[1:-1] = own
        return around[1:-1]
    if kind == "strided":
        around = own.new_full((n, 3), torch.nan)
        around[:, 1] = own
        return around[:, 1]
    if kind == "expanded":  # one number seen N times, stride 0
        return own[:1].expand(n)
    raise ValueError(kind)


VECTOR_KINDS = ("none", "own", "fp32", "offset", "strided", "expanded")
SCALE_KINDS = (*VECTOR_KINDS, "scalar", "scalar_fp32", "one", "one_fp32")


# ---- layouts of the matrices ----


def _among_nan(matrix, rows, columns, row, column):
    """`matrix` as a view into a larger one whose other elements are NaN, at [row, column]."""
    around = matrix.new_full((rows, columns), torch.nan)
    view = around[row : row + matrix.shape[0], column : column + matrix.shape[1]]
    view.copy_(matrix)
    return view


def widen_rows(matrix):
    """Strided rows, each 16-byte aligned: x[:, :K] of a wider tensor."""
    rows, columns = matrix.shape
    return _among_nan(matrix, rows, columns + 16, 0, 0)


def misalign_rows(matrix):
    """Rows of K + 1 elements: the row stride is not 16-byte aligned."""
    rows, columns = matrix.shape
    return _among_nan(matrix, rows, columns + 1, 0, 0)


def offset_storage(matrix):
    """The first element lies one element behind an aligned address; rows follow densely."""
    around = matrix.new_full((matrix.numel() + 2,), torch.nan)
    view = around[1:-1].view(matrix.shape)
    return view.copy_(matrix)


def cut_block(matrix):
    """A block in the middle of a larger matrix, offset and strided."""
    rows, columns = matrix.shape
    return _among_nan(matrix, rows + 2, columns + 11, 1, 3)


def cut_aligned_block(matrix):
    """Such a block with rows that still start on 16 bytes if those of `matrix` are whole ones."""
    rows, columns = matrix.shape
    return _among_nan(matrix, rows + 2, columns + 16, 1, 8)


def transpose(matrix):
    """Columns are dense instead of rows."""
    return matrix.t().contiguous().t()


# Whether x and weight lie along M and N: of each call, all four ways.
MAJORS = list(itertools.product((False, True), repeat=2))


def name_majors(majors):
    x, weight = ("MN" if along_mn else "K" for along_mn in majors)
    return f"x {x} weight {weight}"


def lay(call, majors):
    """The call with x and weight along M and N, or as they are."""
    x, weight = (
        transpose(matrix) if along_mn else matrix
        for matrix, along_mn in zip((call.x, call.weight), majors, strict=True)
    )
    return call.change(x=x, weight=weight)


def skip_columns(matrix):
    """Every other element of a row: no stride is 1."""
    around = matrix.new_full((matrix.shape[0], matrix.shape[1], 2), torch.nan)
    around[..., 0] = matrix
    return around[..., 0]


def repeat_first_row(matrix):
    """Row stride 0."""
    return matrix[:1].expand(matrix.shape)


def repeat_first_column(matrix):
    """Stride 0 along K."""
    return matrix[:, :1].expand(matrix.shape)


MATRIX_LAYOUTS = (
    widen_rows,
    misalign_rows,
    offset_storage,
    cut_block,
    cut_aligned_block,
    transpose,
    skip_columns,
    repeat_first_row,
    repeat_first_column,
)


def split_rows(x):
    """(M, K) as 3-D."""
    return x.reshape(2, -1, x.shape[1])


def split_rows_twice(x):
    """(M, K) as 4-D."""
    return x.reshape(2, 1, -1, x.shape[1])


def drop_rows(x):
    """(M, K) as 1-D: its first row."""
    return x[0]


def drop_rows_strided(x):
    """1-D with stride 2."""
    return skip_columns(x)[0]


def swap_leading(x):
    """3-D whose leading dimensions are swapped: no single row stride describes it."""
    return x.reshape(2, -1, x.shape[1]).transpose(0, 1)


def cut_batches(x):
    """3-D, rows dense within a batch, a gap between batches."""
    around = x.new_full((2, x.shape[0] // 2 + 3, x.shape[1]), torch.nan)
    view = around[:, : x.shape[0] // 2]
    return view.copy_(x.reshape(view.shape))


def empty_leading(x):
    """3-D with an empty leading dimension."""
    return x.new_empty(3, 0, x.shape[1])


RANK_LAYOUTS = (
    split_rows,
    split_rows_twice,
    drop_rows,
    drop_rows_strided,
    swap_leading,
    cut_batches,
    empty_leading,
)
