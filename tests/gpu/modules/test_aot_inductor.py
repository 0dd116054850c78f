"""AOTInductor packages of all modules on a GPU, from Python and from C++."""

import pytest
import torch
from package_program import compile_package_program
from packages import COMMON, Case, make_inputs, make_model, make_package
from plain_packages import require_packages_of_pytorch
from torch._inductor import aoti_compile_and_package, aoti_load_package

import cutlass_fused
from cutlass_fused.matmul._report import COMPILED

pytestmark = pytest.mark.gpu

IEEE = Case("ieee", precision="ieee")
CASES = (IEEE, Case("tf32", precision="tf32"), *COMMON)


@pytest.fixture(scope="module", autouse=True)
def loads_packages():
    require_packages_of_pytorch()


@pytest.fixture(scope="module", params=CASES, ids=str)
def package(request, tmp_path_factory):
    return make_package(request.param, tmp_path_factory.mktemp("packages"), "cuda")


@pytest.fixture(scope="module")
def run_in_cpp(tmp_path_factory):
    return compile_package_program(tmp_path_factory.mktemp("run_package"))


def test_package(package):
    package.check(*package.run_in_python())


def test_package_in_cpp(package, run_in_cpp):
    package.check(*run_in_cpp(package))


def test_precisions_differ():
    """What the comparisons rest on: a package that mixes them up is not within the tolerance."""
    outputs = []
    for case in CASES[:2]:
        with torch.no_grad():
            outputs.append(make_model(case, "cuda")(make_inputs(case, "cuda")[0]))
    for name in ("eval linear", "eval leaky_relu", "eval scale_norm", "train scale_norm"):
        with pytest.raises(AssertionError, match="not close"):
            torch.testing.assert_close(*(values[name] for values in outputs))


def test_package_of_a_plain_model_under_the_switch(tmp_path):
    """It holds the ops and the word, whatever the setting and the switch are where it runs."""
    model, x = torch.nn.Linear(96, 136, device="cuda"), torch.randn(33, 96, device="cuda")
    torch.backends.cuda.matmul.allow_tf32 = True
    with cutlass_fused.matmul_report() as report, cutlass_fused.fp32_matmul("ieee"):
        with torch.no_grad():
            program = torch.export.export(model, (x,))
            path = aoti_compile_and_package(program, package_path=str(tmp_path / "plain.pt2"))
    # Inductor may time products of padded sizes beside it.
    compiled = [row for row in report.rows if row[-1] == COMPILED]
    assert compiled == [("addmm", ((136,), (33, 96), (96, 136)), COMPILED)]
    with torch.profiler.profile() as profile, torch.no_grad():
        y = aoti_load_package(path)(x)
        assert torch.equal(y, torch.ops.cutlass_fused.linear(x, model.weight, model.bias, "ieee"))
    assert not any("addmm" in event.name for event in profile.events())


@pytest.mark.parametrize("keep_weights", [True, False], ids=["weights", "splits_alone"])
def test_package_of_prepared_modules(keep_weights, run_in_cpp, tmp_path):
    """The splits are constants of the package."""

    def prepare(model):
        return cutlass_fused.prepare(model, keep_weights=keep_weights)

    package = make_package(IEEE, tmp_path, "cuda", prepare)
    package.check(*package.run_in_python())
    package.check(*run_in_cpp(package))
