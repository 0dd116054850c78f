"""When fp32 matrices are multiplied as they lie: make_plan, asked on the host."""

import itertools
import re

import pytest
from host_program import compile_host_program
from plans import GPUS, NUMERICS, Host

SMALL = {"m": 256, "n": 128, "k": 128}
LARGE = {"m": 1024, "n": 8192, "k": 8192}
ALONG_MN = {"x": {"major_x": 1}, "w": {"major_w": 1}, "both": {"major_x": 1, "major_w": 1}}
AS_THEY_LIE = r"tf32x3 fp32: \d+x\d+x\d+(w\d|\.sm90)?\.tf32x3@k\d+"
SM90 = "128x128x32.sm90.tf32x3"


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    return Host(compile_host_program("plan", tmp_path_factory.mktemp("plan")))


def make_plan(host, gpu="H200", numerics="ieee", **call):
    return host.make_plan(**GPUS[gpu], **NUMERICS[numerics], **call)


def is_as_it_lies(plan):
    return re.fullmatch(AS_THEY_LIE, plan.text) is not None


@pytest.mark.parametrize("numerics", ["ieee", "tf32"])
@pytest.mark.parametrize("gpu", GPUS)
def test_small_products_are_one_launch(host, gpu, numerics):
    plan = make_plan(host, gpu, numerics, **SMALL)
    assert is_as_it_lies(plan)
    assert (plan.kernel, plan.refused, plan.split_rows) == ("-", "-", "")


@pytest.mark.parametrize("gpu", GPUS)
def test_large_products_are_of_split_rows(host, gpu):
    assert make_plan(host, gpu, **LARGE).split_rows == "splits repair"


def test_a_long_k_of_few_tiles_is_cut(host):
    assert re.search(r"@k[248]$", make_plan(host, m=64, n=64, k=1024).text)
    # The gradient of a small layer's weight, from many rows: more than a cluster has blocks.
    long = {"m": 64, "n": 64, "k": 65536, "major_x": 1, "major_w": 1, "struck": "cublas"}
    for gpu in GPUS:
        assert re.search(r"@k(16|32|64)$", make_plan(host, gpu, **long).text)


def test_it_does_not_matter_whether_the_split_is_kept(host):
    """The bits are the same."""
    seen = set()
    for m, n, k in itertools.product((1, 16, 256, 2048), (64, 512, 2048), (64, 512, 4096)):
        shape = {"m": m, "n": n, "k": k}
        missing, kept = (make_plan(host, **shape, weight_split=known) for known in (0, 1))
        assert missing == kept
        seen.add(is_as_it_lies(missing))
    assert seen == {True, False}


def find_costs(host, calls):
    """(as the matrices lie, as split rows of a weight whose parts are kept, of another)"""
    full = [GPUS["H200"] | NUMERICS["ieee"] | call for call in calls]
    return [tuple(map(int, line.split())) for line in host.run_all("costs", full)]


def test_a_weight_that_is_split_in_the_call_pays_little(host):
    """For those whose parts are kept: otherwise the geometric mean decides."""
    shapes = itertools.product(
        (16, 64, 256, 1024, 4096), (64, 256, 512, 1024, 2048, 4096), (64, 512, 2048, 4096)
    )
    calls = [{"m": m, "n": n, "k": k, "struck": "cublas"} for m, n, k in shapes]
    costs = find_costs(host, calls)
    plans = host.make_plans([GPUS["H200"] | NUMERICS["ieee"] | call for call in calls])
    reasons = set()
    for (whole, kept, missing), plan in zip(costs, plans, strict=True):
        on_average, too_much = whole < (kept * missing) ** 0.5, 1.25 * whole < missing
        assert is_as_it_lies(plan) == (on_average or too_much)
        reasons.add((on_average, too_much))
    assert reasons >= {(False, False), (False, True), (True, True)}


def test_a_large_weight_is_chosen_for_as_if_it_were_kept(host):
    """By the geometric mean alone: 128 x 16384 x 16384 takes 0.34 ms with parts that are kept, and
    0.63 ms as the matrices lie."""
    calls = [{"m": m, "n": n, "k": n} for n in (2**13, 2**14, 2**15) for m in (16, 64, 96, 128)]
    plans = host.make_plans([GPUS["H200"] | NUMERICS["ieee"] | call for call in calls])
    changed = set()
    for call, (whole, kept, missing), plan in zip(
        calls, find_costs(host, calls), plans, strict=True
    ):
        assert is_as_it_lies(plan) == (whole < (kept * missing) ** 0.5)
        if not is_as_it_lies(plan) and 1.25 * whole < missing:
            changed.add((call["m"], call["n"]))
    assert changed >= {(128, 2**14), (128, 2**15)}


