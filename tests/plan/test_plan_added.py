"""Plans with epilogues that only some kernels have (gemm/compiled.hpp): a sum, an open epilogue."""

import itertools

import pytest
from host_program import compile_host_program
from plans import GPUS, NUMERICS, Host

BEHIND = "; epilogue behind"
ADDED, OPEN = {"epilogue": "add_scaled"}, {"epilogue": "open"}
# Few rows and many, K for CUDA cores, small products, one that no tile divides.
SIZES = [(1, 4096, 4096), (256, 128, 512), (512, 512, 512), (4096, 4096, 4096), (600, 129, 1001)]
SIZES += [(70, 136, 32), (70, 136, 0), (16384, 64, 64)]


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    return Host(compile_host_program("plan", tmp_path_factory.mktemp("plan")))


def make_both(host, **call):
    """The plan of the sum, and that of another epilogue that has every kernel."""
    return host.make_plans([call | ADDED, call])


def list_calls():
    gpus, numerics = GPUS.values(), (NUMERICS["ieee"], NUMERICS["tf32"])
    majors = ({}, {"major_w": 1}, {"major_x": 1, "major_w": 1})
    alignments = ({}, {"align_x": 4})
    for gpu, (m, n, k), *changes in itertools.product(gpus, SIZES, numerics, majors, alignments):
        call = gpu | {"m": m, "n": n, "k": k}
        for change in changes:
            call |= change
        if call.get("major_w"):
            call["ldw"] = n
        if call.get("major_x"):
            call["ldx"] = m
        yield call


def test_the_choice_is_that_of_other_epilogues(host):
    """But for who computes the sum: so a tile that was timed serves both. Of parts that lie along N
    none is timed, and only gradients read them."""
    calls = [call for call in list_calls() if call["capability"] != 90 or not call.get("major_w")]
    added, others = (
        host.make_plans([call | epilogue for call in calls]) for epilogue in (ADDED, {})
    )
    for call, plan, other in zip(calls, added, others, strict=True):
        assert plan.text.removesuffix(BEHIND) == other.text, call
        assert (plan.split_rows, plan.refused) == (other.split_rows, other.refused), call
        name = "scale_leaky_relu" if plan.text.endswith(BEHIND) else "add_scaled"
        assert plan.kernel == other.kernel.replace("scale_leaky_relu", name), call
    ends = {plan.text.endswith(BEHIND) for plan in added}
    assert ends == {True, False}


@pytest.mark.parametrize(
    "call, fuses",
    [
        ({"m": 4096, "forced": "split_rows"}, True),
        ({"m": 16, "forced": "split_rows"}, True),  # K in slices
        ({"m": 4096, "forced": "split_rows", "coarse": 1}, False),
        ({"m": 4096, "forced": "sm80"}, False),
        ({"m": 4096, "forced": "cublas"}, True),  # one pass, as of any epilogue
        ({"m": 256, "forced": "tf32x3"}, True),
        ({"m": 256, "forced": "64x64x32.tf32x3@k4"}, True),
        ({"m": 256, "forced": "128x128x32.sm90.tf32x3@k4"}, True),
        ({"m": 256, "forced": "tf32x3", "major_w": 1}, True),
        ({"m": 256, "forced": "tf32x3", "major_w": 1, "major_x": 1, "ldx": 256}, True),
        ({"m": 256, "forced": "tf32x3", "major_x": 1, "ldx": 256}, False),  # which no layer has
        ({"m": 256, "forced": "tf32x3", "align_x": 4}, False),  # no whole pieces
        ({"m": 256, "forced": "tf32x3", "ldw": 1026}, False),
        ({"m": 256, "forced": "tf32x3", "coarse": 1}, False),  # one product
        ({"m": 256, "k": 32, "struck": "cublas"}, True),  # CUDA cores
        ({"m": 256, "k": 0}, True),
    ],
    ids=str,
)
def test_which_kernels_do_both(host, call, fuses):
    call = GPUS["H200"] | NUMERICS["ieee"] | {"n": 1024, "k": 1024} | call
    plan, other = make_both(host, **call)
    assert "refused" not in plan.text and plan.text == other.text + ("" if fuses else BEHIND)


