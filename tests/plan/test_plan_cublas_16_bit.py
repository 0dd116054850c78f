"""When cuBLAS multiplies 16-bit matrices along K: make_plan, asked on the host."""

import pytest
from host_program import compile_host_program
from plans import GPUS, NUMERICS, Host

# (M, N, K), and what they take ours and cuBLAS in bf16 on an H200, in us.
CUBLAS = {
    "a launch is all": [(256, 512, 64), (1024, 256, 128), (2048, 64, 64)],  # 3.1 and 2.5
    "rows are copied": [(10000, 20, 20), (10000, 50, 50), (512, 192, 100)],  # 14.9 and 3.1
    "tiles are empty for the most part": [(4096, 8, 4096), (2048, 1, 256)],  # 17.1 and 8.8
    "K is short": [(20000, 64, 8), (65536, 64, 64), (16384, 512, 64)],  # 8.6 and 3.8
    "two thirds of a wave": [(800, 3072, 1024), (512, 3072, 768)],  # 11.8 and 9.8
}
OURS = {
    "blocks of one tile": [(256, 256, 256), (2048, 256, 512), (8192, 64, 512)],  # 2.4 and 3.0
    "K is cut": [(32, 512, 3136), (128, 512, 784), (256, 1024, 1024)],  # 4.6 and 6.1
    "rows begin anywhere": [(2048, 1024, 479), (64, 50257, 768)],  # 9.6 and 27.7
    "the GPU is full": [(8192, 1024, 1024), (16384, 4096, 4096), (65536, 256, 256)],  # 804 and 865
    "the same": [(3152, 3072, 768)],  # 23.9 and 23.8
}
ALL = [(*reason, True) for reason in CUBLAS.items()]
ALL += [(*reason, False) for reason in OURS.items()]
MATHS = {"bf16": "bf16", "fp16": "f16"}


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    return Host(compile_host_program("plan", tmp_path_factory.mktemp("plan_cublas_16_bit")))


def make_plan(host, shape, gpu="H200", numerics="bf16", **call):
    call = dict(zip("mnk", shape, strict=True)) | call
    return host.make_plan(**GPUS[gpu], **NUMERICS[numerics], **call)


def list_shapes(groups=(CUBLAS, OURS)):
    return [shape for group in groups for shapes in group.values() for shape in shapes]


@pytest.mark.parametrize("numerics", MATHS)
@pytest.mark.parametrize(("shapes", "wins"), [row[1:] for row in ALL], ids=[row[0] for row in ALL])
def test_a_bare_product_has_the_faster_kernel(host, numerics, shapes, wins):
    by_cublas = (f"cublas {MATHS[numerics]}: cublas", "-", "cublas", "")
    for shape in shapes:
        plan = make_plan(host, shape, numerics=numerics, bare=1)
        assert (plan == by_cublas) if wins else ("cublas" not in plan.text), shape


def test_one_with_something_behind_it_is_ours(host):
    for shape in list_shapes():
        for tail in ({}, {"tail": "logits"}, {"epilogue": "scale_batch_norm"}):
            assert "cublas" not in make_plan(host, shape, **tail).text
        assert "cublas" not in make_plan(host, shape, tail="logits", bare=1).text


@pytest.mark.parametrize("gpu", [gpu for gpu in GPUS if gpu != "H200"])
def test_no_estimate_is_of_other_gpus(host, gpu):
    for shape in list_shapes():
        assert "cublas" not in make_plan(host, shape, gpu, bare=1).text


def test_no_estimate_is_of_older_kernels(host):
    """Of a build without those for 9.0."""
    for shape in list_shapes():
        assert "cublas" not in make_plan(host, shape, bare=1, sm90=0).text


def test_where_there_is_no_choice(host):
    """What is forced or was timed stands; what cannot be called does not serve."""
    for shape in list_shapes([CUBLAS]):
        plain = make_plan(host, shape)
        assert make_plan(host, shape, bare=1, struck="cublas") == plain
        for how in ("forced", "tuned"):
            for tile in ("sm80", "128x128x64B"):
                call = {how: tile}
                assert make_plan(host, shape, bare=1, **call) == make_plan(host, shape, **call)


def test_a_result_in_fp32(host):
    """What the kernels write does not count."""
    shape = CUBLAS["rows are copied"][0]
    assert "cublas" in make_plan(host, shape, bare=1, y_dtype="float32").text


@pytest.mark.parametrize("struck", ["product", "copies"])
def test_it_does_not_matter_what_else_was_refused(host, struck):
    """The bits are the same."""
    for shape in list_shapes():
        by = [make_plan(host, shape, bare=1, struck=parts).text for parts in ("", struck)]
        assert ("cublas" in by[0]) == ("cublas" in by[1])
