"""Programs on elements in memory, by kernels that are compiled for them."""

import os
import subprocess
import sys
import threading

import pytest
import torch
import traced
from program_cases import CASES

pytestmark = pytest.mark.gpu

ops = torch.ops.cutlass_fused
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# M, N
SHAPES = (
    (1, 1),
    (3, 7),  # no piece but of one element
    (23, 18),  # pieces of two
    (257, 520),  # rows of whole pieces, and no whole number of blocks
    (1000, 1001),  # rows that begin anywhere
    (5, 40000),  # more pieces of a row than threads of a block
    (70000, 8),  # more rows than blocks
)
GATED = traced.find_program("geglu", CASES["geglu"]).text  # a row and a tile


def find_name(dtype):
    return str(dtype).removeprefix("torch.")


def judge(ours, eager, truth):
    """The largest error is at most twice eager's and an ulp of the largest result."""
    assert torch.equal(ours.isnan(), eager.isnan())
    is_finite = truth.isfinite() & eager.isfinite()
    assert torch.equal(ours[~is_finite].nan_to_num(), eager[~is_finite].nan_to_num())
    if not is_finite.any():
        return
    truth = truth[is_finite]
    ulp = torch.finfo(ours.dtype).eps * truth.abs().max() + torch.finfo(ours.dtype).tiny
    error, of_eager = ((y[is_finite].double() - truth).abs().max() for y in (ours, eager))
    assert error <= 2 * of_eager + ulp, (error, of_eager)


def run_case(name, tensors, out):
    """Ours, the function in fp32 on the GPU, and in float64; the results rounded alike."""
    case = CASES[name]
    text = traced.find_program(name, case).text
    ours = ops.apply_program(tensors[0], tensors[1:], text, find_name(out))
    eager = traced.call(case, [each.float() for each in tensors])
    truth = traced.call(case, [each.double() for each in tensors])
    return zip(ours, [each.to(out) for each in eager], truth, strict=True)


