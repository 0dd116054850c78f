"""The choice of a tile, on the host, for the GPUs that it must know."""

import pytest
from host_program import compile_host_program

# (SMs, bytes of shared memory that a block may use)
GPUS = {
    "A100": (108, 163 * 1024),
    "sm_86": (84, 99 * 1024),
    "sm_89": (128, 99 * 1024),
    "H200": (132, 227 * 1024),
}
MATHS = ("bf16", "fp16x1", "fp16x3")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return compile_host_program("choose_tile", tmp_path_factory.mktemp("choose_tile"))


@pytest.fixture(scope="module")
def choose(run):
    """choose(gpu, m, n, k) -> (tile, {tile: (cost, shared memory)})"""

    def choose(gpu, m, n, k, math="bf16", shared_memory=None):
        sms, memory = GPUS[gpu]
        memory = shared_memory or memory
        (line,) = run([f"{math} {m} {n} {k} {sms} {memory}"])
        tile, *costs = line.split()
        entries = {}
        for entry in costs:
            name, numbers = entry.split("=")
            entries[name] = tuple(int(number) for number in numbers.split("/"))
        return tile, entries

    return choose


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("math", MATHS)
@pytest.mark.parametrize("shape", [(1, 1, 1), (1024, 8192, 8192), (2**20, 2**20, 8), (3, 7, 2**20)])
def test_choice_fits_and_is_cheapest(choose, gpu, math, shape):
    tile, costs = choose(gpu, *shape, math=math)
    cost, memory = costs[tile]
    assert memory <= GPUS[gpu][1]
    assert all(other > 0 for other, _ in costs.values()), "a cost overflowed"
    assert cost == min(other for other, size in costs.values() if size <= GPUS[gpu][1])


@pytest.mark.parametrize("gpu", GPUS)
def test_large_problem_takes_the_largest_tile_that_fits(choose, gpu):
    """The large tile's stages take 144 KiB, which sm_86 and sm_89 do not have."""
    expected = "128x256x64B" if GPUS[gpu][1] >= 144 * 1024 else "128x128x64B"
    assert choose(gpu, 8192, 8192, 8192)[0].removesuffix(".streamk") == expected


@pytest.mark.parametrize("gpu", GPUS)
def test_small_m_takes_a_low_tile(choose, gpu):
    """A taller tile would compute rows that nobody asked for."""
    for m in (1, 8, 32):
        for n, k in ((8192, 8192), (4096, 4096), (28672, 8192), (1000, 2048), (512, 16384)):
            assert int(choose(gpu, m, n, k)[0].partition("x")[0]) <= 64


@pytest.mark.parametrize("gpu", GPUS)
def test_few_tiles_with_a_long_k_are_shared_between_sms(choose, gpu):
    assert choose(gpu, 64, 64, 65536)[0].endswith(".streamk")


@pytest.mark.parametrize("gpu", GPUS)
def test_short_k_is_not_shared(choose, gpu):
    """Exchanging partial sums would cost more than the whole product."""
    assert not choose(gpu, 64, 64, 64)[0].endswith(".streamk")


def test_number_of_sms_decides(choose):
    """One tile per SM is one full wave on one GPU, and a wave plus a nearly empty one on another:
    132 tiles of 128x256 on 132 and on 108 SMs."""
    m, n, k = 12 * 128, 11 * 256, 4096
    h200, h200_costs = choose("H200", m, n, k)
    a100, a100_costs = choose("A100", m, n, k)
    assert h200 == "128x256x64B" != a100
    assert a100_costs["128x256x64B"][0] > 1.9 * h200_costs["128x256x64B"][0]


def test_split_numbers_cost_what_is_read_of_them(choose):
    """One fp16 number for each of fp32, or two in whole blocks of 32."""
    costs = {math: choose("H200", 64, 64, 40, math=math)[1] for math in MATHS}
    assert costs["fp16x1"] == costs["bf16"]
    assert costs["fp16x3"] == choose("H200", 64, 64, 64, math="fp16x3")[1]
    assert costs["fp16x3"] != choose("H200", 64, 64, 65, math="fp16x3")[1]


def test_shared_memory_limit_is_kept(choose):
    """A limit below what the large tile takes leaves it out, however cheap."""
    tile, costs = choose("H200", 8192, 8192, 8192, shared_memory=70 * 1024)
    assert costs["128x256x64B"][0] < costs[tile][0]
    assert costs[tile][1] <= 70 * 1024


def test_no_tile_fits(choose):
    assert choose("H200", 64, 64, 64, shared_memory=1024)[0] == "none"
