"""When cuBLAS multiplies matrices of fp32, and of 16 bits along K: make_plan, asked on the host."""

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
    ones as fast as memory takes them, start in less time, and take any epilogue with them."""
    for call in list_short_products():
        m, n = call["m"], call["n"]
        if n >= 64 and call["k"] <= 16 and (m * n >= 2**21 or m >= 64):
            plan = make_plan(host, **call, **majors, bare=1)
            assert plan == ("simt fp32: simt", "-", "-", ""), call
        if n >= 64:
            assert make_plan(host, **call, **majors).text == "simt fp32: simt", call


def test_short_sums_of_odd_rows(host):
    plan = make_plan(host, m=1001, n=2047, k=16, ldy=2047, bare=1)
    assert plan == ("cublas fp32: cublas", "-", "cublas", "")


def test_a_few_longer_short_sums(host):
    """Along K cuBLAS takes a little less, as a launch is all that counts; across rows more."""
    few = {"m": 16, "n": 64, "k": 32, "bare": 1}
    assert make_plan(host, **few).text == "cublas fp32: cublas"
    assert make_plan(host, **few, **MAJORS["both"]).text == "simt fp32: simt"


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


# ---- 16 bits along K ----

# (M, N, K), and what they take ours and cuBLAS in bf16 on an H200, in us.
CUBLAS = {
    "a launch is all": [(256, 512, 64), (1024, 256, 128), (2048, 64, 64)],  # 3.1 and 2.5
    "rows are copied": [(10000, 20, 20), (10000, 50, 50), (512, 192, 100)],  # 14.9 and 3.1
    "tiles are empty for the most part": [(4096, 8, 4096), (2048, 1, 256)],  # 17.1 and 8.8
    "K is short": [(20000, 64, 8), (65536, 64, 64), (16384, 512, 64)],  # 8.6 and 3.8
    "two thirds of a wave": [(800, 3072, 1024), (512, 3072, 768)],  # 11.8 and 9.8
}
OURS = {
    "blocks of one tile": [(256, 256, 256), (2048, 256, 512), (8192, 64, 512)],  # 2.4 and 3.0
    "K is cut": [(32, 512, 3136), (128, 512, 784), (256, 1024, 1024)],  # 4.6 and 6.1
    "rows begin anywhere": [(2048, 1024, 479), (64, 50257, 768)],  # 9.6 and 27.7
    "the GPU is full": [(8192, 1024, 1024), (16384, 4096, 4096), (65536, 256, 256)],  # 804 and 865
    "the same": [(3152, 3072, 768)],  # 23.9 and 23.8
}
ALL = [(*reason, True) for reason in CUBLAS.items()]
ALL += [(*reason, False) for reason in OURS.items()]
MATHS = {"bf16": "bf16", "fp16": "f16"}


def plan_narrow(host, shape, gpu="H200", numerics="bf16", **call):
    return make_plan(host, gpu, numerics, **dict(zip("mnk", shape, strict=True)), **call)


def list_narrow(groups=(CUBLAS, OURS)):
    return [shape for group in groups for shapes in group.values() for shape in shapes]


@pytest.mark.parametrize("numerics", MATHS)
@pytest.mark.parametrize(("shapes", "wins"), [row[1:] for row in ALL], ids=[row[0] for row in ALL])
def test_a_bare_product_has_the_faster_kernel(host, numerics, shapes, wins):
    by_cublas = (f"cublas {MATHS[numerics]}: cublas", "-", "cublas", "")
    for shape in shapes:
        plan = plan_narrow(host, shape, numerics=numerics, bare=1)
        assert (plan == by_cublas) if wins else ("cublas" not in plan.text), shape


def test_one_with_something_behind_it_is_ours(host):
    for shape in list_narrow():
        for tail in ({}, {"tail": "logits"}, {"epilogue": "scale_batch_norm"}):
            assert "cublas" not in plan_narrow(host, shape, **tail).text
        assert "cublas" not in plan_narrow(host, shape, tail="logits", bare=1).text


@pytest.mark.parametrize("gpu", [gpu for gpu in GPUS if gpu != "H200"])
def test_no_estimate_is_of_other_gpus_of_16_bits(host, gpu):
    for shape in list_narrow():
        assert "cublas" not in plan_narrow(host, shape, gpu, bare=1).text


def test_no_estimate_is_of_older_kernels_of_16_bits(host):
    """Of a build without those for 9.0."""
    for shape in list_narrow():
        assert "cublas" not in plan_narrow(host, shape, bare=1, sm90=0).text


def test_where_there_is_no_choice_of_16_bits(host):
    """What is forced or was timed stands; what cannot be called does not serve."""
    for shape in list_narrow([CUBLAS]):
        plain = plan_narrow(host, shape)
        assert plan_narrow(host, shape, bare=1, struck="cublas") == plain
        for how in ("forced", "tuned"):
            for tile in ("sm80", "128x128x64B"):
                call = {how: tile}
                assert plan_narrow(host, shape, bare=1, **call) == plan_narrow(host, shape, **call)


def test_a_result_in_fp32_of_16_bits(host):
    """What the kernels write does not count."""
    shape = CUBLAS["rows are copied"][0]
    assert "cublas" in plan_narrow(host, shape, bare=1, y_dtype="float32").text


@pytest.mark.parametrize("struck", ["product", "copies"])
def test_it_does_not_matter_what_else_was_refused(host, struck):
    """The bits are the same."""
    for shape in list_narrow():
        by = [plan_narrow(host, shape, bare=1, struck=parts).text for parts in ("", struck)]
        assert ("cublas" in by[0]) == ("cublas" in by[1])