@pytest.mark.parametrize("index", range(len(CASES)), ids=list(CASES))
def test_values(index):
    name = list(CASES)[index]
    for i, shape in enumerate(SHAPES):
        made = traced.make_tensors(CASES[name], torch.float32, shape)
        tensors = [
            each.to("cuda", DTYPES[(index + i + place) % 3]) for place, each in enumerate(made)
        ]
        for ours, eager, truth in run_case(name, tensors, DTYPES[(index // 3 + i) % 3]):
            judge(ours, eager, truth)


@pytest.mark.parametrize("name", CASES)
def test_special_values(name):
    tensors = [each.cuda() for each in traced.make_special(CASES[name])]
    for ours, eager, truth in run_case(name, tensors, torch.float32):
        judge(ours, eager, truth)


def test_layouts():
    """Rows that are farther apart, begin anywhere, lie along M, or are one."""
    torch.manual_seed(1)
    acc, bias, up = (torch.randn(shape, device="cuda") for shape in ((64, 48), (48,), (64, 48)))
    (expected,) = ops.apply_program(acc, [bias, up], GATED)

    def put(tensor, offset, more):
        wide = torch.full((tensor.shape[0], tensor.shape[1] + more), torch.nan, device="cuda")
        view = wide[:, offset : offset + tensor.shape[1]]
        view.copy_(tensor)
        return view

    for offset, more in ((0, 16), (1, 5), (2, 8), (4, 4)):
        (y,) = ops.apply_program(put(acc, offset, more), [bias, put(up, offset, more)], GATED)
        assert torch.equal(y, expected)
    (y,) = ops.apply_program(acc.t().contiguous().t(), [bias.repeat(2)[::2][:48], up], GATED)
    every_second = bias.repeat_interleave(2)[::2]
    (y,) = ops.apply_program(acc.t().contiguous().t(), [every_second, up], GATED)
    assert torch.equal(y, expected)
    row = up[:1].expand(64, 48)
    (y,) = ops.apply_program(acc, [bias, row], GATED)
    assert torch.equal(y, ops.apply_program(acc, [bias, row.contiguous()], GATED)[0])
    batch = acc.view(4, 16, 48), [bias, up.view(4, 16, 48)]
    assert torch.equal(ops.apply_program(*batch, GATED)[0].view(64, 48), expected)


@pytest.mark.parametrize("leading", [(), (0,), (3, 0, 2)])
def test_few_rows(leading):
    acc, bias = torch.randn(*leading, 9, device="cuda"), torch.randn(9, device="cuda")
    (y,) = ops.apply_program(acc, [bias, acc], GATED)
    expected = torch.nn.functional.gelu(acc + bias) * acc
    torch.testing.assert_close(y, expected)


def test_captured():
    """Behind a first call: then also with tensors that are filled anew."""
    torch.manual_seed(2)
    acc, bias, up = (torch.randn(shape, device="cuda") for shape in ((64, 48), (48,), (64, 48)))
    ops.apply_program(acc, [bias, up], GATED)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        (y,) = ops.apply_program(acc, [bias, up], GATED)
    for _ in range(2):
        acc.normal_()
        graph.replay()
        assert torch.equal(y, ops.apply_program(acc, [bias, up], GATED)[0])


def test_captured_first():
    text = "program 1\noperands 0\nv0 = mul acc 0x1.23456789p+3\nreturn v0\n"
    acc = torch.randn(4, 4, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="must run once before a graph is captured"):
        with torch.cuda.graph(graph):
            ops.apply_program(acc, [], text)
    torch.testing.assert_close(
        ops.apply_program(acc, [], text)[0], acc * float.fromhex("0x1.23456789p+3")
    )


def test_streams():
    """On the current one, without waiting for it."""
    acc, bias = torch.randn(2048, 2048, device="cuda"), torch.randn(2048, device="cuda")
    (expected,) = ops.apply_program(acc, [bias, acc], GATED)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    torch.cuda.set_sync_debug_mode("error")
    try:
        with torch.cuda.stream(stream):
            torch.cuda._sleep(10_000_000)
            late = acc * 2
            (y,) = ops.apply_program(late, [bias, late], GATED)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    stream.synchronize()
    assert torch.equal(y, ops.apply_program(acc * 2, [bias, acc * 2], GATED)[0])
    assert not torch.equal(y, expected)


def test_kept_between_processes(tmp_path):
    """The second takes the kernel from the folder, whose files are the user's alone."""
    code = (
        "import torch, cutlass_fused; acc = torch.ones(4, 8, device='cuda'); "
        "print(torch.ops.cutlass_fused.apply_program("
        "acc, [], 'program 1\\noperands 0\\nv0 = exp acc\\nreturn v0\\n')[0].sum().item())"
    )
    environment = os.environ | {
        "CUTLASS_FUSED_CACHE_DIR": str(tmp_path),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    found = []
    for _ in range(2):
        run = [sys.executable, "-c", code]
        said = subprocess.run(run, env=environment, capture_output=True, text=True, check=True)
        files = list((tmp_path / "kernels").iterdir())
        found.append((said.stdout, [(each.name, each.stat().st_mtime_ns) for each in files]))
    assert found[0] == found[1] and len(found[0][1]) == 1
    assert abs(float(found[0][0]) - 32 * 2.718281828) < 1e-4


def test_another_thread():
    """Which has not used the GPU yet, and has no context of its own."""
    acc, bias = torch.randn(64, 48, device="cuda"), torch.randn(48, device="cuda")
    (expected,) = ops.apply_program(acc, [bias, acc], GATED)
    found = []
    thread = threading.Thread(
        target=lambda: found.extend(ops.apply_program(acc, [bias, acc], GATED))
    )
    thread.start()
    thread.join()
    assert torch.equal(found[0], expected)
