"""Training in two processes that share their gradients."""

import data_parallel
import pytest
from processes import run_in_processes


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return run_in_processes(["data_parallel"], tmp_path_factory.mktemp("processes"))


@pytest.mark.parametrize("name", data_parallel.CASES)
def test_in_processes(found, name):
    assert not found[name], found[name]
