"""Two and four processes beside one process that has all rows and whole tensors."""

import dtensor_other_ops
import dtensor_programs
import dtensor_reductions
import parallel_models
import pytest
import synchronized
from processes import run_in_processes

MODULES = (
    synchronized,
    dtensor_reductions,
    dtensor_programs,
    dtensor_other_ops,
    parallel_models,
)
NAMES = [name for module in MODULES for name in module.CASES]


@pytest.fixture(scope="module", params=[2, 4])
def found(request, tmp_path_factory):
    names = [module.__name__ for module in MODULES]
    return run_in_processes(names, tmp_path_factory.mktemp("processes"), request.param)


@pytest.mark.parametrize("name", NAMES)
def test_in_processes(found, name):
    assert not found[name], found[name]


def test_each_case_has_a_name_of_its_own():
    assert len(set(NAMES)) == len(NAMES)
