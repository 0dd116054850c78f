"""DTensors, in two processes: results and gradients are those of whole tensors, and what can be
computed where it lies is."""

import dtensor_calls
import dtensor_derivatives
import dtensor_functions
import dtensor_modules
import pytest
from processes import run_in_processes
from python_process import run_python

MODULES = (dtensor_functions, dtensor_calls, dtensor_derivatives, dtensor_modules)
NAMES = [name for module in MODULES for name in module.CASES]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    names = [module.__name__ for module in MODULES]
    return run_in_processes(names, tmp_path_factory.mktemp("processes"))


@pytest.mark.parametrize("name", NAMES)
def test_in_processes(found, name):
    assert not found[name], found[name]


def test_each_case_has_a_name_of_its_own():
    assert len(set(NAMES)) == len(NAMES)


def test_import_brings_no_dtensor():
    """A process that shards nothing has no need of it, and of the time that it takes."""
    code = """
        import sys, torch
        before = set(sys.modules)
        import cutlass_fused
        print("torch.distributed.tensor" in before, "torch.distributed.tensor" in sys.modules)
        print(*sorted(name for name in set(sys.modules) - before if "distributed.tensor" in name))
    """
    assert run_python(code) == "False False\n\n"


@pytest.mark.parametrize("first", ["cutlass_fused", "torch.distributed.tensor"])
def test_in_any_order_of_imports(first):
    code = f"""
        import torch, {first}
        import cutlass_fused, torch.distributed.tensor
        from torch._library.simple_registry import singleton
        rules = singleton.find("cutlass_fused::linear").torch_dispatch_rules
        print(rules.find(torch.distributed.tensor.DTensor) is not None)
    """
    assert run_python(code) == "True\n"
