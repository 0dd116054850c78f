"""The tiles that products were tuned to, on the host: tests/host/tuned_tiles.cpp."""

import itertools
import re

import pytest
from host_program import compile_host_program

FP32, FP16, BF16 = range(3)  # DataType in include/cutlass_fused/common/types.hpp
TYPES = ("float32", "float16", "bfloat16")
SM80 = ("128x256x64B", "32x128x128B")  # in the table of 16 bits and fp16x1
H200 = (90, 227 * 1024)  # code, shared memory
RTX = (80, 99 * 1024)


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    return compile_host_program("tuned_tiles", tmp_path_factory.mktemp("tuned_tiles"))


def format_key(math, sizes, y_type):
    m, n, k = sizes
    return f"{math} M={m} N={n} K={k} y={TYPES[y_type]}"


class Product:
    """A product, and the lines that concern it."""

    def __init__(self, math="bf16", sizes=(1024, 8192, 8192), y_type=BF16, gpu=H200):
        self.math, self.sizes, self.y_type, self.gpu = math, sizes, y_type, gpu
        self.key = format_key(math, sizes, y_type)

    def choose(self, device=0, x=256, ld=None, copied=False):
        """ld: of x and weight, else K; copied: they are to be copied."""
        sizes, gpu = " ".join(map(str, self.sizes)), " ".join(map(str, self.gpu))
        rows = f"{x} {self.sizes[2] if ld is None else ld} {int(copied)}"
        return f"choose {self.math} {sizes} {self.y_type} {device} {gpu} {rows}"

    def tune(self, tile, device=0):
        return f"tune {device} {tile} {self.key}"


@pytest.fixture(scope="module")
def ask(start):
    """ask(line, ...) -> "<arch> <tile>" of the last line, a choice, and its candidates"""

    def ask(*lines):
        arch, tile, *candidates = start(lines)[-1].split()
        return f"{arch} {tile}", candidates

    return ask


@pytest.fixture(scope="module")
def sm90(ask):
    """Two of the SM90 tiles that TMA writes from: a persistent one, and one that is not."""
    _, candidates = ask(Product().choose())
    tiles = [
        tile.partition("@")[0]
        for tile in candidates
        if "/" in tile and ".direct" not in tile and ".rows" not in tile
    ]
    single = [tile for tile in tiles if ".single.swapped" in tile]
    return next(tile for tile in tiles if tile not in single), single[0]


PRODUCTS = [
    Product(),
    Product("f16", (16, 8192, 8192), FP16),
    Product("bf16", (70, 136, 64), FP32),
    Product("bf16", (1024, 4096, 4096), BF16, RTX),
    Product("fp16x1", (1024, 8192, 8192), FP32),
    Product("fp16x3", (64, 1000, 2048), FP32),
]
each_product = pytest.mark.parametrize("product", PRODUCTS, ids=lambda p: f"{p.key}, {p.gpu[0]}")


# ---- keys ----


@each_product
def test_names_of_keys_are_read_back(start, product):
    assert start([f"key {product.key}"]) == [product.key]


@pytest.mark.parametrize(
    "name",
    [
        "",
        "bf16",
        "bf16 M=1 N=2 K=3",
        "bf16 M=1 N=2 K=3 y=int8",
        "bf16 M=01 N=2 K=3 y=bfloat16",
        "bf16 M=1 N=2 K=3 y=bfloat16 ",
        "bf16 M=1 N=2 K=3 y=bfloat16,",
        "bf16 M=1 N=2 K=99999999999999999999 y=bfloat16",
        "bf16  M=1 N=2 K=3 y=bfloat16",
        "a_name_of_more_than_15_letters M=1 N=2 K=3 y=float32",
    ],
)
def test_other_names_are_no_keys(start, name):
    assert start([f"key {name}"]) == ["none"]


# ---- what is chosen ----


@each_product
def test_every_candidate_is_used_where_it_is_tuned(ask, product):
    choice, candidates = ask(product.choose())
    assert choice.split()[1] in candidates and len(set(candidates)) == len(candidates) > 3
    for tile in candidates:
        tuned, _ = ask(product.tune(tile), product.choose())
        assert tuned == f"sm{90 if '/' in tile else 80} {tile}"
    # In 16 bits alone: for fp32 plan/choose_cublas.hpp decides.
    assert ("cublas" in candidates) == (product.math in ("bf16", "f16"))
    removed = (product.tune(candidates[0]), product.tune("-"), product.choose())
    assert ask(*removed) == (choice, candidates)


