"""When cuBLAS multiplies fp32 matrices: make_plan, asked on the host."""

import itertools

import pytest
from host_program import compile_host_program
from plans import GPUS, NUMERICS, Host

SHORT = {"m": 512, "n": 512, "k": 16}
LONG = {"m": 256, "n": 128, "k": 128}
ALONG_MN = {"x": {"major_x": 1}, "w": {"major_w": 1}, "both": {"major_x": 1, "major_w": 1}}
MAJORS = {"none": {}} | ALONG_MN
FP32 = ("ieee", "tf32")
IN = {"ieee": "fp32", "tf32": "tf32"}  # what cuBLAS computes in
SIZES = (1, 7, 64, 300, 2048, 2**15)


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    return Host(compile_host_program("plan", tmp_path_factory.mktemp("plan_cublas")))


def make_plan(host, gpu="H200", numerics="ieee", **call):
    return host.make_plan(**GPUS[gpu], **NUMERICS[numerics], **call)


def list_short_products():
    for m, n, k in itertools.product(SIZES, SIZES, (1, 16, 32)):
        yield {"m": m, "n": n, "k": k}


# ---- by the estimates ----


@pytest.mark.parametrize("majors", MAJORS.values(), ids=MAJORS)
def test_short_sums(host, majors):
    """Gradients of weights with small batches, in any order of operands: CUDA cores write large
    ones as fast as memory takes them, and any with an epilogue."""
    for call in list_short_products():
        m, n = call["m"], call["n"]
        if n >= 64 and m * n >= 2**21 and call["k"] <= 16:
            plan = make_plan(host, **call, **majors, bare=1)
            assert plan == ("simt fp32: simt", "-", "-", ""), call
        if n >= 64:
            assert make_plan(host, **call, **majors).text == "simt fp32: simt", call


def test_short_sums_that_are_small_or_of_odd_rows(host):
    small, odd = {"m": 128, "n": 256, "k": 16}, {"m": 1001, "n": 2047, "k": 16}
    for call in (small, odd | {"ldy": 2047}):
        plan = make_plan(host, **call, bare=1)
        assert plan == ("cublas fp32: cublas", "-", "cublas", "")
    assert make_plan(host, **small | {"n": 64}, bare=1).text == "simt fp32: simt"


def test_short_sums_in_tf32(host):
    """Where they are large cuBLAS has the faster kernels."""
    small, large = ({"m": size, "n": size, "k": 16} for size in (256, 4096))
    assert make_plan(host, numerics="tf32", **small, bare=1).text == "simt fp32: simt"
    for majors in (MAJORS["none"], MAJORS["both"]):
        plan = make_plan(host, numerics="tf32", **large, **majors, bare=1)
        assert plan == ("cublas tf32: cublas", "-", "cublas", "")
        plan = make_plan(host, "A100", "tf32", **large, **majors, bare=1)
        assert plan.text == "simt fp32: simt"


@pytest.mark.parametrize("majors", MAJORS.values(), ids=MAJORS)
def test_longer_sums_are_left_to_our_kernels(host, majors):
    for k in (33, 64, 4096):
        assert "cublas" not in make_plan(host, m=512, n=512, k=k, **majors, bare=1).text


@pytest.mark.parametrize("majors", MAJORS.values(), ids=MAJORS)
def test_in_tf32_it_is_one_of_many(host, majors):
    """It has those of middle sizes: smaller ones take the time of a launch, and larger ones pay for
    a split; with an epilogue behind it, fewer."""
    taken = {
        bare: {
            size
            for size in (64, 128, 256, 512, 1024, 2048, 4096)
            if "cublas tf32"
            in make_plan(host, numerics="tf32", m=size, n=size, k=size, **majors, bare=bare).text
        }
        for bare in (0, 1)
    }
    assert taken[0] <= taken[1]
    assert 64 not in taken[1]
    assert 1024 in taken[1]


def test_in_tf32_no_estimate_is_of_other_gpus(host):
    for size, majors in itertools.product((64, 512, 4096), MAJORS.values()):
        shape = {"m": size, "n": size, "k": size}
        plan = make_plan(host, "A100", "tf32", **shape, **majors, bare=1)
        assert "cublas" not in plan.text


def test_few_short_rows(host):
    """Their time is that of a launch; with something behind it, of two."""
    tiny = {"m": 16, "n": 64, "k": 64}
    assert make_plan(host, **tiny, bare=1).text == "cublas fp32: cublas"
    assert "cublas" not in make_plan(host, **tiny).text
    for larger in ({"m": 17}, {"n": 513}, {"k": 65}, ALONG_MN["w"]):
        assert "cublas" not in make_plan(host, **tiny | larger, bare=1).text


def test_a_vector(host):
    """A layer with one output, and the gradient of its weight; kernels that take tiles of rows and
    columns would be busy with nothing."""
    column, row = {"m": 512, "n": 1, "k": 4096}, {"m": 1, "n": 4096, "k": 512}
    for bare in (0, 1):
        assert make_plan(host, **column, bare=bare).text == "cublas fp32: cublas"
    assert make_plan(host, **row, **ALONG_MN["both"], bare=1).text == "cublas fp32: cublas"
    assert "cublas" not in make_plan(host, **column | {"n": 64}, bare=1).text


def test_rows_that_begin_anywhere(host):
    """Kernels that copy a number at a time lose to cuBLAS where there are many rows."""
    narrow = {"m": 10000, "n": 50, "k": 50}
    assert make_plan(host, **narrow, ldx=50, ldw=50, bare=1).text == "cublas fp32: cublas"
    whole = {"m": 10000, "n": 48, "k": 48}
    assert "cublas" not in make_plan(host, **whole, bare=1).text


