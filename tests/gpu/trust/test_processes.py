"""Processes that fork around the start of CUDA, and two that link into one cache."""

import os
import subprocess
import sys
import textwrap

import pytest

from build_system.paths import ROOT

pytestmark = pytest.mark.gpu

BEFORE = """
    import os, signal, sys
    import torch, cutlass_fused
    from cutlass_fused import functional

    torch.set_num_threads(1)
    os.register_at_fork(after_in_child=lambda: signal.alarm(120))

    @cutlass_fused.epilogue
    def bent(acc, bias):
        return torch.sin(acc + bias) / 3.0

    def compute(device):
        torch.manual_seed(0)
        x, weight = torch.randn(64, 96).to(device), torch.randn(40, 96).to(device)
        y = functional.linear_scale_leaky_relu(x, weight)
        return [y.cpu(), bent(x, weight, bias=weight[:, 0].contiguous()).cpu()]

    def is_right(device):
        for one, other in zip(compute(device), compute("cpu")):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)

    def wait_for(child):
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""


def start(code, folder):
    environment = os.environ | {"CUTLASS_FUSED_CACHE_DIR": str(folder), "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(BEFORE + code)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run(code, folder):
    process = start(code, folder)
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, said
    return said.splitlines()


def test_fork_before_cuda(tmp_path):
    """Parent and child both use the GPU, whoever begins."""
    code = """
    child = os.fork()
    if child == 0:
        is_right("cuda")
        os._exit(0)
    is_right("cuda")
    print(wait_for(child))
    """
    assert run(code, tmp_path)[-1] == "0"


def test_fork_behind_cuda(tmp_path):
    """The child is told by PyTorch that it cannot use the GPU, and computes on the CPU. The parent
    goes on."""
    code = """
    is_right("cuda")
    child = os.fork()
    if child == 0:
        try:
            compute("cuda")
        except RuntimeError as error:
            compute("cpu")
            os._exit(7 if "forked subprocess" in str(error) else 8)
        os._exit(9)
    print(wait_for(child))
    is_right("cuda")
    """
    assert run(code, tmp_path)[-1] == "7"


def test_two_processes_link_into_one_cache(tmp_path):
    code = """
    is_right("cuda")
    print("right")
    """
    started = [start(code, tmp_path) for _ in range(3)]
    said = [process.communicate(timeout=300)[0] for process in started]
    assert all(each.endswith("right\n") for each in said), said
    assert not list((tmp_path / "kernels").glob("*.new"))
    assert run(code, tmp_path) == ["right"]