def test_gpus_before_9_0_compute_the_sum_behind_split_rows(host):
    for gpu in ("A100", "RTX 3090", "RTX 4090"):
        call = GPUS[gpu] | NUMERICS["ieee"] | {"m": 4096, "n": 4096, "k": 4096}
        plan, _ = make_both(host, **call)
        assert plan.text.startswith("sm80 fp16x3") and plan.text.endswith(BEHIND)


def test_the_key_tells_them_apart(host):
    call = GPUS["H200"] | NUMERICS["ieee"] | {"m": 64, "n": 64, "k": 64}
    assert len(set(host.run_all("key", [call, call | ADDED]))) == 2


def test_every_tile_has_an_open_epilogue_and_nothing_else_does(host):
    calls = [
        gpu | numerics | OPEN | {"m": m, "n": n, "k": k} | rows
        for gpu, numerics, (m, n, k), rows in itertools.product(
            GPUS.values(), NUMERICS.values(), SIZES, ({}, {"align_x": 4})
        )
    ]
    fused = set()
    for call, plan in zip(calls, host.make_plans(calls), strict=True):
        # Of a tile of the table, not of the kernels for rows that are aligned to fewer bytes.
        is_of_tile = plan.kernel != "-" and int(plan.kernel.split()[2]) >= 0
        assert plan.kernel.endswith(" open") == is_of_tile, (call, plan)
        has_pieces = call["k"] % 4 == 0 and "align_x" not in call
        as_they_lie = has_pieces and call["capability"] == 90 and plan.text.startswith("tf32x3 ")
        assert plan.text.endswith(BEHIND) == (not is_of_tile and not as_they_lie), (call, plan)
        fused.add((is_of_tile, as_they_lie))
    assert len(fused) == 3


def test_no_open_product_leaves_parts_for_a_pass(host):
    """Of few rows K is cut into no more shares than blocks of a cluster have."""
    of_rows = GPUS["H200"] | NUMERICS["ieee"] | {"m": 1, "n": 1024, "k": 1024}
    plan, other = host.make_plans([of_rows | OPEN, of_rows])
    assert plan.text == "tf32x3 fp32: 32x64x64w2.tf32x3@k4; program within"
    assert other.text == "tf32x3 fp32: 32x32x64w4.tf32x3@k8"


@pytest.mark.parametrize(
    "call, fuses",
    [
        ({}, True),
        ({"m": 4096, "forced": "32x32x64w4.tf32x3"}, True),
        ({"forced": "64x64x64.tf32x3"}, True),
        ({"forced": "128x128x32.sm90.tf32x3"}, False),  # it has none
        ({"m": 64, "forced": "32x32x64w4.tf32x3@k8"}, False),  # in parts
        ({"ldx": 513}, False),
    ],
    ids=str,
)
def test_which_kernels_of_tf32x3_are_open(host, call, fuses):
    small = GPUS["H200"] | NUMERICS["ieee"] | {"m": 256, "n": 512, "k": 512}
    plan = host.make_plan(**small | {"forced": "tf32x3"} | OPEN | call)
    ends = "; program within" if fuses else BEHIND
    if "sm90" in call.get("forced", ""):
        assert "refused" in plan.text
    else:
        assert plan.text.startswith("tf32x3 ") and plan.text.endswith(ends), plan


def test_few_rows_before_a_weight_along_n(host):
    """A kernel that reads it as it lies, which is no open one, and a pass: to split it first takes
    longer, at 16 x 768 x 512 20 us for 11 on an H200."""
    call = GPUS["H200"] | NUMERICS["ieee"] | OPEN | {"n": 768, "k": 512, "major_w": 1}
    for m in (4, 16, 64, 128):
        plan = host.make_plan(**call | {"m": m})
        assert plan.text.startswith("tf32x3 fp32: ") and plan.text.endswith(BEHIND), plan
    assert host.make_plan(**call | {"m": 8192}).text.startswith("sm90 fp16x3")
    forced = host.make_plan(**call | {"m": 8192, "forced": "32x32x64w4.tf32x3@k4"})
    assert forced.text == "tf32x3 fp32: 32x32x64w4.tf32x3@k4" + BEHIND
    of_tf32 = host.make_plan(**call | NUMERICS["tf32"] | {"m": 16})
    assert of_tf32.text == "cublas tf32: cublas" + BEHIND