def test_candidates_of_both_generations_with_rasters(ask):
    _, candidates = ask(Product().choose())
    assert set(SM80) < set(candidates)
    rasters = {}
    for tile in candidates:
        if "/" in tile:
            name, _, raster = tile.partition("@")
            rasters.setdefault(name, []).append(raster)
    for name, found in rasters.items():
        split = ["k1", "k2", "k3", "k4"] if ".split" in name else ["m1", "m2", "n2", "n4"]
        assert found == ([""] if ".single" in name else split)
    assert {".single" in name for name in rasters} == {True, False}
    assert {".split" in name for name in rasters} == {True, False}


def test_candidates_can_serve(ask):
    """SM90 kernels where the GPU has them, TMA's where it can write y, no more shared memory than
    there is, and none of another engine."""
    _, older = ask(Product(gpu=RTX).choose())
    assert older and not [tile for tile in older if "/" in tile]
    assert "128x256x64B" not in older  # 144 KiB
    for product in (Product(y_type=FP32), Product(sizes=(1024, 8191, 8192))):
        _, direct = ask(product.choose())
        words = {tile.partition("@")[0].rpartition(".")[2] for tile in direct if "/" in tile}
        assert words == ({"direct"} if product.y_type == FP32 else {"direct", "rows"})
    _, split = ask(Product("fp16x3", y_type=FP32).choose())
    assert split and not set(split) & set(SM80)


@pytest.mark.parametrize("x", [260, 258])
def test_unaligned_rows_have_nothing_to_choose_and_are_not_tuned(ask, sm90, x):
    product = Product()
    choice, candidates = ask(product.choose(x=x))
    assert candidates == []
    for tile in (SM80[0], f"{sm90[0]}@m4"):
        assert ask(product.tune(tile), product.choose(x=x)) == (choice, [])


@pytest.mark.parametrize("k", [8192, 8191])
def test_copied_rows_have_sm90_kernels_to_choose_between(ask, sm90, k):
    """Those of SM80 would read the rows where they lie, by a kernel without a choice."""
    product, rows = Product(sizes=(1024, 8192, k)), {"ld": 8192, "copied": True}
    choice, candidates = ask(product.choose(**rows))
    assert choice.startswith("sm90") and choice.split()[1] in candidates
    assert {tile for tile in candidates if "/" not in tile} == {"cublas"}
    assert ask(product.tune(SM80[0]), product.choose(**rows))[0] == choice
    for tile in (f"{sm90[0]}@m4", "cublas"):
        tuned = f"sm{90 if '/' in tile else 80} {tile}"
        assert ask(product.tune(tile), product.choose(**rows))[0] == tuned


def test_rows_that_only_tma_reads(ask, sm90):
    """Rows of an odd K at aligned distances: SM80 kernels load whole 16 bytes."""
    product = Product(sizes=(1024, 8192, 8191))
    choice, candidates = ask(product.choose(ld=8192))
    assert choice.startswith("sm90") and not set(candidates) & set(SM80)
    assert ask(product.tune(SM80[0]), product.choose(ld=8192))[0] == choice


def test_cublas_reads_rows_as_they_are(ask):
    product = Product()
    assert ask(product.tune("cublas"), product.choose(x=258)) == ("sm80 cublas", [])
    assert ask("force cublas", product.choose(x=258)) == ("sm80 cublas", [])
    assert ask("force cublas", Product("fp16x1", y_type=FP32).choose())[0] == "sm80 refused"


@pytest.mark.parametrize("math", ["bf16", "fp16x3", "fp16x1"])
def test_kernels_of_sm80_can_be_forced(ask, math):
    """On a newer GPU, which has as much shared memory."""
    y_type = BF16 if math == "bf16" else FP32
    (code, memory), product = H200, Product(math, y_type=y_type)
    assert ask(product.choose())[0].startswith("sm90")
    older, _ = ask(Product(math, y_type=y_type, gpu=(code - 10, memory)).choose())
    assert older.startswith("sm80 ")
    assert ask("force sm80", product.choose()) == (older, [])


