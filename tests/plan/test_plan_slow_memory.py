"""What a GPU of 9.0 with the memory of an H100 computes otherwise than an H200."""

import pytest
from host_program import compile_host_program
from plans import Host, make_call

SPARING = "128x128x128B/2x1.pingpong.swapped@n8"
H100_GB_S = 3352


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    return Host(compile_host_program("plan", tmp_path_factory.mktemp("plan")))


def name_tile(host, m, n, k, **more):
    call = make_call("H200", "12", "bf16", m=m, n=n, k=k, **more)
    return host.make_plan(**call).text.rpartition(" ")[2]


@pytest.mark.parametrize(
    "m, n, k",
    [
        (8192, 4096, 11008),
        (16384, 4096, 11008),
        (8192, 28672, 8192),
        (4096, 28672, 8192),
        (8192, 8192, 8192),
        (16384, 8192, 8192),
    ],
)
def test_long_products_of_a_long_k_do_not_spare_power(host, m, n, k):
    """The tile that reads most from L2 took up to 1.31 times as long as others on an H100."""
    assert name_tile(host, m, n, k) == SPARING
    assert ".cooperative.swapped" in name_tile(host, m, n, k, memory_gb_s=H100_GB_S)


def test_those_of_a_shorter_k_do(host):
    assert name_tile(host, 16384, 4096, 4096, memory_gb_s=H100_GB_S) == SPARING