def test_very_many_rows(host):
    """The gradient of a narrow layer's x: a weight along N costs cuBLAS less than one along K."""
    narrow = {"m": 65536, "n": 32, "k": 64}
    assert make_plan(host, **narrow, **ALONG_MN["w"], bare=1).text == "cublas fp32: cublas"
    assert "cublas" not in make_plan(host, **narrow | {"n": 64}, **ALONG_MN["w"], bare=1).text
    assert "cublas" not in make_plan(host, **narrow | {"n": 64}, bare=1).text


def test_few_outputs_of_long_sums(host):
    """The gradient of a small layer's weight, over many rows, in fp32: cuBLAS is the fastest where
    rows begin anywhere and nothing is behind it, as 9.9 us against 11.4 of 100 x 50 from 8192 rows
    on an H200 tell; else parts of K are added up behind our kernels. A pass behind cuBLAS is too
    much beside 9.6 us of ours for 10.9 of 50 x 50 from 10000."""
    both = ALONG_MN["both"]
    long = {"m": 50, "n": 50, "k": 10000, "ldx": 50, "ldw": 50}
    assert make_plan(host, **long, **both, bare=1).text == "cublas fp32: cublas"
    whole = {"m": 64, "n": 64, "k": 16384}
    for other in (
        make_plan(host, **long, **both),
        make_plan(host, **long, **both, bare=1, struck="cublas"),
        make_plan(host, **whole, **both, bare=1),
        make_plan(host, **whole, bare=1),
        make_plan(host, **whole, **ALONG_MN["x"], bare=1),
        make_plan(host, **whole | {"m": 512, "n": 512}, **both, bare=1),
        make_plan(host, **long, **both, bare=1, forced="tf32x3"),
        make_plan(host, **long, **both, bare=1, tuned="32x32x64w4.tf32x3@k16"),
    ):
        assert "cublas" not in other.text


def test_sums_of_nothing_are_no_products(host):
    assert make_plan(host, m=64, n=64, k=0, bare=1).text == "simt fp32: simt"


# ---- forced and tuned ----


@pytest.mark.parametrize("how", ["forced", "tuned"])
@pytest.mark.parametrize("majors", MAJORS.values(), ids=MAJORS)
def test_any_product_can_be_left_to_it(host, how, majors):
    """Nothing is split, copied or repaired. The log tells TF32 from fp32."""
    for gpu, numerics, tail in itertools.product(GPUS, FP32, ("epilogue", "logits")):
        call = majors | {how: "cublas", "tail": tail}
        math = "tf32" if numerics == "tf32" else "fp32"
        plan = make_plan(host, gpu, numerics, **LONG, **call)
        assert plan == (f"cublas {math}: cublas", "-", "cublas", "")
        short = make_plan(host, gpu, numerics, **SHORT, **call)
        assert short == (f"cublas {math}: cublas", "-", "cublas", "")


@pytest.mark.parametrize("forced", ["sm80", "128x128x64B"])
def test_another_kernel_is_forced(host, forced):
    """Matrices for CUDA cores have one."""
    assert make_plan(host, **SHORT, bare=1, forced=forced).text == "simt fp32: simt"
    assert "cublas" not in make_plan(host, **LONG, forced=forced, tuned="cublas").text


@pytest.mark.parametrize("forced", ["tf32x3", "split_rows"])
def test_kernels_of_longer_sums_are_forced(host, forced):
    """They say nothing of short ones."""
    plan = make_plan(host, **SHORT, bare=1, forced=forced)
    assert plan == make_plan(host, **SHORT, bare=1)
    assert "cublas" not in make_plan(host, **LONG, bare=1, forced=forced, tuned="cublas").text


@pytest.mark.parametrize("numerics", FP32)
def test_where_it_cannot_serve(host, numerics):
    """Without the functions of cuBLAS, or where a launch was refused; without the weight; without
    anything to add up; in front of a batch norm in training."""
    for shape in (LONG, SHORT):
        for why in (
            {"struck": "cublas"},
            {"weight_split": 2},
            {"k": 0},
            {"tail": "batch_norm", "keeps_z": 1},
        ):
            call = shape | why | {"bare": 1}
            plain = make_plan(host, numerics=numerics, **call)
            assert "cublas" not in plain.text
            assert make_plan(host, numerics=numerics, **call, tuned="cublas") == plain
            forced = make_plan(host, numerics=numerics, **call, forced="cublas").text
            short_norm = "tail" in why and shape == SHORT  # it has one kernel, whatever is forced
            assert ("refused" in forced) != short_norm
            assert "cublas" not in forced


# ---- what must not count ----


def test_it_does_not_matter_whether_the_split_is_kept(host):
    """The bits are the same."""
    for shape, tuned, bare in itertools.product((SHORT, LONG), ("", "cublas"), (0, 1)):
        call = shape | {"tuned": tuned, "bare": bare}
        missing, kept = (make_plan(host, **call, weight_split=known) for known in (0, 1))
        assert missing == kept


def test_a_bare_product_is_no_other_where_cublas_cannot_be_called(host):
    for shape in (SHORT, LONG):
        call = shape | {"struck": "cublas"}
        assert make_plan(host, **call, bare=1) == make_plan(host, **call)


def test_no_operand_of_short_sums_is_copied(host):
    for majors, bare in itertools.product(ALONG_MN.values(), (0, 1)):
        plan = make_plan(host, **SHORT, **majors, bare=bare, struck="cublas")
        assert (plan.text, plan.split_rows) == ("simt fp32: simt", "")
