"""What multiplies a batch of fp32 matrices, and how weights along N are split, on the host."""

import pytest
from host_program import compile_host_program
from plans import GPUS, NUMERICS, Host, format_command

ATTENTION = {"m": 197, "n": 197, "k": 64, "batch": 96}
ALONG_N = {"major_w": 1, "m": 2048, "n": 1024, "k": 1024}


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    return Host(compile_host_program("plan", tmp_path_factory.mktemp("plan_batches")))


def choose(host, numerics="ieee", gpu="H200", **call):
    (answer,) = host.run([format_command("batch", GPUS[gpu] | NUMERICS[numerics] | call)])
    return answer


# ---- batches ----


@pytest.mark.parametrize("numerics", ["ieee", "tf32"])
@pytest.mark.parametrize("gpu", GPUS)
def test_a_few_rows_are_cublas(host, gpu, numerics):
    for size in ("m", "n"):
        few = ATTENTION | {size: 7}
        assert choose(host, numerics, gpu, **few) == "cublas"
        assert choose(host, numerics, gpu, **few, forced="tf32x3").endswith("tf32x3@k1")


def test_some_rows_are_ours(host):
    for size in ("m", "n"):
        for k in (256, 1024):
            answer = choose(host, **ATTENTION | {size: 8, "k": k})
            assert "tf32x3" in answer, (size, k)


@pytest.mark.parametrize("numerics", ["ieee", "tf32"])
def test_what_cublas_cannot_have(host, numerics):
    """Few rows, a short K: each that cuBLAS would have."""
    for change in ({"m": 4}, {"n": 1}, {"k": 16}, {"k": 32, "m": 4}):
        call = ATTENTION | change
        assert choose(host, numerics, **call) == "cublas"
        answer = choose(host, numerics, **call, struck="cublas")
        assert answer == "none" if call["k"] <= 32 else "tf32x3" in answer
        assert choose(host, numerics, **call, struck="cublas", forced="cublas") == "refused"


# ---- parts of a weight along N ----


def splits_along_n(host, gpu="H200", numerics="ieee", **changes):
    call = GPUS[gpu] | NUMERICS[numerics] | ALONG_N | changes
    return host.make_plan(**call, forced="split_rows").split_rows.endswith(" along N")


@pytest.mark.parametrize("numerics", ["ieee", "tf32"])
@pytest.mark.parametrize("gpu", GPUS)
def test_a_weight_along_n_is_split_as_it_lies(host, gpu, numerics):
    for n in (1024, 1028, 1000):
        assert splits_along_n(host, gpu, numerics, n=n) == (gpu == "H200")


def test_rows_of_y_that_tma_cannot_write(host):
    for n in (1023, 1025, 1026, 1022):
        assert not splits_along_n(host, n=n)
    assert not splits_along_n(host, ldy=1026)
    assert not splits_along_n(host, align_y=4)


def test_other_weights_and_epilogues(host):
    assert not splits_along_n(host, major_w=0)
    for other in ({"epilogue": "scale_batch_norm"}, {"tail": "batch_norm"}):
        assert not splits_along_n(host, **other)
