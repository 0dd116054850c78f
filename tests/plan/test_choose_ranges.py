"""How a matrix is cut into ranges of rows, on the host."""

import itertools

import pytest
from host_program import compile_host_program

H200 = 132
# One row and the least range, around each limit, the models' M, past 2^31 and past 65535 * 512.
ROWS = (1, 2, 31, 32, 33, 511, 512, 513, 1024, 16384, 65535, 65536, 65535 * 512)
ROWS += (65535 * 512 + 1, 2**31 - 1, 2**31, 2**31 + 1, 2**40)
# One column, a block of them and one more, those of the models, the most there are.
COLUMNS = (1, 255, 256, 257, 511, 512, 513, 4096, 8192, 2**30)
SMS = (1, 14, H200)


@pytest.fixture(scope="module")
def choose(tmp_path_factory):
    """choose([(rows, columns, element bytes, SMs)]) -> [(count, rows per range, bytes)]"""
    run = compile_host_program("choose_ranges", tmp_path_factory.mktemp("choose_ranges"))

    def choose(cases):
        lines = run([" ".join(map(str, case)) for case in cases])
        return [tuple(map(int, line.split())) for line in lines]

    return choose


def test_every_row_is_in_one_range(choose):
    """And a range is never empty: its count divides its sums."""
    cases = list(itertools.product(ROWS, COLUMNS, (2, 4), SMS))
    for (rows, *_), (count, length, _) in zip(cases, choose(cases), strict=True):
        assert count >= 1 and length >= 1
        assert (count - 1) * length < rows <= count * length, (rows, count, length)


def test_limits(choose):
    """A grid has at most 65535 blocks along y. Below that no range is longer than 512 rows."""
    cases = list(itertools.product(ROWS, COLUMNS, (2, 4), SMS))
    for (rows, *_), (count, length, _) in zip(cases, choose(cases), strict=True):
        assert count <= 65535
        assert length >= 32
        assert length <= max(512, -(-rows // 65535))


def test_bytes(choose):
    """A mean and an M2 in fp32 for each range and column, also past 2^31 bytes."""
    cases = list(itertools.product(ROWS, COLUMNS, (2, 4), SMS))
    chosen = choose(cases)
    for (_, columns, *_), (count, _, size) in zip(cases, chosen, strict=True):
        assert size == count * columns * 8
    assert max(size for *_, size in chosen) > 2**31


@pytest.mark.parametrize("element_bytes", [2, 4])
def test_blocks_are_as_many_as_the_gpu_holds(choose, element_bytes):
    """Four to an SM. Their columns take 1024 bytes; the limits above are far from these."""
    rows, columns = 16384, 1024
    for sms in (33, 66, H200):
        ((count, length, _),) = choose([(rows, columns, element_bytes, sms)])
        wanted = 4 * sms * 1024 // (columns * element_bytes)
        assert wanted * 0.9 < count <= wanted
        assert 32 < length < 512
