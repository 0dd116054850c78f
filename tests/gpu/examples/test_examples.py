"""The programs of examples/ on a GPU: packages of fused models, and the server with CUDA graphs."""

import pytest
import torch
from example_packages import ExamplePackage, build_program, run_program
from plain_packages import require_packages_of_pytorch

import cutlass_fused
from cutlass_fused import _library
from examples.models import EXAMPLES
from examples.serve_graphs import GraphServer

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module", params=["dlrm_top", "stylegan2_mapping"])
def package(request, tmp_path_factory):
    require_packages_of_pytorch()
    return ExamplePackage(request.param, tmp_path_factory.mktemp("package"), "cuda")


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return build_program(tmp_path_factory.mktemp("program"))


def test_a_program_runs_a_fused_package_without_python(package, program):
    package.check_program(program, _library.library_path())


def test_a_second_process_has_no_source_of_the_model(package):
    package.check_in_python()


def test_the_package_holds_our_ops(package, program, tmp_path):
    """Without the library nobody could run it."""
    x = package.name_input(package.batches[0])
    done = run_program(program, "none", package.path, x, tmp_path / "y.pt")
    assert done.returncode != 0 and "cutlass_fused" in done.stderr


# ---- the server ----


@pytest.mark.parametrize("is_fused", [False, True], ids=["plain", "fused"])
@pytest.mark.parametrize("name", ["dlrm_top", "pointnet_head", "tabular_resnet"])
def test_served_rows_are_those_of_the_model(name, is_fused):
    """In buckets that are full, padded, and used again; graphs share their memory."""
    model, draw = EXAMPLES[name].build().eval().cuda(), EXAMPLES[name].draw
    batches = [draw(rows).cuda() for rows in (1, 3, 16, 2, 64, 130, 5)]
    with torch.no_grad():
        expected = [model(x) for x in batches]
    if is_fused:
        cutlass_fused.fuse(model, precision="ieee")
        cutlass_fused.prepare(model)
    server = GraphServer(model, draw(1).cuda(), (1, 4, 16, 64))
    answers = [server(x) for x in batches]
    assert all(bucket.graph is not None for bucket in server.buckets.values())
    for y, truth in zip(answers, expected, strict=True):
        torch.testing.assert_close(y, truth, rtol=1e-4, atol=1e-5)