def test_no_tile_is_slower_than_the_product_and_a_pass(host):
    """By the estimates, unless it is forced: of a long K, which more parts serve."""
    call = GPUS["H200"] | NUMERICS["ieee"] | OPEN | {"m": 32, "n": 64, "k": 16384}
    assert host.make_plan(**call).text == "tf32x3 fp32: 32x32x64w4.tf32x3@k64" + BEHIND
    for found in ({"forced": "32x32x64w4.tf32x3@k8"}, {"tuned": "32x32x64w4.tf32x3@k8"}):
        assert host.make_plan(**call | found).text.endswith("@k8; program within")
    # Nor are split rows, where parts of a long K and a pass take less.
    plan = host.make_plan(**call | {"m": 64, "n": 1024, "k": 4096})
    assert plan.text == "tf32x3 fp32: 64x128x32.sm90.tf32x3@k16" + BEHIND


@pytest.mark.parametrize(
    "call, fuses",
    [
        ({}, True),
        ({"forced": "sm80"}, True),
        ({"forced": "cublas"}, False),
        ({"align_x": 4, "forced": "sm80"}, False),  # the kernel for such rows
        ({"k": 0}, False),  # CUDA cores
    ],
    ids=str,
)
def test_which_kernels_are_open(host, call, fuses):
    of_bf16 = GPUS["H200"] | NUMERICS["bf16"] | {"m": 4096, "n": 4096, "k": 4096}
    plan = host.make_plan(**of_bf16 | OPEN | call)
    assert plan.kernel.endswith(" open") == fuses, plan
    assert plan.text.endswith(BEHIND) == (not fuses), plan


def test_no_plan_of_split_rows_reads_a_weight_along_n(host):
    """There is no open kernel for it."""
    for numerics in ("ieee", "tf32"):
        call = GPUS["H200"] | NUMERICS[numerics] | {"m": 4096, "n": 4096, "k": 4096}
        plan = host.make_plan(**call | OPEN | {"major_w": 1, "ldw": 4096})
        assert "along n" not in plan.text.lower(), plan


MODEL = {"m": 1024, "n": 8192, "k": 8192}


# ---- other tiles than the plan's ----


def list_others(host, gpu="H200", numerics="bf16", **changes):
    call = GPUS[gpu] | MODEL | NUMERICS[numerics] | OPEN | changes
    (answer,) = host.run_all("others", [call])
    plan = host.make_plan(**call)
    return plan.text, [each for each in answer.split("\t") if each]


@pytest.mark.parametrize("numerics", ["ieee", "tf32", "bf16", "fp16"])
@pytest.mark.parametrize("gpu", GPUS)
def test_other_tiles(host, gpu, numerics):
    """The plan's own is the cheapest, and each stands there once."""
    text, others = list_others(host, gpu, numerics, k=4096)
    if "cublas" in text or text.endswith(BEHIND):
        assert others == []
        return
    tile = others[0].split(";")[0].split()[1]
    assert tile in text and len(set(others)) == len(others) >= 4


@pytest.mark.parametrize("numerics", ["ieee", "tf32"])
def test_other_tiles_of_small_products(host, numerics):
    """Those of tf32x3 that have an open kernel, also where a pass would take less."""
    text, others = list_others(host, "H200", numerics, m=16384, n=64, k=64)
    tiles = [each.split(";")[0].split()[1].partition("@")[0] for each in others]
    assert tiles[0] in text and text.endswith("; program within")
    assert sorted(tiles) == [
        *("32x32x64w4.tf32x3", "32x64x64w2.tf32x3", "64x64x32.tf32x3", "64x64x64.tf32x3"),
    ]
    assert list_others(host, "A100", numerics, m=16384, n=64, k=64)[1] == []


def test_other_tiles_read_the_same_rows(host):
    """What is copied for a generation is read by it alone; of rows of y that TMA cannot write,
    tiles that write any."""
    _, others = list_others(host, n=8191)
    assert others
    assert all("direct" in each or "rows" in each or "y copied" in each for each in others)
    _, copied = list_others(host, k=4100, ldx=4101, ldw=4101)
    assert copied and all(each.startswith("sm90") for each in copied if "copied" in each)


def test_no_other_tiles(host):
    """Of what multiplies without one."""
    assert list_others(host, numerics="ieee", k=16)[1] == []
    assert list_others(host, forced="cublas")[1] == []
