"""What multiplies 16-bit matrices that do not lie along K: make_plan, asked on the host."""

import itertools

import pytest
from host_program import compile_host_program
from plans import GPUS, NUMERICS, Host, format_command

MATHS = {"bf16": "bf16", "fp16": "f16"}
ALONG_MN = {"x": {"major_x": 1}, "w": {"major_w": 1}, "both": {"major_x": 1, "major_w": 1}}
# Both sides of what the estimates and the alignment of rows decide: one number, one row, odd sizes,
# a gradient of a weight, one of x.
SIZES = [(1, 1, 1), (1, 4096, 512), (37, 77, 51), (4096, 4096, 16384), (16384, 4096, 1024)]
each_layout = pytest.mark.parametrize("majors", ALONG_MN.values(), ids=ALONG_MN)
each_type = pytest.mark.parametrize("numerics", MATHS)


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    return Host(compile_host_program("plan", tmp_path_factory.mktemp("plan_layouts")))


def make_plan(host, gpu="H200", numerics="bf16", **call):
    return host.make_plan(**GPUS[gpu], **NUMERICS[numerics], **call)


def by_cublas(numerics):
    """Nothing is copied or transposed."""
    return (f"cublas {MATHS[numerics]}: cublas", "-", "cublas", "")


def is_transposed(plan):
    """The caller copies what does not lie along K, and asks again."""
    return plan.split_rows == " transposes"


# ---- nothing behind the product ----


@each_layout
@each_type
@pytest.mark.parametrize("gpu", GPUS)
def test_a_bare_product_is_read_as_it_lies(host, gpu, numerics, majors):
    """Whatever its operands begin at, in 16 bits and in fp32."""
    for (m, n, k), changes in itertools.product(
        SIZES, ({}, {"y_dtype": "float32"}, {"align_x": 2, "align_w": 2})
    ):
        call = {"m": m, "n": n, "k": k} | majors | changes
        assert make_plan(host, gpu, numerics, **call, bare=1) == by_cublas(numerics), call


@each_type
@pytest.mark.parametrize("gpu", GPUS)
def test_operands_along_k_are_left_to_our_tiles(host, gpu, numerics):
    """But with nothing behind the product rows of less than 16 bytes are not, nor what takes cuBLAS
    less time on an H200: test_plan_cublas.py."""
    for m, n, k in SIZES:
        plan = make_plan(host, gpu, numerics, m=m, n=n, k=k, bare=1)
        assert not is_transposed(plan)
        assert gpu == "H200" or ("cublas" in plan.text) == (k < 8)
        assert "cublas" not in make_plan(host, gpu, numerics, m=m, n=n, k=k).text


@each_layout
@each_type
def test_where_cublas_cannot_be_called_operands_are_copied(host, numerics, majors):
    """Without its functions, or where a launch was refused."""
    for m, n, k in SIZES:
        plan = make_plan(host, numerics=numerics, m=m, n=n, k=k, **majors, bare=1, struck="cublas")
        assert is_transposed(plan) and "cublas" not in plan.text


@each_layout
def test_sums_of_nothing_are_no_products(host, majors):
    plan = make_plan(host, m=64, n=64, k=0, **majors, bare=1)
    assert plan.text == "simt bf16: simt" and is_transposed(plan)


# ---- an epilogue behind it ----


@each_type
@pytest.mark.parametrize("y_dtype", ["", "float32"])
@pytest.mark.parametrize("tail", ["epilogue", "logits"])
def test_what_takes_less_time(host, tail, y_dtype, numerics):
    """Sums that go to memory and back, or copies of operands that do not lie along K."""

    def choose(m, n, k, **majors):
        call = {"m": m, "n": n, "k": k, "tail": tail, "y_dtype": y_dtype} | majors
        plan = make_plan(host, numerics=numerics, **call)
        assert (plan == by_cublas(numerics)) != is_transposed(plan)
        return not is_transposed(plan)

    # As an H200 has them, in us: 10 for 13, 18 for 19, 53 for 35, 64 for 79, and 243 for 213.
    assert choose(1024, 768, 512, major_w=1)
    assert choose(4096, 768, 512, major_w=1)
    assert not choose(16384, 768, 512, major_w=1)
    assert choose(4096, 2048, 2048, major_w=1)
    assert not choose(16384, 2048, 2048, major_w=1)
    # A copy of x is of its rows, and of both one of each.
    assert choose(16384, 768, 512, major_x=1)
    assert not choose(16384, 2048, 256, major_x=1)
    assert not choose(16384, 768, 128, major_x=1)
    assert choose(16384, 768, 256, major_x=1, major_w=1)


@each_layout
def test_a_batch_norm_in_training_reads_copies(host, majors):
    shape = {"m": 1024, "n": 512, "k": 8192, "tail": "batch_norm"}
    assert "cublas" not in make_plan(host, **shape, **majors).text


# ---- forced and tuned ----


@each_layout
@each_type
@pytest.mark.parametrize("how", ["forced", "tuned"])
def test_any_product_can_be_left_to_cublas(host, how, numerics, majors):
    for (m, n, k), bare, y_dtype in itertools.product(SIZES, (0, 1), ("", "float32")):
        call = {"m": m, "n": n, "k": k, "bare": bare, "y_dtype": y_dtype, how: "cublas"} | majors
        assert make_plan(host, numerics=numerics, **call) == by_cublas(numerics), call


