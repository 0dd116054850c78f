"""What an installed package must do on a CPU, whatever its torch and Python are.

It imports torch and the package alone, and is run outside of the checkout by the environment's own
Python: `python installed.py`. The last line that it prints is JSON.
"""

import copy
import functools
import json
import os
import pickle
import platform
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator

import torch

import cutlass_fused
from cutlass_fused import functional, nn

IN, OUT, ROWS = 12, 20, 7


def make_pairs() -> dict[str, tuple[torch.nn.Module, torch.nn.Module]]:
    """The modules in plain PyTorch, and what takes their place."""
    torch.manual_seed(0)
    linear = torch.nn.Linear(IN, OUT)
    parts = torch.nn.Linear(IN, OUT), torch.nn.BatchNorm1d(OUT), torch.nn.Softmax(dim=1)
    plain_norm = torch.nn.Linear(IN, OUT), torch.nn.BatchNorm1d(OUT)
    pairs = {
        "linear": (linear, nn.Linear.from_eager(copy.deepcopy(linear))),
        "batch_norm": (
            torch.nn.Sequential(*plain_norm),
            nn.LinearScaleBatchNorm1d.from_eager(
                *(copy.deepcopy(part) for part in (plain_norm[0], 1.0, plain_norm[1]))
            ),
        ),
        "softmax": (
            torch.nn.Sequential(*parts),
            nn.LinearBatchNorm1dScaleSoftmax.from_eager(copy.deepcopy(torch.nn.Sequential(*parts))),
        ),
        "gelu": (
            torch.nn.Sequential(linear, torch.nn.GELU()),
            nn.LinearActivation.from_eager(copy.deepcopy(linear), torch.nn.GELU()),
        ),
    }
    # In float64 a wrong number is none of rounding.
    return {name: (plain.double(), fused.double()) for name, (plain, fused) in pairs.items()}


def run(module: torch.nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    """The result, the gradients, and what training has moved."""
    x = x.clone().requires_grad_()
    y = module(x)
    weights = torch.linspace(-1, 1, y.numel()).reshape(y.shape)
    parameters = [p for p in module.parameters() if p.requires_grad]
    gradients = torch.autograd.grad((y * weights).sum(), [x, *parameters], allow_unused=True)
    found = [each for each in gradients if each is not None]
    # A scale of our own has no place in the plain module.
    return [y.detach(), found[0], *(g for g in found[1:] if g.shape != (1,))]


def compare(found: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    assert len(found) == len(expected), (len(found), len(expected))
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a.reshape(b.shape), b)


def check_forward_and_backward(plain, fused, x):
    compare(run(fused, x), run(plain, x))
    compare(run(fused.eval(), x), run(plain.eval(), x))


def check_compiled(plain, fused, x):
    compare(run(torch.compile(fused, fullgraph=True), x), run(plain, x))


def check_exported(plain, fused, x):
    program = torch.export.export(fused.eval(), (x,))
    compare([program.module()(x)], [plain.eval()(x)])


def check_meta(plain, fused, x):
    y = copy.deepcopy(fused).to("meta")(x.to("meta"))
    assert y.is_meta and y.shape == (ROWS, OUT)


def check_state(plain, fused, x):
    """A pickle holds what the module does, and a state dict has the plain module's numbers."""
    compare([pickle.loads(pickle.dumps(fused.eval()))(x)], [plain.eval()(x)])
    shapes = sorted(v.shape for v in plain.state_dict().values())
    assert set(shapes) <= {v.shape for v in fused.state_dict().values()}


CHECKS = (check_forward_and_backward, check_compiled, check_exported, check_meta, check_state)


def check_bf16(x):
    weight = torch.rand(OUT, IN).bfloat16()
    y = functional.linear(x.bfloat16(), weight, out_dtype=torch.float32)
    torch.testing.assert_close(y, x.bfloat16().float() @ weight.float().T, rtol=1e-5, atol=1e-5)


def check_epilogue_of_a_user(x):
    @cutlass_fused.epilogue
    def gated(acc, bias, gate):
        return torch.nn.functional.gelu(acc + bias) * gate

    weight, bias, gate = torch.rand(OUT, IN), torch.rand(OUT), torch.rand(ROWS, 1)
    expected = torch.nn.functional.gelu(x @ weight.T + bias) * gate
    torch.testing.assert_close(gated(x, weight, bias=bias, gate=gate), expected)


def check_fuse(x):
    plain = torch.nn.Sequential(torch.nn.Linear(IN, OUT), torch.nn.GELU(), torch.nn.Linear(OUT, 3))
    expected = plain(x)
    cutlass_fused.fuse(plain)
    torch.testing.assert_close(plain(x), expected)


def check_switch(x):
    layer = torch.nn.Linear(IN, OUT)
    with cutlass_fused.fp32_matmul("ieee"):
        y = layer(x)
    torch.testing.assert_close(y, layer(x))


def check_config(x):
    said = cutlass_fused.show_config()
    assert cutlass_fused.__version__ in said and torch.__version__ in said


SINGLE_CHECKS = (check_bf16, check_epilogue_of_a_user, check_fuse, check_switch, check_config)


def check_pair(check: Callable, name: str, x: torch.Tensor) -> None:
    check(*make_pairs()[name], x)


def list_checks() -> Iterator[tuple[str, Callable[[], None]]]:
    x = torch.rand(ROWS, IN)
    for name in make_pairs():
        for check in CHECKS:
            run_check = functools.partial(check_pair, check, name, x.double())
            yield f"{check.__name__} of {name}", run_check
    for check in SINGLE_CHECKS:
        yield check.__name__, functools.partial(check, x)


def main() -> None:
    warnings.simplefilter("ignore")
    os.environ["CUTLASS_FUSED_CACHE_DIR"] = tempfile.mkdtemp()
    failed, count = [], 0
    for name, check in list_checks():
        count += 1
        try:
            check()
        except Exception:  # the others run all the same
            failed.append(name)
            print(f"{name}\n{traceback.format_exc()}", file=sys.stderr)
    from cutlass_fused import _library

    switch = cutlass_fused.show_config().partition("fp32_matmul: ")[2].partition("\n")[0]
    row = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "folder": os.path.dirname(cutlass_fused.__file__),
        "library": _library.load_error() or "loaded",
        "switch": switch,
        "checks": count,
        "failed": failed,
    }
    print(json.dumps(row))


if __name__ == "__main__":
    main()
