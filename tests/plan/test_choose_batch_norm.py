"""Which kernel finds the statistics behind a product: tests/host/choose_batch_norm.cpp."""

import itertools

import pytest
from host_program import compile_host_program

MATHS_16_BIT, MATHS_FP32 = ("Bf16", "F16"), ("Fp16x3", "Fp16x1")
MODEL_33, MODEL_39 = (1024, 8192, 8192), (16384, 4096, 4096)


@pytest.fixture(scope="module")
def choose(tmp_path_factory):
    """choose(math, m, n, k) -> "separate", "statistics", "strips" or "group", or the tile of an
    SM80 kernel that finds statistics; on an H200 unless told otherwise"""
    run = compile_host_program("choose_batch_norm", tmp_path_factory.mktemp("choose_batch_norm"))

    def choose(math, m, n, k, *, keep_z=False, code=90, sms=132):
        (name,) = run([f"{math} {m} {n} {k} {int(keep_z)} {code} {sms}"])
        return name

    return choose


@pytest.mark.parametrize("math", MATHS_16_BIT)
def test_models_in_16_bits(choose, math):
    assert choose(math, *MODEL_33) == "group"
    assert choose(math, *MODEL_33, keep_z=True) == "statistics"
    assert choose(math, *MODEL_39) == choose(math, *MODEL_39, keep_z=True) == "strips"


def test_a_result_of_several_waves_is_normalized_in_strips(choose):
    """From 32 MiB on."""
    assert choose("Bf16", 4096, 4096, 4096) == "strips"
    assert choose("Bf16", 4096, 4088, 4096) == "statistics"


@pytest.mark.parametrize("shape", [(16384, 2304), (65536, 1024), (8193, 2056), (33000, 2040)])
def test_panels_of_strips_hold_hardly_any_empty_tiles(choose, shape):
    """Each takes as long as a full one; and of a single panel nothing is left to overlap."""
    assert choose("Bf16", *shape, 4096) == "statistics"


@pytest.mark.parametrize("math", MATHS_16_BIT)
def test_shapes_that_are_tested_in_strips(choose, math):
    """tests/gpu/statistics/test_strips.py"""
    shapes = [(16384, 4096), (16129, 2040), (32700, 1912), (4090, 8184), (2040, 16376)]
    for (m, n), k in zip(shapes, (64, 64, 264, 264, 264), strict=True):
        assert choose(math, m, n, k) == "strips", (m, n, k)
    assert choose(math, 16129, 2040, 1032) == choose(math, 16384, 4096, 512) == "strips"


@pytest.mark.parametrize("math", MATHS_16_BIT)
def test_shapes_that_are_tested_in_groups(choose, math):
    """tests/gpu/statistics/test_product_statistics.py and test_launch_order.py"""
    shapes = [(1000, 1032, 72), (1000, 4104, 264), (1000, 1032, 264), (1000, 264, 40)]
    for shape in (*shapes, (96, 264, 264), (1000, 520, 520)):
        assert choose(math, *shape) == "group", shape


@pytest.mark.parametrize("math", [*MATHS_16_BIT, *MATHS_FP32])
def test_shapes_that_are_tested_with_distant_means(choose, math):
    """tests/gpu/statistics/test_product_statistics.py"""
    assert choose(math, 16384, 264, 16) == "statistics"
    assert choose(math, 16384, 2048, 16) == ("strips" if math in MATHS_16_BIT else "statistics")


@pytest.mark.parametrize("shape", [MODEL_33, MODEL_39])
@pytest.mark.parametrize("math", MATHS_FP32)
def test_models_in_fp32(choose, math, shape):
    """Elements that may have to be repaired cannot be normalized before."""
    assert choose(math, *shape) == "statistics"


def test_models_on_an_a100(choose):
    """Model 33 takes stream-K in 16 bits, which leaves no SM idle, and a pass over z more."""
    for math in (*MATHS_16_BIT, "Fp16x1"):
        assert choose(math, *MODEL_39, code=80, sms=108) == "128x256x64B"
        assert choose(math, *MODEL_33, code=80, sms=108) == "separate"
        assert choose(math, *MODEL_33, code=80, sms=128) == "128x256x64B"
    for shape in (MODEL_33, MODEL_39):
        assert choose("Fp16x3", *shape, code=80, sms=108) == "128x128x128B"


def test_small_products_of_sm80_find_no_statistics(choose):
    assert choose("Bf16", 64, 8192, 8192, code=80, sms=108) == "separate"
    assert choose("Bf16", 4096, 120, 64, code=80, sms=108) == "separate"


def test_another_gpu_of_sm90_code_has_separate_statistics(choose):
    for math in (*MATHS_16_BIT, *MATHS_FP32):
        assert choose(math, *MODEL_33, code=100) == "separate"


@pytest.mark.parametrize("shape", [(1024, 8192, 8190), (1024, 8190, 8192), (1024, 8192, 0)])
def test_what_tma_cannot_read_or_write(choose, shape):
    assert choose("Bf16", *shape) == "separate"


def test_few_rows_of_a_long_product_take_their_own_tile(choose):
    """A tile of 256 rows would compute 15 times as many as there are, for longer than two passes
    over a small z take."""
    for math in (*MATHS_16_BIT, *MATHS_FP32):
        assert choose(math, 16, 8192, 8192) == "separate"


def test_a_small_result_is_read_again(choose):
    """Where launches take longer than passes over it: up to 1 MiB."""
    for math in MATHS_FP32:
        assert choose(math, 512, 504, 256) == "separate"
    assert choose("Bf16", 512, 504, 256, keep_z=True) == "separate"
    assert choose("Fp16x3", 1024, 1024, 256) == "statistics"


def test_blocks_that_wait_for_each_other_all_run(choose):
    """512 rows to a cluster of two SMs, two of which may wait for each other; and more clusters run
    at once than launches."""
    assert choose("Bf16", 1024, 8192, 2048) == choose("Bf16", 512, 8192, 2048) == "group"
    assert choose("Bf16", 1032, 8192, 2048) != "group"
    assert choose("Bf16", 1024, 2048, 1024, sms=68) == "group"
    assert choose("Bf16", 1024, 2048, 1024, sms=66) != "group"


def test_x_stays_in_the_cache(choose):
    """24 MiB of it: else each wave of blocks would read it from memory again."""
    assert choose("Bf16", 1024, 8192, 12288) == "group"
    assert choose("Bf16", 1024, 8192, 12296) != "group"


def test_sizes_do_not_overflow(choose):
    sizes = (2, 1024, 2**20, 2**31 - 8)
    for math, m, n, k in itertools.product(("Bf16", "Fp16x3"), sizes, sizes, sizes):
        if m * n <= 2**44 and m * k <= 2**44 and n * k <= 2**44:
            assert choose(math, m, n, k) in ("separate", "statistics", "strips", "group")
