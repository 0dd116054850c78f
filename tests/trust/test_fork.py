"""Processes that fork: the child computes and links as its parent does, whatever ran before."""

import pytest
from python_process import run_python

from cutlass_fused import _library

BEFORE = """
    import os, signal, sys, threading
    import torch, cutlass_fused
    from cutlass_fused import functional, nn

    TEXT = "program 1\\noperands 1\\nv0 = {} acc p0\\nreturn v0\\n"
    ops = torch.ops.cutlass_fused
    torch.set_num_threads(1)  # OpenMP's threads are not in the child, which would wait for them
    torch.manual_seed(0)
    module = nn.LinearScaleBatchNorm1d(24, 40, (40,))
    x = torch.randn(16, 24)

    @cutlass_fused.epilogue
    def gated(acc, gate):
        return torch.sigmoid(acc) * gate

    def compute():
        module.train()
        leaf = module.gemm.weight
        y = module(x)
        grad, = torch.autograd.grad(y.square().sum(), leaf)
        gate = torch.ones(40)
        return [grad, gated(x, leaf.detach(), gate=gate), functional.softmax(x)]

    def link(word):
        # With a compiler it is linked; without one refused: both end.
        if {has_library}:
            given = (TEXT.format(word), ["float32:row"], "float32", "float32", 90, 8, 8)
            return ops.link_pointwise(*given)

    def wait_for(child):
        signal.alarm(100)  # a child that hangs ends the test
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    os.register_at_fork(after_in_child=lambda: signal.alarm(60))
"""


def run(code, tmp_path):
    before = BEFORE.replace("{has_library}", str(_library.is_loaded()))
    return run_python(before + code, CUTLASS_FUSED_CACHE_DIR=str(tmp_path))


def test_child_behind_import(tmp_path):
    code = """
    child = os.fork()
    if child == 0:
        compute(), link("add")
        os._exit(0)
    print(wait_for(child))
    compute(), link("add")
    """
    assert run(code, tmp_path) == "0\n"


def test_child_behind_calls(tmp_path):
    """It has the bits of its parent, and what that has linked."""
    code = """
    state = {name: each.clone() for name, each in module.state_dict().items()}
    expected, linked = compute(), link("add")
    child = os.fork()
    if child == 0:
        module.load_state_dict(state)
        same = all(map(torch.equal, compute(), expected))
        os._exit(0 if same and link("add") == linked and link("mul") is not 0 else 3)
    print(wait_for(child))
    """
    assert run(code.replace("is not 0", "!= 0"), tmp_path) == "0\n"


@pytest.mark.skipif(not _library.is_loaded(), reason="the library was not built")
def test_child_of_a_process_that_links(tmp_path):
    """It computes. Linking is another matter: NVRTC's own locks are held by no thread of the child,
    which would wait for them."""
    code = """
    words = ("sub", "mul", "div", "maximum")
    threads = [threading.Thread(target=link, args=(word,)) for word in words]
    for thread in threads:
        thread.start()
    children = []
    for _ in range(3):
        child = os.fork()
        if child == 0:
            compute()
            os._exit(0)
        children.append(child)
    print([wait_for(child) for child in children])
    for thread in threads:
        thread.join()
    """
    assert run(code, tmp_path) == "[0, 0, 0]\n"


def test_child_of_a_child(tmp_path):
    code = """
    compute()
    child = os.fork()
    if child == 0:
        compute()
        grandchild = os.fork()
        if grandchild == 0:
            compute(), link("add")
            os._exit(0)
        os._exit(wait_for(grandchild))
    print(wait_for(child))
    """
    assert run(code, tmp_path) == "0\n"
