"""The kernels of backward passes, thread by thread on the host: what they write."""

import pytest
import torch
from host_program import compile_host_program

ops = torch.ops.cutlass_fused
each_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
# (M, N), whether pieces of 16 bytes are read, and the SMs, by which rows are shared out.
CASES = {
    "one number": ((1, 1), False, 132),
    "a row of pieces": ((1, 8), True, 132),
    "part of a block": ((5, 7), False, 132),
    "two panels, the second not whole": ((9, 272), True, 132),
    "the same, number by number": ((9, 261), False, 132),
    "many strips": ((401, 24), True, 132),
    "many strips, the last one short": ((333, 33), False, 132),
    "strips of several turns": ((150, 16), True, 1),
    "strips of one wave, number by number": ((250, 16), False, 1),
    "more panels than a wave has strips for": ((260, 272), True, 1),
}
each_case = pytest.mark.parametrize("case", CASES)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """run(kernel, dtype, aligned, SMs, shape, *numbers and tensors) -> all that it writes"""
    options = ("-Wno-unknown-pragmas",)
    folder = tmp_path_factory.mktemp("gradients")
    program = compile_host_program("kernels/gradients", folder, options=options)

    def run(kernel, dtype, aligned, sms, shape, *values):
        words = [kernel, str(dtype).removeprefix("torch."), int(aligned), sms, *shape]
        for value in values:
            words += value.flatten().tolist() if isinstance(value, torch.Tensor) else [value]
        (line,) = program([" ".join(map(str, words))])
        return torch.tensor([float(word) for word in line.split()]).double()

    return run


def draw(shape, dtype):
    return torch.randn(shape).to(dtype)


@each_dtype
@each_case
def test_leaky_relu(run, case, dtype):
    shape, aligned, sms = CASES[case]
    x, positive = draw(shape, dtype), torch.rand(shape) > 0.5
    written = run("leaky_relu", dtype, aligned, sms, shape, 1.75, -0.25, x.double(), positive.int())
    grad_z, sums = written.split([x.numel(), shape[1]])
    expected, _ = ops.leaky_relu_gradient(x, positive, 1.75, -0.25)
    assert torch.equal(grad_z, expected.double().flatten())
    exact = torch.where(positive, x.double() * 1.75, x.double() * -0.25).sum(0)
    torch.testing.assert_close(sums, exact, rtol=1e-5, atol=1e-5)


# By strips of rows, and by blocks that keep their columns on chip, which read pieces alone: with so
# many threads side by side, and so many blocks together.
ON_CHIP = ("batch_norm_8_1", "batch_norm_4_1", "batch_norm_8_2")
WAYS = [(case, "batch_norm") for case in CASES]
WAYS += [(case, way) for case in CASES if CASES[case][1] for way in ON_CHIP]
WAYS += [(case, "batch_norm_4_8") for case in ("a row of pieces", "many strips")]


@pytest.mark.parametrize("is_behind", [True, False], ids=["scale behind", "scale in front"])
@pytest.mark.parametrize("case, way", WAYS)
@each_dtype
def test_batch_norm(run, case, way, dtype, is_behind):
    shape, aligned, sms = CASES[case]
    x, z = draw(shape, dtype), (draw(shape, dtype).float() + 3).to(dtype)
    mean = z.float().mean(0)
    rstd = (z.float().var(0, correction=0) + 0.5).rsqrt()
    gamma, beta, scale = torch.rand(3, shape[1]) + 0.5
    vectors = [vector.double() for vector in (mean, rstd, gamma, beta, scale)]
    numbers = (x.double(), z.double(), *vectors)
    written = run(way, dtype, aligned, sms, shape, int(is_behind), 0, *numbers)
    grad_z, *sums = written.split([x.numel(), *shape[1:] * 3])
    matrices, (mean, rstd, gamma, beta, scale) = (x.double(), z.double()), vectors
    if is_behind:
        exact, *exact_sums = ops.batch_norm_scale_gradient(
            *matrices, mean, rstd, scale, gamma, beta
        )
    else:
        exact, *exact_sums = ops.batch_norm_gradient(*matrices, mean, rstd, gamma, scale)
        exact_sums.append(torch.full_like(gamma, -1.0))  # not written
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(grad_z, exact.flatten(), rtol=eps, atol=1e-5)
    for mine, theirs in zip(sums, exact_sums, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("way", ["batch_norm", "batch_norm_8_1"])
@each_dtype
def test_rounded_vectors(run, way, dtype):
    shape = (9, 24)
    x, z, mean, rstd = draw(shape, dtype), draw(shape, dtype), torch.zeros(24), torch.ones(24)
    numbers = [t.double() for t in (x, z, mean, rstd, rstd, mean, rstd)]
    wide, rounded = (
        run(way, dtype, True, 132, shape, 0, rounds, *numbers)[x.numel() :].split(24)
        for rounds in (0, 1)
    )
    for i in range(2):
        assert torch.equal(rounded[i], wide[i].to(dtype).double())


# (M, bytes of a row), and whether there are clusters: threads side by side, blocks together.
PLANS = {
    ((16, 64), True): True,
    ((1024, 1024), True): True,
    ((4096, 8192), True): True,
    ((8192, 131072), True): True,
    ((9216, 64), True): True,
    ((9217, 64), True): False,
    ((1024, 1024), False): False,
    ((256, 1024), False): True,
    ((1024, 16384), False): True,
    ((4096, 8192), False): False,
}


@pytest.mark.parametrize("shape, has_clusters", PLANS)
def test_plan_on_chip(run, shape, has_clusters):
    """Two blocks fit on an SM of 227 KB, or, where a block is alone, one."""
    lanes, blocks, rows, kept = run("plan", torch.float32, True, 132, shape, int(has_clusters))
    assert bool(lanes) == PLANS[shape, has_clusters]
    if lanes:
        assert blocks * rows >= shape[0] and blocks in (1, 2, 4, 8)[: 4 if has_clusters else 1]
        assert (blocks - 1) * rows <= shape[0] + blocks
        assert kept <= (227 * 1024 - 16 * 1024) / (2 if has_clusters else 1)
        rounds = -(-rows // (256 / lanes))
        assert kept >= (rounds - 6) * 2 * 256 * 16
