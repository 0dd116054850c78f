"""make_plan, a pure function over host integers, for four GPUs: tests/host/plan.cpp."""

import random
import re

import pytest
from host_program import compile_host_program
from plans import GPUS, MODELS, NUMERICS, TRACES, Host, list_calls, make_call


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    return Host(compile_host_program("plan", tmp_path_factory.mktemp("plan")))


@pytest.fixture(scope="module")
def forced_calls(host):
    """A plain product and a batch norm with every tile forced, and with what else can be."""
    return [
        make_call(gpu, model, numerics, forced=tile)
        for gpu in GPUS
        for model in ("12", "33", "84 eval")
        for numerics in NUMERICS
        for tile in (*host.list_tiles(numerics), "cublas", "sm80")
    ]


# ---- the models ----

# SM80 kernels on all but the H200. The RTX cards have no room for the largest tile.
STREAM_K = "128x128x64B.streamk"
SPLIT = "sm80 fp16x3: 128x128x128B"
LARGE = "128x256x128B/2x1.cooperative.swapped"
LARGE_SPLIT = "128x128x256B/2x1.cooperative.swapped"
GROUP = "128x256x128B/1x2.cooperative.swapped@n1; statistics: group"
BY_PRODUCT, IN_COLUMNS = "; statistics: product", "; statistics: columns"
ROWS, MERGE, SHIFTS = "; repair of rows", "; repair with the merge", "; z less shifts"
SMALL_GPUS = {
    "12": {
        "ieee": SPLIT + ROWS,
        "tf32": f"sm80 fp16x1: {STREAM_K}" + ROWS,
        "bf16": f"sm80 bf16: {STREAM_K}",
    },
    "33": {
        "ieee": SPLIT + BY_PRODUCT + MERGE,
        "tf32": f"sm80 fp16x1: {STREAM_K}" + IN_COLUMNS + ROWS,
        "bf16": f"sm80 bf16: {STREAM_K}" + IN_COLUMNS + SHIFTS,
    },
    "39": {
        "ieee": SPLIT + BY_PRODUCT + ROWS,
        "tf32": f"sm80 fp16x1: {STREAM_K}" + IN_COLUMNS + ROWS,
        "bf16": f"sm80 bf16: {STREAM_K}" + IN_COLUMNS + SHIFTS,
    },
}
SMALL_GPUS |= {"84": SMALL_GPUS["33"], "84 eval": SMALL_GPUS["12"]}
A100 = SMALL_GPUS | {
    "39": {
        "ieee": SPLIT + BY_PRODUCT + ROWS,
        "tf32": "sm80 fp16x1: 128x256x64B" + BY_PRODUCT + ROWS,
        "bf16": "sm80 bf16: 128x256x64B" + BY_PRODUCT + SHIFTS,
    }
}
H200 = {
    "12": {
        "ieee": f"sm90 fp16x3: {LARGE_SPLIT}@n8" + ROWS,
        "tf32": f"sm90 fp16x1: {LARGE}@n4" + ROWS,
        "bf16": f"sm90 bf16: {LARGE}@n4",
    },
    "33": {
        "ieee": f"sm90 fp16x3: {LARGE_SPLIT}@n8" + BY_PRODUCT + MERGE,
        "tf32": f"sm90 fp16x1: {LARGE}@n4" + BY_PRODUCT + MERGE,
        "bf16": f"sm90 bf16: {GROUP}",
    },
    "39": {
        "ieee": f"sm90 fp16x3: {LARGE_SPLIT}@n8" + BY_PRODUCT + ROWS,
        "tf32": f"sm90 fp16x1: {LARGE}@n8" + BY_PRODUCT + ROWS,
        "bf16": f"sm90 bf16: {LARGE}@n4; statistics: strips" + SHIFTS,
    },
}
H200 |= {
    "84": H200["33"],
    "84 eval": H200["12"] | {"bf16": f"sm90 bf16: {LARGE}@n4; logits in fp32"},
}
EXPECTED = {"A100": A100, "RTX 3090": SMALL_GPUS, "RTX 4090": SMALL_GPUS, "H200": H200}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("gpu", GPUS)
def test_models(host, gpu, model):
    expected = EXPECTED[gpu][model]
    expected |= {"fp16": expected["bf16"].replace(" bf16", " f16")}
    texts = {name: host.make_plan(**make_call(gpu, model, name)).text for name in NUMERICS}
    assert texts == expected