def test_what_cannot_serve_is_ignored(ask, sm90):
    """The cache may have it from another build, or be written by hand."""
    persistent, single = sm90
    for product, tile in (
        (Product("fp16x3", y_type=FP32), SM80[0]),  # of another engine
        (Product(gpu=RTX), SM80[0]),  # too much shared memory
        (Product(gpu=RTX), persistent),  # no such kernels
        (Product("fp16x1", y_type=FP32), persistent),
        (Product(y_type=FP32), persistent),  # TMA cannot write fp32
        (Product(sizes=(2**26, 8, 8)), single),  # beyond its grid
        (Product("fp16x1", y_type=FP32), "cublas"),
        (Product("fp16x3", y_type=FP32), "cublas"),
        (Product(sizes=(1024, 8192, 0)), "cublas"),
    ):
        untuned = ask(product.choose())
        assert ask(product.tune(tile), product.choose()) == untuned, (product.key, tile)


def test_raster_is_the_named_one_else_the_heuristics(ask, sm90):
    """That of a tall product is another than that of a wide one."""
    (tile, _), chosen = sm90, []
    for sizes in ((128, 8192, 512), (8192, 512, 512)):
        product = Product(sizes=sizes)
        chosen.append(ask(product.tune(tile), product.choose())[0])
        assert re.fullmatch(rf"sm90 {re.escape(tile)}@[mn][1248]", chosen[-1])
        assert ask(product.tune(f"{tile}@n8"), product.choose())[0] == f"sm90 {tile}@n8"
    assert len(set(chosen)) == 2


def test_same_name_in_two_tables_means_the_kernels_own(ask):
    """64x64x128B is a tile of both SM80 tables, with other warps."""
    product = Product("fp16x3", (4096, 4096, 4096), FP32)
    for tile in ("64x64x128B", "128x128x128B"):
        assert ask(product.tune(tile), product.choose())[0] == f"sm80 {tile}"


# ---- which products ----


def test_only_the_very_product_is_tuned(ask):
    tuned = Product()
    changes = [Product("f16", y_type=FP16), Product(y_type=FP32)]
    changes += [
        Product(sizes=sizes)
        for sizes in ((1025, 8192, 8192), (1024, 8200, 8192), (1024, 8192, 8200))
    ]
    tile = "32x128x128B"  # which the heuristic chooses for none of them
    assert ask(tuned.tune(tile), tuned.choose())[0] == f"sm80 {tile}"
    assert ask(tuned.tune(tile), tuned.choose(device=1))[0] != f"sm80 {tile}"
    assert ask(tuned.tune(tile, device=1), tuned.choose(device=1))[0] == f"sm80 {tile}"
    for other in changes:
        assert ask(tuned.tune(tile), other.choose())[0] != f"sm80 {tile}"


def test_forced_tile_comes_first(ask, sm90):
    product = Product()
    tuned = product.tune("32x128x128B")
    forced = f"{sm90[0]}@m4"
    assert ask(tuned, f"force {forced}", product.choose()) == (f"sm90 {forced}", [])
    assert ask(tuned, f"force {SM80[0]}", product.choose()) == (f"sm80 {SM80[0]}", [])
    assert ask(tuned, f"force {forced}", "force -", product.choose())[0] == "sm80 32x128x128B"
    # Refused, and not replaced by the tuned one.
    narrow = Product(y_type=FP32)
    assert ask(narrow.tune(SM80[0]), f"force {forced}", narrow.choose())[0] == "sm90 refused"


@pytest.mark.parametrize(
    ("tile", "key", "answer"),
    [
        ("7x7x7B", Product().key, "no tile"),
        ("128x256x64B@m1", Product().key, "no tile"),
        ("128x256x64B", "bf16 M=1", "no key"),
    ],
)
def test_unknown_tiles_and_keys(start, tile, key, answer):
    assert start([f"tune 0 {tile} {key}"]) == [answer]


def test_many_products(start):
    products = [
        Product(sizes=sizes) for sizes in itertools.product((1, 64, 4096), (8, 72), (64, 128, 8192))
    ]
    tiles = [SM80[i % 2] for i in range(len(products))]
    lines = [product.tune(tile) for product, tile in zip(products, tiles, strict=True)]
    answers = start([*lines, *(product.choose() for product in products)])[len(lines) :]
    assert [answer.split()[1] for answer in answers] == tiles


def test_threads_read_while_others_write(start):
    assert start(["race 300"]) == ["0"]