@each_layout
def test_a_forced_tile_reads_copies(host, majors):
    for forced in ("sm80", "128x128x64B"):
        plan = make_plan(host, m=256, n=128, k=512, **majors, bare=1, forced=forced)
        assert is_transposed(plan) and plan.text.startswith("sm80 bf16: ")


@each_layout
def test_names_of_kernels_of_fp32_say_nothing(host, majors):
    for forced in ("tf32x3", "split_rows"):
        plan = make_plan(host, m=256, n=128, k=512, **majors, bare=1, forced=forced)
        assert plan == by_cublas("bf16")


@each_layout
def test_a_tile_that_timing_found_is_of_operands_along_k(host, majors):
    """Their copies take it; cuBLAS needs none."""
    shape = {"m": 4096, "n": 4096, "k": 512, "tuned": "128x128x64B"}
    assert make_plan(host, **shape, **majors, bare=1) == by_cublas("bf16")
    assert is_transposed(make_plan(host, **shape | {"k": 64}, **majors))


@each_layout
def test_forced_cublas_that_cannot_serve_is_refused(host, majors):
    for changes in ({"k": 0}, {"struck": "cublas"}):
        call = {"m": 64, "n": 128, "k": 256, "bare": 1} | majors | changes
        plan = make_plan(host, **call, forced="cublas")
        assert plan.text.endswith(": refused") and not is_transposed(plan)


# ---- batches ----


def choose_batched(host, numerics="bf16", gpu="H200", **call):
    call = GPUS[gpu] | NUMERICS[numerics] | {"m": 64, "n": 128, "k": 256, "batch": 16} | call
    (answer,) = host.run([format_command("batch", call)])
    return answer


@pytest.mark.parametrize("majors", [{}, *ALONG_MN.values()], ids=["none", *ALONG_MN])
@each_type
def test_a_batch_is_one_product(host, numerics, majors):
    for changes in ({}, {"forced": "cublas"}, {"forced": "tf32x3"}, {"forced": "split_rows"}):
        assert choose_batched(host, numerics, **majors, **changes) == "cublas"


@each_type
def test_a_batch_one_by_one(host, numerics):
    """Where a tile is forced, or cuBLAS cannot be called. "none": each has a plan of its own."""
    for forced in ("sm80", "128x128x64B", "32x32x64w4.tf32x3@k16"):
        assert choose_batched(host, numerics, forced=forced) == "none"
    assert choose_batched(host, numerics, struck="cublas") == "none"
    assert choose_batched(host, numerics, struck="cublas", forced="cublas") == "refused"


ATTENTION = {"m": 197, "n": 197, "k": 64, "batch": 96}


@pytest.mark.parametrize("numerics", ["ieee", "tf32"])
@pytest.mark.parametrize("gpu", GPUS)
def test_a_few_rows_are_cublas(host, gpu, numerics):
    for size in ("m", "n"):
        few = ATTENTION | {size: 7}
        assert choose_batched(host, numerics, gpu, **few) == "cublas"
        assert choose_batched(host, numerics, gpu, **few, forced="tf32x3").endswith("tf32x3@k1")


def test_some_rows_are_ours(host):
    for size in ("m", "n"):
        for k in (256, 1024):
            answer = choose_batched(host, "ieee", **ATTENTION | {size: 8, "k": k})
            assert "tf32x3" in answer, (size, k)


@pytest.mark.parametrize("numerics", ["ieee", "tf32"])
def test_what_cublas_cannot_have(host, numerics):
    """Few rows, a short K: each that cuBLAS would have."""
    for change in ({"m": 4}, {"n": 1}, {"k": 16}, {"k": 32, "m": 4}):
        call = ATTENTION | change
        assert choose_batched(host, numerics, **call) == "cublas"
        answer = choose_batched(host, numerics, **call, struck="cublas")
        assert answer == "none" if call["k"] <= 32 else "tf32x3" in answer
        assert choose_batched(host, numerics, **call, struck="cublas", forced="cublas") == "refused"


# ---- parts of a weight along N ----

ALONG_N = {"major_w": 1, "m": 2048, "n": 1024, "k": 1024}


def splits_along_n(host, gpu="H200", numerics="ieee", **changes):
    call = GPUS[gpu] | NUMERICS[numerics] | ALONG_N | changes
    return "weight split along N" in host.make_plan(**call, forced="split_rows").text


@pytest.mark.parametrize("numerics", ["ieee", "tf32"])
@pytest.mark.parametrize("gpu", GPUS)
def test_a_weight_along_n_is_split_as_it_lies(host, gpu, numerics):
    for n in (1024, 1028, 1000):
        assert splits_along_n(host, gpu, numerics, n=n) == (gpu == "H200")


def test_rows_of_y_that_tma_cannot_write(host):
    for n in (1023, 1025, 1026, 1022):
        assert not splits_along_n(host, n=n)
    assert not splits_along_n(host, ldy=1026)
    assert not splits_along_n(host, align_y=4)


def test_other_weights_and_epilogues(host):
    assert not splits_along_n(host, major_w=0)
    for other in ({"epilogue": "scale_batch_norm"}, {"tail": "batch_norm"}):
        assert not splits_along_n(host, **other)
