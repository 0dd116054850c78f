"""autotune on a GPU: the tiles that it finds are those that run, and a call owes its surroundings
the same as ever."""

import json
import re
import threading

import pytest
import torch
from accuracy import Judge
from calls import BATCH_NORM, LINEAR, OPS
from cases import BF16, FP16_FP32, IEEE, NUMERICS, TF32, Shape, make_call
from layouts import misalign_rows
from logged import run_logged
from tiles import (
    force_tile,
    has_sm90_kernels,
    list_cublas,
    list_sm80_tiles,
    list_sm90_tiles,
    list_tf32x3_tiles,
)

import cutlass_fused
from cutlass_fused import functional, nn
from cutlass_fused.tuning import _autotune, _cache, _tuned

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("choose_freely")]

RAGGED = Shape(133, 264, 96, "ragged last tiles, rows of whole 16 bytes")


@pytest.fixture(autouse=True)
def forget(monkeypatch, tmp_path):
    """Each test starts as a new process with an empty cache, and leaves nothing tuned."""
    monkeypatch.setenv("CUTLASS_FUSED_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(_tuned, "_tiles", {})
    monkeypatch.setattr(_tuned, "_read", set())
    yield
    for keys in _tuned._tiles.values():
        for key in keys:
            for index in range(torch.cuda.device_count()):
                torch.ops.cutlass_fused.tune_tile(index, key, "")


@pytest.fixture
def timed(monkeypatch):
    """The products that were timed, in order."""
    timed, find_fastest = [], _autotune.find_fastest

    def find(product):
        timed.append(product)
        return find_fastest(product)

    monkeypatch.setattr(_autotune, "find_fastest", find)
    return timed


def record(call):
    """What autotune would be told of the call."""
    torch.ops.cutlass_fused.record_products(True)
    try:
        call.run()
    finally:
        products = json.loads(torch.ops.cutlass_fused.record_products(False))
    return products


# ---- what is met, and what can be chosen ----


@pytest.mark.parametrize("numerics", NUMERICS, ids=str)
@pytest.mark.parametrize("op", OPS)
def test_product_and_its_candidates(device, op, numerics):
    call = make_call(op, RAGGED, numerics, device)
    (product,) = record(call)
    dtypes = [str(dtype).removeprefix("torch.") for dtype in (call.x.dtype, call.result_dtype)]
    assert [product[name] for name in ("dtype", "out_dtype")] == dtypes
    assert [product[name] for name in ("device", "m", "n", "k")] == [0, 133, 264, 96]
    assert product["precision"] == call.precision
    assert product["choice"] in product["tiles"]
    tiles = list(dict.fromkeys(tile.partition("@")[0] for tile in product["tiles"]))
    assert [tile for tile in tiles if "/" in tile] == list_sm90_tiles(call)
    assert [tile for tile in tiles if tile == "cublas"] == list_cublas(call)
    as_they_lie = {tile for tile in tiles if tile.endswith(".tf32x3")}
    # As they are timed: alone. What stands behind the product may rule out some.
    alone = make_call(LINEAR, RAGGED, numerics, device)
    assert as_they_lie <= set(list_tf32x3_tiles(alone))
    assert bool(as_they_lie) == (call.x.dtype == torch.float32)
    # If they fit in shared memory.
    older = {tile for tile in tiles if "/" not in tile} - {"cublas"} - as_they_lie
    assert older <= set(list_sm80_tiles(call)) and len(older) > 2


def test_what_leaves_no_choice_is_not_recorded(device):
    call = make_call(LINEAR, RAGGED, BF16, device)
    unaligned = call.change(x=misalign_rows(call.x))
    assert len(record(unaligned)) == has_sm90_kernels(device)  # which read a copy
    with force_tile(list_sm80_tiles(call)[0]):
        assert record(call) == []
    assert record(make_call(LINEAR, Shape(70, 136, 32, "K on CUDA cores"), IEEE, device)) == []
    assert record(call.change(x=call.x[:0])) == []
    assert len(record(call)) == 1


# ---- what runs ----


def test_tuned_tile_is_the_one_that_runs():
    """Every candidate, by the log, which is switched on when the process starts. Where it cannot
    stand before an epilogue, what would have run without it runs."""
    code = """
        import json, torch
        from calls import OPS
        from cases import NUMERICS, Shape, make_call
        from tiles import list_tf32x3_tiles
        ops = torch.ops.cutlass_fused
        for op in OPS:
            for numerics in NUMERICS:
                call = make_call(op, Shape(133, 264, 96, "ragged"), numerics, "cuda")
                ops.record_products(True)
                call.run()
                (product,) = json.loads(ops.record_products(False))
                print(product["choice"])
                own = list_tf32x3_tiles(call)
                for tile in product["tiles"]:
                    ops.tune_tile(0, product["key"], tile)
                    call.run()
                    is_alone = ".tf32x3" in tile and tile.partition("@")[0] not in own
                    print(product["choice"] if is_alone else tile)
                ops.tune_tile(0, product["key"], "")
                call.run()
                print(product["choice"])
        torch.cuda.synchronize()
    """
    tiles, log = run_logged(code)
    assert len(log) == len(tiles) > 100
    for line, tile in zip(log, tiles, strict=True):
        arch = tile if tile == "cublas" else "tf32x3" if ".tf32x3" in tile else r"sm\d0"
        assert re.fullmatch(
            rf"cutlass_fused: {arch} .*: {re.escape(tile)}(; repair of rows)?", line
        )


AUTOTUNE = """
    import sys, torch, cutlass_fused
    from accuracy import Judge
    from calls import LEAKY
    from cases import BF16, TF32, Shape, make_call
    for numerics in (BF16, TF32):
        call = make_call(LEAKY, Shape(1030, 520, 1032, "ragged"), numerics, "cuda")
        with cutlass_fused.autotune():
            call.run()
        print("--", file=sys.stderr)
        Judge(call).check(call.run())
        print("--", file=sys.stderr)
"""


def test_tuned_tile_is_right_and_used_by_the_next_process(device, tmp_path):
    folder = {"CUTLASS_FUSED_CACHE_DIR": str(tmp_path / "processes")}
    _, log = run_logged(AUTOTUNE, **folder)
    (path,) = (tmp_path / "processes").iterdir()
    tiles = json.loads(path.read_text())["tiles"]
    assert [key.split()[0] for key in tiles] == ["bf16", "fp16x1"]
    parts = " ".join(log).split("--")
    for timed, used, tile in zip(parts[0::2], parts[1::2], tiles.values(), strict=False):
        assert timed.count("cutlass_fused:") > 10
        assert used.count("cutlass_fused:") == 1 and f": {tile}" in used
    before = path.stat().st_mtime_ns
    _, again = run_logged(AUTOTUNE, **folder)
    assert len(again) == 2 * 2 + 4  # two calls of each, four marks
    ran = [line.split(": ")[-1] for line in again if line != "--"]
    assert ran[0::2] == ran[1::2]
    assert path.stat().st_mtime_ns == before


@pytest.mark.parametrize("numerics", [BF16, FP16_FP32, IEEE, TF32], ids=str)
def test_result_is_right(device, timed, numerics):
    call = make_call(BATCH_NORM, RAGGED, numerics, device)
    judge = Judge(call)
    judge.check(cutlass_fused.autotune(call.run))
    judge.check(call.run())
    assert len(timed) == 1
    assert record(call) == []


# ---- models ----


def make_model(device):
    torch.manual_seed(0)
    model = nn.LinearScaleBatchNorm1d(96, 264, (264,)).to(device)
    return model, torch.randn(133, 96, device=device)


def test_training_updates_its_statistics_once(device, timed):
    (model, x), (plain, _) = make_model(device), make_model(device)
    expected = plain(x)
    assert torch.equal(cutlass_fused.autotune(model, x), expected)
    assert len(timed) == 1
    assert model.bn.num_batches_tracked == 1
    for name, tensor in plain.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor), name


