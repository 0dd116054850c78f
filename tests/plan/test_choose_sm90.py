"""Which SM90 kernel serves a call, if one can, on the host: tests/host/choose_sm90.cpp."""

import itertools
import re

import pytest
from host_program import compile_host_program
from plans import Host, make_call

FP32, FP16, BF16 = range(3)  # DataType in include/cutlass_fused/common/data_type.hpp
# A grid's extent along y, in tiles: of kernels that are not persistent.
MAX_COLUMN_TILES = 65535
INT32_MAX = 2**31 - 1
# Columns of a tile that slices K and has the registers for an fp32 result.
WIDEST_FP32_SLICES = 128
SIZES_OF_MODELS = ((8192, 8192), (4096, 4096), (11008, 4096), (4096, 11008), (28672, 8192))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return compile_host_program("choose_sm90", tmp_path_factory.mktemp("choose_sm90"))


def format_call(
    m, n, k, *, x=256, ldx=None, weight=256, ldw=None, y=256, y_type=BF16, code=90, sms=132
):
    """A product of dense bf16 matrices on an H200, unless told otherwise."""
    ldx, ldw = (k if ld is None else ld for ld in (ldx, ldw))
    return f"choose {m} {n} {k} {x} {ldx} {weight} {ldw} {y} {n} {y_type} {code} {sms}"


@pytest.fixture(scope="module")
def choose(run):
    """choose(m, n, k, ...) -> ("<tile>@<raster>", {tile: cost}), or "none" for the first"""

    def choose(*sizes, **others):
        (line,) = run([format_call(*sizes, **others)])
        choice, *entries = line.split()
        costs = dict(entry.rsplit("=", 1) for entry in entries)
        return choice, {tile: int(cost) for tile, cost in costs.items()}

    return choose


@pytest.fixture(scope="module")
def force(run):
    """force(tile, m, n, k, ...) -> "<tile>@<raster>", "none" or "refused", with that tile forced"""

    def force(tile, *sizes, **others):
        return run([f"force {tile}", format_call(*sizes, **others)])[1].split()[0]

    return force


@pytest.fixture(scope="module")
def tiles(run):
    (line,) = run(["tiles"])
    return line.split()


def slices_k(tile):
    return ".split" in tile


def is_persistent(tile):
    return ".cooperative" in tile or ".pingpong" in tile


def count_columns(tile):
    return int(re.match(r"\d+x(\d+)x", tile)[1])