@pytest.mark.parametrize("major_w", [0, 1])
def test_nothing_is_kept_of_what_a_gradient_of_a_weight_reads(host, major_w):
    sizes = {"m": 512, "n": 512, "k": 4096, "major_w": major_w}
    (_, kept, missing), (_, first, second) = find_costs(host, [sizes, sizes | {"major_x": 1}])
    assert kept < missing < first == second


def test_a_weight_that_is_gone_is_read_from_its_split(host):
    assert make_plan(host, **SMALL, weight_split=2).split_rows == "splits repair"


@pytest.mark.parametrize("numerics", ["bf16", "fp16"])
def test_narrow_types_are_read_by_tma(host, numerics):
    assert not is_as_it_lies(make_plan(host, numerics=numerics, **SMALL))


def test_short_k_is_multiplied_in_plain_fp32(host):
    assert make_plan(host, m=256, n=128, k=32).text == "simt fp32: simt"


@pytest.mark.parametrize("majors", ALONG_MN.values(), ids=ALONG_MN)
def test_operands_along_m_or_n(host, majors):
    assert is_as_it_lies(make_plan(host, **SMALL, **majors))
    # A split reads either order; nothing is copied for it, and a weight is split as it lies.
    large = make_plan(host, **LARGE, **majors)
    assert ("weight split along N" in large.text) == ("major_w" in majors)
    text = large.text.replace("; weight split along N", "")
    assert large._replace(text=text) == make_plan(host, **LARGE)
    # Only one epilogue has kernels that read them.
    other = make_plan(host, **SMALL, **majors, epilogue="scale_batch_norm")
    assert other.split_rows == "splits repair"
    assert is_as_it_lies(make_plan(host, **SMALL, epilogue="scale_batch_norm"))


@pytest.mark.parametrize("majors", ALONG_MN.values(), ids=ALONG_MN)
def test_plain_fp32_reads_short_rows_in_either_order(host, majors):
    call = {"m": 256, "n": 128, "k": 32, "struck": "cublas"}
    assert make_plan(host, **call, **majors) == make_plan(host, **call)


@pytest.mark.parametrize("majors", ALONG_MN.values(), ids=ALONG_MN)
def test_a_split_along_m_or_n_takes_longer(host, majors):
    """Its rows' largest numbers are found in a pass of their own: more products are multiplied as
    they lie than of operands along K. A weight alone is split along N, in one pass: x pays for the
    scales of its rows, which is not much."""

    def count(order):
        calls = [
            {**GPUS["H200"], **NUMERICS["ieee"], "m": 512, "n": 512, "k": k, **order}
            for k in range(320, 16384, 64)
        ]
        return sum(map(is_as_it_lies, host.make_plans(calls)))

    more = count(majors) - count({})
    assert count({}) > 0 and (more > 0 if "major_x" in majors else more >= 0)


def test_a_batch_norm_in_training_has_split_rows(host):
    assert "splits" in make_plan(host, **SMALL, tail="batch_norm").split_rows


def test_what_is_forced_is_used(host):
    assert is_as_it_lies(make_plan(host, **LARGE, forced="tf32x3"))
    assert make_plan(host, **SMALL, forced="split_rows").split_rows == "splits repair"
    for numerics in ("bf16", "ieee"):  # what they say nothing of is as it was
        for name in ("tf32x3", "split_rows"):
            call = {"numerics": numerics, "tail": "batch_norm"}
            assert make_plan(host, **LARGE, **call, forced=name) == make_plan(host, **LARGE, **call)
    named = make_plan(host, **SMALL, forced="64x64x32.tf32x3@k4").text
    assert named == "tf32x3 fp32: 64x64x32.tf32x3@k4"
    assert "refused" in make_plan(host, numerics="bf16", **SMALL, forced="64x64x32.tf32x3").text
    # GPUs without clusters exchange sums through global memory.
    assert make_plan(host, "A100", **SMALL, forced="64x64x32.tf32x3@k4").text == named
    assert "refused" in make_plan(host, **SMALL, forced="64x64x32.tf32x3@k8").text
    assert "refused" in make_plan(host, m=64, n=64, k=96, forced="64x64x32.tf32x3@k4").text
    sm80 = make_plan(host, **SMALL, forced="sm80")
    assert sm80.text.startswith("sm80 fp16x3")