def test_split_rows_are_split_and_repaired(host):
    for model in MODELS:
        for gpu in GPUS:
            for name in NUMERICS:
                plan = host.make_plan(**make_call(gpu, model, name))
                splits = NUMERICS[name]["dtype"] == "float32"
                repair = "repair+merge" if MERGE in plan.text else "repair"
                assert plan.split_rows == (f"splits {repair}" if splits else "")
                assert (ROWS in plan.text) == (plan.split_rows == "splits repair")


# ---- a GPU of compute capability 10.0 ----

# Of a B200: nobody has read these numbers off one.
B200 = {"capability": 100, "sms": 148, "memory": 227}
TILE_SM100 = "128x128x128B.sm100"


def test_the_skeleton_serves_where_it_was_compiled(host):
    call = MODELS["12"] | NUMERICS["bf16"]
    assert host.make_plan(**B200, **call).text == f"sm80 bf16: {STREAM_K}"
    compiled = host.make_plan(**B200, **call, sm100=1)
    assert (compiled.text, compiled.kernel) == (
        f"sm100 bf16: {TILE_SM100}",
        "2 1 0 scale_leaky_relu",
    )
    for gpu in GPUS.values():  # its instructions are those of 10.0 alone
        assert host.make_plan(**gpu, **call, sm100=1) == host.make_plan(**gpu, **call)
    # Nor do the kernels of 9.0 run on 10.0.
    assert host.make_plan(**B200, **call, sm90=1).text == f"sm80 bf16: {STREAM_K}"


@pytest.mark.parametrize(
    "changes",
    [
        {"dtype": "float16"},
        {"dtype": "float32"},
        {"y_dtype": "float32"},
        {"k": 8191},  # TMA reads x and weight, and writes y
        {"n": 8191},
        {"k": 0},
    ],
    ids=str,
)
def test_what_the_skeleton_cannot_serve_is_left_to_sm80_kernels(host, changes):
    call = B200 | MODELS["12"] | NUMERICS["bf16"] | changes
    assert host.make_plan(**call, sm100=1) == host.make_plan(**call)


def test_a_batch_norm_stands_behind_the_skeleton(host):
    """By kernels of its own; a product that a launch refuses is planned again."""
    call = B200 | MODELS["33"] | NUMERICS["bf16"] | {"sm100": 1}
    assert host.make_plan(**call).text == f"sm100 bf16: {TILE_SM100}" + IN_COLUMNS + SHIFTS
    assert host.make_plan(**call).refused == "product"
    assert host.make_plan(**call, struck="product").text.startswith("sm80 bf16: ")


def test_the_skeleton_is_forced_and_tuned_by_its_name(host):
    call = MODELS["12"] | NUMERICS["bf16"]
    for compiled, expected in ((0, "refused"), (1, TILE_SM100)):
        plan = host.make_plan(**B200, **call, sm100=compiled, forced=TILE_SM100)
        assert plan.text.endswith(expected)
    for forced in ("128x128x64B", "cublas"):
        plan = host.make_plan(**B200, **call, sm100=1, forced=forced)
        assert plan.text.endswith(forced)
    plan = host.make_plan(**make_call("H200", "12", "bf16", forced=TILE_SM100))
    assert plan.text.endswith("refused")


# ---- other calls ----

