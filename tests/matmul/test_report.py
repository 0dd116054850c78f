"""What a report counts and prints."""

import sys
import threading

import pytest
import torch
from switched import count_under, outcomes

import cutlass_fused
from cutlass_fused.matmul import _left, _report, _state

A, B = torch.randn(40, 64), torch.randn(64, 48)


def test_it_counts_calls_by_op_shapes_and_outcome():
    with count_under() as report:
        for _ in range(3):
            A @ B
        A @ B[:, :7]
        A.double() @ B.double()
        torch.addmm(B[0], A, B)
    shapes = (40, 64), (64, 48)
    assert report.rows == {
        ("mm", shapes, "served"): 3,
        ("mm", ((40, 64), (64, 7)), "served"): 1,
        ("mm", shapes, _left.OTHER_DTYPE): 1,
        ("addmm", ((48,), *shapes), "served"): 1,
    }


def test_it_counts_with_the_switch_off_and_nothing_behind_the_with():
    with cutlass_fused.matmul_report() as report:
        A @ B
    A @ B
    assert list(report.rows.values()) == [1] and outcomes(report) == {_left.OFF}


def test_nested():
    with cutlass_fused.matmul_report() as outer:
        A @ B
        with cutlass_fused.matmul_report() as inner:
            A @ B
        A @ B
    assert (outer.rows.total(), inner.rows.total()) == (2, 1)
    assert _state.report is None


def test_its_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(_report, "_MOST_ROWS", 4)
    with count_under() as report:
        for n in range(1, 10):
            A @ B[:, :n]
        A @ B[:, :1]
    assert len(report.rows) == 5 and report.rows.total() == 10
    assert report.rows["mm", ((40, 64), (64, 1)), "served"] == 2  # a row that is there goes on
    assert report.rows["mm", "further shapes", "served"] == 5
    assert "5 mm further shapes" in str(report)


def test_threads():
    """Rows are added while they are printed, by threads that change as often as they can."""
    report = cutlass_fused.matmul_report()

    def work(thread):
        for i in range(3000):
            report._add("mm", ((thread, i % 100),), "a reason")

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            assert "Left to PyTorch" in str(report)
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert report.rows.total() == 4 * 3000


def test_within_what_is_compiled():
    @torch.compile(backend="eager", fullgraph=True)
    def multiply(a, b):
        with cutlass_fused.matmul_report():
            return a @ b

    with pytest.raises(torch._dynamo.exc.Unsupported, match="matmul_report must stand outside"):
        multiply(A, B)


def test_left_without_being_entered():
    with pytest.raises(RuntimeError, match="matmul_report: it was not entered as often as it is"):
        cutlass_fused.matmul_report().__exit__(None, None, None)


def test_one_that_is_left_before_another_that_was_entered_later():
    """As two threads may: the later one counts to its end, and nothing behind it."""
    with count_under() as first:
        later = cutlass_fused.matmul_report().__enter__()
        A @ B
    assert _state.report is later
    later.__exit__(None, None, None)
    assert _state.report is None
    assert (first.rows.total(), later.rows.total()) == (0, 1)


def test_the_inner_of_two_counts():
    with count_under() as outer:
        A @ B
        with cutlass_fused.matmul_report() as inner:
            A @ B
        A @ B
    assert (outer.rows.total(), inner.rows.total()) == (2, 1)


# An op each of the kinds that are only seen, and what it is called.
SQUARE = torch.eye(4)
image, kernels = torch.randn(1, 3, 8, 8), torch.randn(4, 3, 3, 3)
SEEN = {
    "convolution": lambda: torch.nn.functional.conv2d(image, kernels),
    "mv": lambda: A @ B[:, 0],
    "dot": lambda: torch.dot(A[0], A[1]),
    "_grouped_mm": lambda: torch._grouped_mm(A[None].bfloat16(), B[None].bfloat16()),
    "linalg_cholesky_ex": lambda: torch.linalg.cholesky(torch.eye(4)),
    "linalg_lu": lambda: torch.linalg.lu(SQUARE),
    "linalg_householder_product": lambda: torch.linalg.householder_product(SQUARE, SQUARE[0]),
    "linalg_inv_ex.inverse": lambda: torch.linalg.inv(SQUARE, out=torch.empty(4, 4)),
    "linalg_solve_triangular.out": lambda: torch.linalg.solve_triangular(
        SQUARE, SQUARE, upper=True, out=torch.empty(4, 4)
    ),
    "_linalg_solve_ex": lambda: torch.linalg.solve(torch.eye(4), torch.ones(4, 1)),
    "_cdist_forward": lambda: torch.cdist(A, A, p=1.0),
    "mkldnn_rnn_layer": lambda: torch.nn.LSTM(8, 8)(torch.randn(3, 2, 8)),
    "_scaled_dot_product_flash_attention_for_cpu": lambda: (
        torch.nn.functional.scaled_dot_product_attention(*[torch.randn(1, 2, 16, 8)] * 3)
    ),
}


@pytest.mark.parametrize("op", SEEN)
def test_seen_not_served(op):
    with torch.random.fork_rng():
        expected = SEEN[op]()
    with count_under() as report:
        got = SEEN[op]()
    torch.testing.assert_close(got, expected, rtol=0, atol=0)
    assert outcomes(report, op) == {"seen, not served"}
    assert f" {op} " in str(report).partition("Seen, not served:")[2]


def test_what_ends_in_products_that_arrive_is_not_called_unserved():
    """In fp32 both are products of PyTorch's own ops, which are counted for themselves."""
    with count_under() as report:
        torch.addbmm(torch.zeros(40, 48), A[None], B[None])
    assert report.rows == {("addmm_", ((40, 48), (40, 64), (64, 48)), "served"): 1}
    with count_under() as report:
        torch._grouped_mm(A[None], B[None])
    assert "seen, not served" not in outcomes(report)


def test_gradients_go_through_what_is_only_seen():
    weight = kernels.clone().requires_grad_()
    with count_under() as report:
        torch.nn.functional.conv2d(image, weight).sum().backward()
    assert weight.grad.abs().sum() > 0
    assert outcomes(report, "convolution_backward") == {"seen, not served"}


def test_what_it_prints():
    with count_under() as report:
        A @ B
        A.double() @ B.double()
    text = str(report)
    assert "Served:\n        1 mm 40x64, 64x48\nLeft to PyTorch:\n" in text
    assert "        1 mm 40x64, 64x48: not float32\nSeen, not served: nothing\n" in text
    never = text.partition("Never arrives")[2]
    for word in ("Triton", "AOTInductor", "cpp_wrapper", "other libraries"):
        assert word in never


def test_the_names_of_what_is_seen_exist():
    """In one of PyTorch's builds; what a version lacks is left out at run time."""
    from cutlass_fused.matmul._seen import SEEN as NAMES

    known = {name for name in NAMES if torch._C._dispatch_has_kernel(f"aten::{name}")}
    assert known == set(NAMES)