def count_column_tiles(tile, m, n):
    return -(-(m if ".swapped" in tile else n) // count_columns(tile))


# ---- what can be served ----


def test_tiles_of_every_kind_have_names_of_their_own(tiles):
    assert len(set(tiles)) == len(tiles)
    # Nothing else serves odd N.
    assert [tile for tile in tiles if tile.endswith(".swapped.rows")]
    # Each of the other ways of writing y, with either side along the rows; one alone serves fp32.
    for swapped, direct in itertools.product((False, True), repeat=2):
        assert [
            tile
            for tile in tiles
            if ".rows" not in tile and (".swapped" in tile, ".direct" in tile) == (swapped, direct)
        ]


@pytest.mark.parametrize(
    "change",
    [
        {"code": 80},
        {"k": 0, "ldx": 64, "ldw": 64},
        {"k": 68},
        {"x": 258},
        {"weight": 264},
        {"ldx": 68},
        {"ldw": 65},
        {"ldx": 0},
        {"ldw": 0},
        {"ldx": 2**39},
        {"ldw": 2**39},
        {"m": 2**31, "n": 8},
        {"m": 2**20, "n": 2**24},
    ],
    ids=str,
)
def test_what_tma_or_the_gpu_cannot_do_is_left_to_sm80(run, tiles, change):
    """No SM90 code, no K, rows or addresses that are not whole 16 bytes, rows on top of each other,
    rows 2^40 bytes apart, more than 32 bits count. A forced tile changes nothing."""
    sizes = {"m": 64, "n": 128, "k": 64} | change
    line = format_call(sizes.pop("m"), sizes.pop("n"), sizes.pop("k"), **sizes)
    for forced in ("", *tiles):
        assert run([f"force {forced}", line])[1].split()[0] == "none"


@pytest.mark.parametrize("change", [{"ldx": 67}, {"ldx": 0}, {"ldx": 2**45}], ids=str)
def test_a_single_row_has_no_stride(choose, change):
    assert choose(1, 128, 64, **change)[0] != "none"
    assert choose(2, 128, 64, **change)[0] == "none"


@pytest.mark.parametrize("k", [1, 65, 68])
def test_rows_may_end_anywhere(choose, k):
    assert choose(64, 128, k, ldx=72, ldw=72)[0] != "none"


def test_rows_may_lie_far_apart(choose):
    assert choose(64, 128, 64, ldx=2**39 - 8, ldw=2**39 - 8)[0] != "none"


@pytest.mark.parametrize("shape", [(1, 264, 64), (70, 136, 64), (4096, 8192, 64)], ids=str)
def test_unaligned_or_fp32_results_are_written_directly(choose, force, tiles, shape):
    """TMA writes rows of whole 16 bytes in the inputs' type; tiles of `.rows` any of that type."""
    m, n, k = shape
    for problem, options in (
        ((m, n + 1, k), {}),
        ((m, n + 4, k), {}),
        ((m, n, k), {"y": 264}),
        ((m, n, k), {"y_type": FP32}),
    ):
        choice, costs = choose(*problem, **options)
        words = ["direct"] if options.get("y_type") == FP32 else ["direct", "rows"]
        assert choice.partition("@")[0].rpartition(".")[2] in words
        assert {tile.rpartition(".")[2] for tile in costs} == set(words)
        if options.get("y_type") == FP32:  # registers
            assert not [t for t in costs if slices_k(t) and count_columns(t) > WIDEST_FP32_SLICES]
        for tile in tiles:
            answer = force(tile, *problem, **options)
            if tile in costs:
                assert answer.startswith(f"{tile}@")
            else:
                assert answer == "refused"


def test_what_is_kept_of_a_choice_is_of_the_same_call(run, choose):
    """Choices are kept by shape: many calls in one process are chosen for as each is alone."""
    calls = [
        (sizes, options)
        for sizes in ((16, 4096, 4096), (192, 4096, 11008), (4096, 4096, 4096))
        for options in ({}, {"y_type": FP32}, {"y": 264}, {"sms": 20}, {"y_type": FP32, "sms": 20})
    ]
    lines = [format_call(*sizes, **options) for sizes, options in calls]
    for line, (sizes, options) in zip(run([*lines, *lines]), calls * 2, strict=True):
        assert line.split()[0] == choose(*sizes, **options)[0], (sizes, options)


def test_every_tile_can_be_forced(force, tiles):
    for tile in tiles:
        assert force(tile, 70, 136, 64).startswith(f"{tile}@")
        for raster in ("m1", "m8", "n4", "k1", "k3", "k8"):
            suits = slices_k(tile) == (raster[0] == "k")
            expected = f"{tile}@{raster}" if suits else "refused"
            assert force(f"{tile} {raster}", 70, 136, 64) == expected


def test_a_tile_must_be_able_to_count_to_its_end(force, tiles):
    """Up to the end of the widest panel, in 32 bits: 192 columns divide no power of two."""
    for tile in tiles:
        if not is_persistent(tile) or ".direct" in tile:
            continue
        plain = (8, 2**31 - 8) if ".swapped" not in tile else (2**31 - 8, 8)
        refused = force(tile, *plain, 64) == "refused"
        assert refused == (count_columns(tile) == 192)


def test_sm80_tile_is_left_to_sm80(force):
    assert force("128x256x64B", 64, 128, 64) == "none"


def test_grid_of_one_block_per_tile_has_an_end(choose, force, tiles):
    """Persistent kernels take over behind it."""
    single = [tile for tile in tiles if not is_persistent(tile)]
    assert single
    for tile in tiles:
        width = int(re.match(r"\d+x(\d+)x", tile)[1])
        for extent in (MAX_COLUMN_TILES * width, MAX_COLUMN_TILES * width + 8):
            sizes = (extent, 8, 8) if ".swapped" in tile else (8, extent, 8)
            fits = tile not in single or count_column_tiles(tile, *sizes[:2]) <= MAX_COLUMN_TILES
            assert (force(tile, *sizes) != "refused") == fits
            for y_type in (BF16, FP32):
                choice, costs = choose(*sizes, y_type=y_type)
                assert choice.partition("@")[0] in costs
                for other in set(single) & costs.keys():
                    assert count_column_tiles(other, *sizes[:2]) <= MAX_COLUMN_TILES


# ---- the heuristic ----


# At the ends of what 32 bits count; no operand beyond the 2^47 bytes that a GPU can address.
LARGE = [(INT32_MAX, 8, 2**15), (8, INT32_MAX - 7, 2**15), (2**15, 8, INT32_MAX - 263)]
LARGE += [(2**20, 2**20, 8), (2**20, 2**20, 2**26), (1, 1, INT32_MAX - 263), (1, INT32_MAX, 8)]


@pytest.mark.parametrize("sms", [1, 114, 132])
@pytest.mark.parametrize(
    "shape", [(1, 1, 8), (3, 7, 2**20), (1024, 8192, 8192), (70, 136, 64), *LARGE], ids=str
)
def test_the_cheapest_tile_is_chosen(choose, shape, sms):
    choice, costs = choose(*shape, sms=sms)
    assert all(cost > 0 for cost in costs.values()), "a cost overflowed"
    # Where tiles slice K the estimate holds for two tiles of rows at most.
    sound = [
        cost
        for tile, cost in costs.items()
        if not slices_k(tile) or count_column_tiles(tile, *shape[:2]) <= 2
    ]
    assert costs[choice.partition("@")[0]] == min(sound)


@pytest.mark.parametrize("shape", [(512, 512, 512), (4096, 4096, 64), (2**19, 2**19, 2**20)])
def test_more_work_never_costs_less(choose, shape):
    """Where a product of sizes overflows, a larger problem may look cheaper."""
    _, costs = choose(*shape)
    for i in range(3):
        _, others = choose(*(size * (2 if i == j else 1) for j, size in enumerate(shape)))
        assert all(others[tile] >= cost for tile, cost in costs.items() if tile in others)


@pytest.mark.parametrize("m", [1, 8, 16, 33, 64])
def test_few_rows_lie_along_the_narrow_side(choose, m):
    """Such products are bound by reading the weight: it takes the tile's long side."""
    for n, k in SIZES_OF_MODELS:
        for y_type in (BF16, FP32):
            assert ".swapped" in choose(m, n, k, y_type=y_type)[0]


def test_many_rows_take_a_large_tile(choose):
    for m in (2048, 8192):
        for n, k in SIZES_OF_MODELS:
            tile_m, tile_n = re.match(r"(\d+)x(\d+)x", choose(m, n, k)[0]).groups()
            assert int(tile_m) * int(tile_n) >= 128 * 128


# The fastest on an H200, where the next best tile takes at least 4% longer; bf16.
FASTEST = {
    (1, 11008, 4096): "64x16x512B/1x1.split.swapped.direct@k1",
    (64, 4096, 4096): "32x64x256B/1x1.split.swapped.direct@k1",
    (64, 11008, 4096): "64x64x256B/1x1.splitpair.swapped.direct@k1",
    (128, 4096, 11008): "64x128x256B/1x1.split.swapped.direct@k2",
    (192, 4096, 11008): "128x192x128B/1x1.split.swapped.direct@k3",
    (192, 8192, 8192): "128x192x128B/1x1.split.swapped.direct@k2",
    (256, 8192, 8192): "128x128x128B/2x1.pingpong@m1",
    (256, 11008, 4096): "128x192x128B/2x1.cooperative@m1",
    (384, 1000, 2048): "64x64x256B/1x1.single.swapped@m1",
    (512, 11008, 4096): "256x192x128B/2x1.cooperative.swapped@n1",
    (1024, 1024, 1024): "64x128x256B/1x1.single.swapped@m1",
    (2048, 8192, 8192): "128x256x128B/2x1.cooperative.swapped@n8",
    (16384, 4096, 512): "128x128x128B/2x1.pingpong.swapped@n8",
    (16384, 11008, 4096): "256x192x128B/2x1.cooperative.swapped@n2",
}


@pytest.mark.parametrize("shape", FASTEST, ids=str)
def test_the_fastest_tile_is_chosen(choose, shape):
    assert choose(*shape)[0] == FASTEST[shape]


def test_number_of_sms_decides(choose, tiles):
    """132 tiles are one wave on an H200, and a wave and a nearly empty one on 114 SMs."""
    pattern = r"(\d+)x(\d+)x\d+B/\dx(\d)\.(?:cooperative|pingpong)"
    large = {
        tile: tuple(map(int, match.groups()))
        for tile in tiles
        if (match := re.fullmatch(pattern, tile))
    }
    large = {tile: (m, n, cluster) for tile, (m, n, cluster) in large.items() if m * n >= 128 * 128}
    assert large
    for tile, (m, n, cluster_n) in large.items():
        along_m, along_n = (12, 11) if cluster_n == 1 else (11, 12)  # of whole clusters
        shape = (along_m * m, along_n * n, 8192)
        few, many = (choose(*shape, sms=sms)[1][tile] for sms in (114, 132))
        assert few > 1.5 * many


# ---- rasters ----

RASTERS = [f"{direction}{swizzle}" for direction in "mn" for swizzle in (1, 2, 4, 8)]
RASTERS += [f"k{slices}" for slices in range(1, 9)]


def test_raster_names_are_read_back(run):
    assert run(f"raster {name}" for name in RASTERS) == RASTERS


@pytest.mark.parametrize(
    "name", ["", "m", "4", "m0", "m3", "m5", "m9", "m16", "k0", "k65", "k100", "k08", "M1", "1m"]
)
def test_other_names_are_no_raster(run, name):
    assert run([f"raster {name}"]) == ["none"]


@pytest.mark.parametrize(
    "tile, order",
    [
        ("128x128x128B/2x1.pingpong.swapped", "n4"),  # 88 for 86 tiles, not 96
        ("128x128x128B/2x1.pingpong", "n2"),  # 86, not 88
        ("256x192x128B/2x1.cooperative.swapped", "n2"),  # 44 for 43, not 48
    ],
)
def test_wide_panels_are_worth_a_few_tiles_of_nothing(force, tile, order):
    """The fastest of n1 to n4 on an H200, as far as they were timed."""
    assert force(tile, 16384, 11008, 4096) == f"{tile}@{order}"


def test_rasters_are_valid(choose, tiles):
    shapes = [*itertools.product((1, 64, 1000, 16384, 2**20), (8, 1024, 28672), (64, 8192)), *LARGE]
    seen = set()
    for shape in shapes:
        tile, _, raster = choose(*shape)[0].partition("@")
        assert raster in RASTERS
        assert slices_k(tile) == (raster[0] == "k")
        seen.add(raster)
    assert {raster[0] for raster in seen} == {"m", "n", "k"}


@pytest.mark.parametrize("n", [1024, 4096])
def test_few_features_share_k(choose, force, tiles, n):
    """Where tiles are fewer than SMs and K is long; not where they are many, or K is short."""
    for tile in filter(slices_k, tiles):
        few = n // int(tile.partition("x")[0]) <= 132 // 2
        assert (int(force(tile, 8, n, 65536).partition("@k")[2]) > 1) == few
        assert force(tile, 8, 128 * 132 * 8, 8192).endswith("@k1")
        assert force(tile, 8, n, 64).endswith("@k1")


LONG = ((16384, 4096, 4096), (8192, 8192, 8192), (4096, 28672, 8192), (16384, 4096, 11008))
SHORT = ((1024, 8192, 8192), (2048, 8192, 8192))


def test_long_products_take_the_swapped_pingpong_tile(choose):
    """On an H200 it took 2 to 6% less time there than cooperative ones, and more at short ones."""
    for shape in LONG:
        assert choose(*shape)[0] == "128x128x128B/2x1.pingpong.swapped@n8", shape
    for shape in SHORT:
        assert ".cooperative.swapped" in choose(*shape)[0], shape


H100_GB_S = 3352  # what its memory gives


def test_long_products_of_a_long_k_do_not_on_an_h100(tmp_path):
    """What reads most from L2 took up to 1.31 times as long as others there, but for K = 4096."""
    host = Host(compile_host_program("plan", tmp_path))
    for m, n, k in (*LONG, (8192, 4096, 11008), (16384, 8192, 8192)):
        call = make_call("H200", "12", "bf16", m=m, n=n, k=k)
        texts = [host.make_plan(**call | more).text for more in ({}, {"memory_gb_s": H100_GB_S})]
        spares = [".pingpong.swapped@n8" in text for text in texts]
        assert spares == [True, k <= 4096], texts