# What is asked of an H200 and of an A100, and what both answer.
OTHERS = {
    "K in whole 4 bytes": ({"k": 8190}, f"{LARGE}@n4; x copied; weight copied", "4 bytes"),
    "odd K": ({"k": 8191}, f"{LARGE}@n4; x copied; weight copied", "2 bytes"),
    "x a view that is not aligned": ({"align_x": 2}, f"{LARGE}@n4; x copied", "2 bytes"),
    "odd N, many rows": (
        *({"n": 8191, "m": 4096}, "128x128x128B/2x1.pingpong.swapped.rows@n8"),
        STREAM_K,
    ),
    "odd N, long K": ({"n": 4095, "m": 2048, "k": 16384}, f"{LARGE}@n8; y copied", STREAM_K),
    "odd N, few rows": (
        *({"n": 8191, "m": 100}, "128x128x128B/1x1.split.swapped.direct@k2", STREAM_K),
    ),
    "an fp32 result": (
        *({"y_dtype": "float32"}, "128x128x128B/2x1.cooperative.direct@m1", STREAM_K),
    ),
    "one row": (
        *({"m": 1, "n": 4096, "k": 4096}, "32x16x512B/1x1.split.swapped.direct@k1"),
        "32x64x128B.streamk",
    ),
    "a small training step": (
        {"m": 200, "n": 512, "k": 512, "tail": "batch_norm", "keeps_z": 1},
        "32x64x256B/1x1.split.swapped.direct@k1; statistics: on chip",
        "64x64x128B; statistics: columns",
    ),
    "training that keeps z": (
        {"tail": "batch_norm", "keeps_z": 1, "has_centre": 1},
        f"{LARGE}@n4; statistics: product; z less shifts",
        f"{STREAM_K}; statistics: columns; z less shifts",
    ),
    "training that returns z as it is": (
        {"tail": "batch_norm", "keeps_z": 1},
        f"{LARGE}@n4; statistics: on chip",
        f"{STREAM_K}; statistics: columns",
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_calls_in_16_bits(host, name):
    changes, newest, older = OTHERS[name]
    older = f"rows aligned to {older}" if older.endswith(" bytes") else older
    for numerics, math in (("bf16", "bf16"), ("fp16", "f16")):
        texts = [
            host.make_plan(**make_call(gpu, "12", numerics, **changes)).text
            for gpu in ("H200", "A100")
        ]
        assert texts == [f"sm90 {math}: {newest}", f"sm80 {math}: {older}"]


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("numerics", NUMERICS)
def test_short_sums_run_on_cuda_cores(host, gpu, numerics):
    """Sums of fp32 up to a K of 32; of 16 bits only those of nothing. In TF32 cuBLAS may have them,
    whose choice is not this one."""
    for k in (0, 1, 32, 33):
        text = host.make_plan(**make_call(gpu, "12", numerics, k=k, struck="cublas")).text
        on_cores = k <= 32 if "32" in NUMERICS[numerics]["dtype"] else k == 0
        assert text.startswith("simt ") == on_cores
        assert not on_cores or text.endswith(": simt")


@pytest.mark.parametrize("numerics", ["ieee", "tf32"])
def test_split_rows_need_no_copies(host, numerics):
    """They lie in a layout of their own, whatever those that are given are aligned to."""
    for gpu in GPUS:
        whole, odd = (
            host.make_plan(**make_call(gpu, "12", numerics, k=k, align_x=align))
            for k, align in ((8192, 16), (8191, 4))
        )
        assert odd == whole


def test_without_shared_memory_nothing_serves(host):
    call = make_call("A100", "12", "bf16", memory=16)
    assert host.make_plan(**call).text == "sm80 bf16: none"


def test_without_its_kernels_an_h200_takes_those_for_every_gpu(host):
    """A build for 8.0 alone."""
    for numerics in NUMERICS:
        for model in MODELS:
            call = make_call("H200", model, numerics, sm90=0, struck="cublas")
            assert host.make_plan(**call).text.startswith("sm80 ")


# ---- a pure function ----


def test_same_call_same_plan_in_any_order(host, forced_calls):
    calls = list_calls() + forced_calls[:: len(GPUS)]
    plans = host.make_plans(calls)
    order = list(range(len(calls)))
    random.Random(0).shuffle(order)
    again = host.make_plans([calls[i] for i in order])
    assert again == [plans[i] for i in order]


# ---- what a launch refuses ----


def strike(call, *parts):
    return call | {"struck": ",".join(filter(None, (call.get("struck", ""), *parts)))}


@pytest.mark.parametrize("part", TRACES)
def test_what_is_struck_is_in_no_plan(host, part):
    """And a plan without it stays the same."""
    calls = list_calls()
    calls += [call | {"tuned": "cublas"} for call in calls]
    plans = host.make_plans(calls)
    struck = host.make_plans([strike(call, part) for call in calls])
    found = 0
    for call, before, after in zip(calls, plans, struck, strict=True):
        assert not re.search(TRACES[part], after.text), (call, after)
        if re.search(TRACES[part], before.text):
            found += 1
        else:
            assert after == before, call
    assert found


def test_refusals_end(host):
    """Every launch that can be refused is, one after another, until one cannot be: each plan lacks
    what the one before it was refused for, and the last one is of SM80 kernels or CUDA cores."""
    calls = list_calls()
    calls += [call | {"tuned": "cublas"} for call in calls]
    refused, steps = set(), 0
    while calls:
        left = []
        for call, plan in zip(calls, host.make_plans(calls), strict=True):
            parts = call.get("struck", "").split(",")
            assert not any(re.search(TRACES[part], plan.text) for part in filter(None, parts))
            if plan.refused == "-":
                assert re.match("sm80|simt|tf32x3", plan.text) and " copied" not in plan.text
                continue
            assert plan.refused not in parts and re.search(TRACES[plan.refused], plan.text)
            refused.add(plan.refused)
            left.append(strike(call, plan.refused))
        calls, steps = left, steps + 1
        assert steps <= len(TRACES)
    # A kernel that keeps z on chip stands behind a product; what takes its place does too.
    assert refused == TRACES.keys() - {"on_chip"}


def test_refused_training_of_model_33(host):
    """All that can happen to one call."""
    call, texts, refused = make_call("H200", "33", "bf16"), [], ""
    while refused != "-":
        call = strike(call, refused)
        text, _, refused, _ = host.make_plan(**call)
        texts.append(text.partition(": ")[2])
    assert texts == [
        GROUP,
        f"{LARGE}@n4" + BY_PRODUCT + SHIFTS,
        f"{LARGE}@n4; statistics: on chip" + SHIFTS,
        "128x256x64B; statistics: on chip" + SHIFTS,
    ]


# ---- overrides ----


def can_be_forced(tile, call):
    """For rows of whole 16 bytes."""
    if "/" not in tile:
        if call["memory"] == 99 and tile == "128x256x64B":
            return False  # too little shared memory
        # A batch norm stands behind tiles alone.
        is_norm = call.get("tail") == "batch_norm"
        return tile != "cublas" or call["dtype"] != "float32" or not is_norm
    if call["capability"] != 90:
        return False
    # TMA writes 16-bit numbers only; wide tiles that slice K have no registers for others.
    wide = ".split" in tile and int(re.match(r"\d+x(\d+)", tile)[1]) > 128
    return (".direct" in tile and not wide) or call.get("y_dtype", call["dtype"]) == call["dtype"]


def test_a_forced_tile_is_used_or_refused(host, forced_calls):
    for call, plan in zip(forced_calls, host.make_plans(forced_calls), strict=True):
        tile, kernel = call["forced"], plan.text.partition(": ")[2].partition(";")[0]
        if not can_be_forced(tile, call):
            assert kernel == "refused", (call, plan)
        elif tile == "sm80":
            assert plan.text.startswith("sm80 ") and kernel != "refused"
        else:
            assert kernel.partition("@")[0] == tile, (call, plan)
        # They stand behind a product alone, but for SM80 tiles that find statistics too.
        assert not re.search(r"group|strips|logits|^sm90.*statistics: product", plan.text)
        by_product = call.get("tail") == "batch_norm" and re.fullmatch(r"128x\d+x\d+B", kernel)
        assert ("statistics: product" in plan.text) == bool(by_product), (call, plan)


def test_a_raster_is_forced_with_a_tile(host):
    for raster in ("m4", "n2"):
        call = make_call("H200", "12", "bf16", forced=f"{LARGE}@{raster}")
        assert host.make_plan(**call).text == f"sm90 bf16: {LARGE}@{raster}"


@pytest.mark.parametrize("tile", ["sm80", "128x256x64B", LARGE])
@pytest.mark.parametrize("numerics", ["ieee", "tf32"])
@pytest.mark.parametrize("model", ["12", "33"])
def test_one_kernel_for_short_sums_whatever_is_forced(host, tile, numerics, model):
    for gpu in GPUS:
        call = make_call(gpu, model, numerics, k=32, forced=tile)
        assert host.make_plan(**call).text.startswith("simt fp32: simt")


def test_a_tuned_tile_is_used_where_it_serves(host):
    """Else the estimates choose; nothing is refused."""
    for gpu in GPUS:
        for numerics in NUMERICS:
            call = make_call(gpu, "12", numerics)
            estimated = host.make_plan(**call).text
            for tile in (*host.list_tiles("bf16"), *host.list_tiles("ieee"), "cublas"):
                text = host.make_plan(**call, tuned=tile).text
                forced = host.make_plan(**call, forced=tile).text
                assert text == (estimated if forced.endswith(": refused") else forced)


def test_a_tuned_tile_is_that_of_a_product_alone(host):
    """Kernels with a tile of their own stay."""
    for model, numerics in (("33", "bf16"), ("39", "fp16"), ("33", "ieee"), ("84 eval", "bf16")):
        call = make_call("H200", model, numerics)
        for tile in ("128x128x128B/2x1.pingpong.swapped@m1", "128x128x64B", "cublas"):
            assert host.make_plan(**call, tuned=tile) == host.make_plan(**call)


def test_a_tuned_sm80_tile_does_not_read_copies(host):
    call = make_call("H200", "12", "bf16", k=8191)
    assert host.make_plan(**call, tuned="128x128x64B") == host.make_plan(**call)
    assert host.make_plan(**call, tuned=f"{LARGE}@m1").text.endswith(
        f"{LARGE}@m1; x copied; weight copied"
    )
