"""Which products of 16-bit matrices cuBLAS reads as they lie, by the log; and what takes its place
in a CUDA graph that is captured before cuBLAS was called."""

import pytest
from logged import run_logged

pytestmark = pytest.mark.gpu

CHOICES = """
    import itertools, sys, torch
    from cutlass_fused import functional
    from tiles import force_tile
    ops = torch.ops.cutlass_fused

    def draw(rows, k, along_mn):
        matrix = torch.randn(rows, k, device="cuda", dtype=torch.{dtype})
        return matrix.t().contiguous().t() if along_mn else matrix

    layouts = list(itertools.product((False, True), repeat=2))
    for k, out in itertools.product((4096, 64), (None, torch.float32)):
        for x_mn, weight_mn in layouts:
            x, weight = draw(4096, k, x_mn), draw(2048, k, weight_mn)
            bias = torch.randn(2048, device="cuda", dtype=x.dtype)
            ops.linear(x, weight, None, "ieee", out)
            ops.linear(x, weight, bias, "ieee", out)
            with force_tile("sm80"):
                ops.linear(x, weight, None, "ieee", out)
        print("--", file=sys.stderr)
    torch.cuda.synchronize()
"""


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_what_is_chosen(dtype):
    """A bare product of operands of which one does not lie along K; with a bias where copies would
    take longer than an epilogue behind. Nothing is copied to aligned rows. Along K it is a matter
    of time: tests/plan/test_plan_cublas.py."""
    _, log = run_logged(CHOICES.format(dtype=dtype))
    assert not any("copied" in line for line in log)
    words = iter(line.split()[1] if line != "--" else "--" for line in log)
    for k in (4096, 4096, 64, 64):
        for majors in ((False, False), (False, True), (True, False), (True, True)):
            bare, with_bias, forced = next(words), next(words), next(words)
            assert bare == "cublas" or not any(majors)
            assert (with_bias == "cublas") == (any(majors) and k == 4096)
            assert forced == "sm80"
        assert next(words) == "--"


CAPTURES = """
    import threading, torch, cutlass_fused
    ops = torch.ops.cutlass_fused
    dtype, out_dtype = torch.{dtype}, torch.{out_dtype}
    x, weight = (torch.randn(4096, n, device="cuda").to(dtype).t() for n in (64, 128))
    batch, others = (torch.randn(3, 256, n, device="cuda").to(dtype).mT for n in (64, 128))
    expected = (x.double() @ weight.double().T).to(out_dtype)
    expected_batch = (batch.double() @ others.double().mT).to(dtype)

    def check(y, expected):
        torch.testing.assert_close(y, expected, rtol=1e-2, atol=1e-2)

    def run_linear():
        return ops.linear(x, weight, {bias}, "ieee", out_dtype)

    def run_bmm():
        return ops.bmm(batch, others)

    def capture(run, expected):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = run()
        for _ in range(2):
            y.zero_()
            graph.replay()
            check(y, expected)

    def work():
        capture(run_linear, expected)
        capture(run_bmm, expected_batch)

    def run():
        check(run_linear(), expected)
        check(run_bmm(), expected_batch)

    def run_in_thread(work):
        failures = []

        def catch():
            try:
                work()
            except BaseException as failure:
                failures.append(failure)

        thread = threading.Thread(target=catch)
        thread.start()
        thread.join()
        assert not failures, failures
"""
# A product, and three of a batch that are multiplied one by one.
BY_TILES = ["tile"] * (1 + 3)
BY_CUBLAS = ["cublas"] * (1 + 1)


@pytest.mark.parametrize("bias", ["None", "torch.zeros(128, device='cuda', dtype=dtype)"])
@pytest.mark.parametrize("out_dtype", ["own", "float32"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_captures_before_cublas_was_called(dtype, out_dtype, bias):
    """By a process, and then by a thread of one that has called it."""
    out_dtype = dtype if out_dtype == "own" else out_dtype
    code = CAPTURES.format(dtype=dtype, out_dtype=out_dtype, bias=bias)
    _, log = run_logged(code + "\n    work()\n    run()\n    run_in_thread(work)\n    work()\n")
    kinds = ["cublas" if line.split()[1] == "cublas" else "tile" for line in log]
    assert kinds == BY_TILES + BY_CUBLAS + BY_TILES + BY_CUBLAS


NOTHING_FOUND = """
    import torch, cutlass_fused
    from tiles import force_tile
    ops = torch.ops.cutlass_fused
    x, weight = (torch.randn(512, n, device="cuda").bfloat16().t() for n in (64, 128))
    with force_tile("cublas"):
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                ops.linear(x, weight)
        except RuntimeError as refused:
            print("refuses the product by cuBLAS" in str(refused))
"""


def test_a_forced_product_that_is_refused():
    printed, log = run_logged(NOTHING_FOUND)
    assert printed == ["True"] and log == []