def test_backward_pass_is_tuned_too(device, timed):
    x, weight = (torch.randn(rows, 96, device=device, requires_grad=True) for rows in (136, 264))
    with cutlass_fused.autotune():
        functional.linear(x, weight, precision="tf32").sum().backward()
    sizes = {(product.m, product.n, product.k) for product in timed}
    assert sizes == {(136, 264, 96), (136, 96, 264), (264, 96, 136)}


def test_compiled_model_is_tuned_and_not_compiled_again(device, timed):
    weight = torch.randn(264, 96, device=device)
    x = torch.randn(133, 96, device=device)
    compiled = torch.compile(lambda x: functional.linear(x, weight).relu(), fullgraph=True)
    with torch.no_grad():
        with cutlass_fused.autotune():
            compiled(x)
        assert len(timed) == 1
        with torch.compiler.set_stance("fail_on_recompile"):
            compiled(x)


def test_random_numbers_are_left_alone(device):
    call = make_call(LINEAR, RAGGED, BF16, device)
    before = torch.cuda.get_rng_state(device)
    cutlass_fused.autotune(call.run)
    assert torch.equal(torch.cuda.get_rng_state(device), before)


# ---- graphs, threads, devices ----


def capture(call, context):
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with context(), torch.cuda.graph(graph):
        result = call.run()
    return graph, result


def check_replay(call, graph, result):
    result.fill_(torch.nan)
    graph.replay()
    torch.cuda.synchronize()
    Judge(call).check(result)


def test_nothing_is_timed_of_what_is_captured(device, timed):
    call = make_call(LINEAR, RAGGED, BF16, device)
    call.run()
    graph, result = capture(call, cutlass_fused.autotune)
    assert timed == []
    check_replay(call, graph, result)


def test_context_within_a_capture(device, timed):
    call = make_call(LINEAR, RAGGED, BF16, device)
    call.run()
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        result = cutlass_fused.autotune(call.run)
    assert timed == []
    check_replay(call, graph, result)


def test_graph_keeps_its_tile(device, timed):
    """Captured before and after: tuning changes neither."""
    call = make_call(LINEAR, RAGGED, BF16, device)
    call.run()
    before = capture(call, lambda: torch.cuda.device(device))
    cutlass_fused.autotune(call.run)
    assert len(timed) == 1
    after = capture(call, lambda: torch.cuda.device(device))
    check_replay(call, *before)
    check_replay(call, *after)


def test_calls_of_other_threads_stay_right(device):
    """Calls of the product that is timed meanwhile, and of an element type that has other tiles."""
    calls = [make_call(LINEAR, RAGGED, numerics, device) for numerics in (BF16, IEEE)]
    judges = [Judge(call) for call in calls]
    done, failures = threading.Event(), []

    def run(call, judge):
        try:
            while not done.is_set():
                judge.check(call.run())
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=pair) for pair in zip(calls, judges, strict=True)]
    for thread in threads:
        thread.start()
    try:
        cutlass_fused.autotune(calls[0].run)
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert not failures


def test_second_device_is_tuned_with_the_first(device, timed):
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    names = [torch.cuda.get_device_name(i) for i in range(2)]
    calls = [make_call(LINEAR, RAGGED, BF16, torch.device("cuda", i)) for i in range(2)]
    for call in calls:
        cutlass_fused.autotune(call.run)
    assert len(timed) == len(set(names))
    for call in calls:
        assert record(call) == []
        Judge(call).check(call.run())
    assert _cache.read_tiles(names[0])
