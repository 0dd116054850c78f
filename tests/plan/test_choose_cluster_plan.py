"""How clusters hold a matrix on chip for a batch norm with one read, on the host."""

import itertools
from typing import NamedTuple

import pytest
from host_program import compile_host_program

H200 = 132
ROWS = (2, 3, 31, 256, 1000, 1024, 2048, 8192, 16384, 53000, 56000, 10**6, 2**40)
COLUMNS = (1, 8, 64, 1001, 4096, 8192, 131072, 2**30)


class Plan(NamedTuple):
    blocks: int
    aligned: bool
    group_bytes: int
    pieces: int
    rows_per_block: int
    shared_bytes: int


@pytest.fixture(scope="module")
def choose(tmp_path_factory):
    """choose([(rows, columns, ld, offset, element bytes, code, SMs)]) -> [Plan]"""
    run = compile_host_program("choose_cluster_plan", tmp_path_factory.mktemp("plan"))

    def choose(cases):
        lines = run([" ".join(map(str, case)) for case in cases])
        return [Plan(*map(int, line.split())) for line in lines]

    return choose


def list_cases(code=90):
    return [
        (rows, columns, columns, 0, size, code, sms)
        for rows, columns, size, sms in itertools.product(ROWS, COLUMNS, (2, 4), (1, 14, H200))
    ]


def test_every_row_has_room(choose):
    cases = list_cases()
    served = 0
    for (rows, columns, _, _, size, *_), plan in zip(cases, choose(cases), strict=True):
        if plan.blocks == 0:
            continue
        served += 1
        assert plan.blocks in (1, 2, 4, 8)
        assert plan.blocks * plan.rows_per_block >= rows
        assert bool(plan.aligned) == (columns * size % 16 == 0)
        # So many of 256 threads as cover a group's columns lie side by side, the others below.
        at_once = 256 * 16 // plan.group_bytes if plan.aligned else 256 // 32
        if plan.pieces > 0:
            assert plan.shared_bytes == 0 and plan.pieces * at_once >= plan.rows_per_block
        else:
            assert plan.shared_bytes >= plan.rows_per_block * plan.group_bytes
            assert plan.shared_bytes <= 207 * 1024
        # Over 32 MiB only what is faster than two kernels that read twice.
        if rows * columns * size > 2**25:
            assert plan.group_bytes > 32 and plan.shared_bytes <= 227 * 1024 // 2
    assert served > len(cases) // 3


def test_what_is_served(choose):
    """Not what is too tall for eight blocks, and no GPU without clusters."""
    served = choose([(52000, 64, 64, 0, 2, 90, H200), (2, 1, 1, 0, 4, 90, 1)])
    assert all(plan.blocks > 0 for plan in served)
    too_tall = choose([(56000, 64, 64, 0, 2, 90, H200), (2**33, 8, 8, 0, 2, 90, H200)])
    assert all(plan.blocks == 0 for plan in too_tall)
    # Columns that fit only in narrow groups, or one block to an SM, of more than 32 MiB.
    too_large = choose([(16384, n, n, 0, 4, 90, H200) for n in (1024, 4096, 131072)])
    assert all(plan.blocks == 0 for plan in too_large)
    assert all(plan.blocks == 0 for plan in choose(list_cases(code=80)))
    assert choose([(1, 64, 64, 0, 4, 90, H200)])[0].blocks == 0


@pytest.mark.parametrize(
    ("columns", "ld", "offset", "aligned"),
    [(64, 64, 0, 1), (64, 72, 0, 1), (64, 65, 0, 0), (64, 64, 2, 0), (60, 64, 0, 0)],
)
def test_alignment(choose, columns, ld, offset, aligned):
    """Every row of x must be aligned, and of y, which is contiguous."""
    (plan,) = choose([(1000, columns, ld, offset, 2, 90, H200)])
    assert plan.blocks > 0 and plan.aligned == aligned


def test_measured_shapes(choose):
    """What was fastest on an H200, or within a few percent of it, in bf16 and fp32."""
    found = choose(
        [(m, n, n, 0, 2, 90, H200) for m, n in ((16384, 512), (1024, 8192), (1000, 1001))]
        + [(m, n, n, 0, 4, 90, H200) for m, n in ((4096, 4096), (8192, 8192), (256, 131072))]
    )
    assert [(plan.blocks, plan.group_bytes, plan.pieces) for plan in found] == [
        (8, 32, 0),
        (1, 64, 0),
        (8, 64, 16),
        (8, 128, 0),
        (8, 64, 0),
        (1, 256, 0),
    ]
