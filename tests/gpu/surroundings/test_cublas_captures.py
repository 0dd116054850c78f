"""Products by cuBLAS whose first call is captured into a CUDA graph: cuBLAS cannot be initialised
there, for a process or for a thread."""

import pytest
from logged import run_logged

pytestmark = pytest.mark.gpu

SET_UP = """
    import sys, threading, torch, cutlass_fused
    ops = torch.ops.cutlass_fused
    dtype, batch, m, k, key = {arguments}
    if key:
        ops.tune_tile(0, key, "cublas")
    multiply = ops.bmm if batch else ops.linear
    x, weight = (torch.randn(*batch, n, k, device="cuda").to(dtype) for n in (m, 128))
    expected = (x.double() @ weight.double().mT).to(dtype)
    limits = {{}} if dtype == torch.bfloat16 else {{"rtol": 1e-5, "atol": 1e-4}}

    def capture():
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = multiply(x, weight)
        for _ in range(2):
            y.zero_()
            graph.replay()
            torch.testing.assert_close(y, expected, **limits)

    def run():
        torch.testing.assert_close(multiply(x, weight), expected, **limits)

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
# dtype, batch, M, K, and what is tuned; the kernels that take the place of cuBLAS.
CASES = {
    "bf16": ('torch.bfloat16, (), 64, 256, "bf16 M=64 N=128 K=256 y=bfloat16"', ("sm80", "sm90")),
    "fp32": (
        'torch.float32, (), 64, 256, "fp16x3 M=64 N=128 K=256 y=float32"',
        ("sm80", "sm90", "tf32x3"),
    ),
    "fp32 with a short K": ("torch.float32, (), 16, 32, None", ("simt",)),
    "a batch of few rows": ("torch.float32, (16,), 4, 256, None", ("tf32x3",)),
}
each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def run_and_list_kernels(case, code):
    """cublas, sm80 or sm90, and so on, for each product."""
    _, log = run_logged(SET_UP.format(arguments=case[0]) + code)
    return [line.split()[1] for line in log]


@each_case
def test_a_process_that_has_not_called_cublas_captures_a_tile(device, case):
    first, *others = run_and_list_kernels(
        case,
        """
    capture()
    run()
    capture()
    """,
    )
    assert first in case[1]
    assert others == ["cublas", "cublas"]


@each_case
def test_a_thread_that_has_not_called_cublas_captures_a_tile(device, case):
    """Where another thread of the process has."""
    first, in_thread, *others = run_and_list_kernels(
        case,
        """
    run()
    run_in_thread(capture)
    capture()
    """,
    )
    assert in_thread in case[1]
    assert [first, *others] == ["cublas", "cublas"]


LEFT = """
    import sys, torch, cutlass_fused
    torch.ops.cutlass_fused.tune_tile(0, "fp16x3 M=64 N=128 K=256 y=float32", "cublas")
    x, layer = torch.randn(64, 256, device="cuda"), cutlass_fused.nn.Linear(256, 128).cuda()
    weight = layer.weight.detach().t()
    x.requires_grad_()

    def multiply():
        return torch.mm(x.detach(), weight)

    def train():
        return torch.autograd.grad(layer(x).sum(), [x, layer.weight])[1]

    def capture(run):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = run()
        y.zero_()
        graph.replay()
        return y
"""


@pytest.mark.parametrize("run", ["multiply", "train"])
def test_what_is_left_to_pytorch_is_so_behind_its_first_call_alone(device, run):
    """A capture does not make its handle, in the switch and in gradients."""
    code = f"""
    with cutlass_fused.fp32_matmul("ieee"):
        first = capture({run})
        print("--", file=sys.stderr)
        expected = {run}()
        torch.testing.assert_close(first, expected, rtol=1e-5, atol=1e-4)
        torch.testing.assert_close(capture({run}), expected, rtol=1e-5, atol=1e-4)
    """
    _, log = run_logged(LEFT + code)
    left = [line == "--" or line.endswith("by PyTorch") for line in log]
    # Not one until it is asked outside of a capture, where the first product is the forward pass's.
    behind = log.index("--")
    assert left.index(True) == behind and left[behind + 1]
    assert sum(left[behind + 1 :]) == 2
