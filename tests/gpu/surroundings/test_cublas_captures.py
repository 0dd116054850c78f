"""Products tuned to cuBLAS whose first call is captured into a CUDA graph: cuBLAS cannot be
initialised there, for a process or for a thread."""

import pytest
from logged import run_logged

pytestmark = pytest.mark.gpu

SET_UP = """
    import sys, threading, torch, cutlass_fused
    ops = torch.ops.cutlass_fused
    ops.tune_tile(0, "bf16 M=64 N=128 K=256 y=bfloat16", "cublas")
    x, weight = (torch.randn(n, 256, device="cuda").bfloat16() for n in (64, 128))
    expected = (x.double() @ weight.double().T).bfloat16()

    def capture():
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = ops.linear(x, weight)
        for _ in range(2):
            y.zero_()
            graph.replay()
            torch.testing.assert_close(y, expected)

    def run():
        torch.testing.assert_close(ops.linear(x, weight), expected)

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


def run_and_list_kernels(code):
    """cublas, sm80 or sm90, for each product."""
    _, log = run_logged(SET_UP + code)
    return [line.split()[1] for line in log]


def test_a_process_that_has_not_called_cublas_captures_a_tile(device):
    first, *others = run_and_list_kernels("""
    capture()
    run()
    capture()
    """)
    assert first in ("sm80", "sm90")
    assert others == ["cublas", "cublas"]


def test_a_thread_that_has_not_called_cublas_captures_a_tile(device):
    """Where another thread of the process has."""
    first, in_thread, *others = run_and_list_kernels("""
    run()
    run_in_thread(capture)
    capture()
    """)
    assert in_thread in ("sm80", "sm90")
    assert [first, *others] == ["cublas", "cublas"]