def test_tiles_for_9_0(host):
    """Of GPUs that run them, of matrices in whole pieces, to fp32."""
    named = make_plan(host, **LARGE, forced=f"{SM90}@k4").text
    assert named == f"tf32x3 fp32: {SM90}@k4"
    for majors in ALONG_MN.values():
        assert make_plan(host, **LARGE, **majors, forced=f"{SM90}@k4").text == named
    for changes in (
        *({"gpu": gpu} for gpu in GPUS if gpu != "H200"),
        {"sm90": 0},
        {"align_x": 8},
        {"align_w": 4},
        {"ldx": 8194},
        {"ldw": 8193},
        {"y_dtype": "bfloat16"},
        {"numerics": "bf16"},
        {"numerics": "tf32"},  # needs no three products
        {"epilogue": "scale_batch_norm"},
        {"k": 96},  # three stages
    ):
        assert "refused" in make_plan(host, **LARGE | changes, forced=f"{SM90}@k4").text, changes
    # Rows of y may begin anywhere.
    assert make_plan(host, **LARGE | {"n": 130, "align_y": 4}, forced=f"{SM90}@k4").text == named


def test_what_timing_found_is_ignored_where_it_cannot_serve(host):
    """Of another order or alignment than that which was timed, or before another epilogue: the
    estimates decide, and cuBLAS is among what they choose from."""
    tuned = f"{SM90}@k4"
    sums = {"m": 50, "n": 50, "k": 10000, "ldx": 50, "ldw": 50, "major_x": 1, "major_w": 1}
    rows = {"m": 4096, "n": 50, "k": 1000, "align_x": 4}
    for call in (sums, rows, SMALL | {"epilogue": "scale_batch_norm"}):
        untuned = make_plan(host, **call, bare=1).text
        assert make_plan(host, **call, bare=1, tuned=tuned).text == untuned
        assert SM90 not in untuned
    assert make_plan(host, **sums, bare=1).text == "cublas fp32: cublas"
    assert make_plan(host, **LARGE, bare=1, tuned=tuned).text == f"tf32x3 fp32: {tuned}"


@pytest.mark.parametrize(
    ("tile", "shares", "m", "expected"),
    [
        (SM90, 1, 128, "1 1"),
        (SM90, 2, 128, "2 1"),
        (SM90, 4, 128, "4 1"),
        (SM90, 8, 128, "1 8"),  # clusters of so many large blocks leave SMs idle
        (SM90, 2, 66 * 128, "2 1"),
        (SM90, 2, 67 * 128, "1 2"),  # more blocks than SMs
        (SM90, 4, 34 * 128, "1 4"),
        ("64x64x32.tf32x3", 8, 128, "8 1"),
        ("64x64x32.tf32x3", 4, 34 * 64, "2 2"),
    ],
)
def test_clusters_find_an_sm_for_each_block(host, tile, shares, m, expected):
    """K in slices of a cluster, and in parts of the grid."""
    call = GPUS["H200"] | NUMERICS["ieee"] | {"m": m, "n": 64, "k": 4096}
    assert host.run_all("shares", [call | {"forced": f"{tile}@k{shares}"}]) == [expected]


def test_what_is_tuned_is_used(host):
    named = make_plan(host, **LARGE, tuned="64x64x32.tf32x3@k2").text
    assert named == "tf32x3 fp32: 64x64x32.tf32x3@k2"
    split = host.list_tiles("ieee")[0]
    assert make_plan(host, **SMALL, tuned=split).split_rows == "splits repair"
    # Tiles are timed on operands along K.
    assert is_as_it_lies(make_plan(host, **SMALL, tuned=split, major_w=1))


@pytest.mark.parametrize("shape", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize(
    "tuned", ["tf32x3", "split_rows", "sm80", "64x64x32.tf32x3@k8", "a tile of bf16"]
)
def test_what_is_tuned_and_cannot_serve_is_ignored(host, shape, tuned):
    """No tile, or one of another Math row, or one that cuts K too often."""
    call = shape | {"k": 72}
    known = host.list_tiles("bf16")[0] if tuned == "a tile of bf16" else tuned
    for gpu in GPUS:
        assert make_plan(host, gpu, **call, tuned=known) == make_plan(host, gpu, **call)
