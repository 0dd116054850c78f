"""The files of bench/kernelbench, loaded as a benchmark loads them: by path."""

import importlib.util

import torch

from build_system.paths import ROOT

FILES = sorted((ROOT / "bench/kernelbench").glob("*.py"))


def load(path):
    spec = importlib.util.spec_from_file_location(f"kernelbench_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build(module, name, device):
    """Model or ModelNew under the seed that both get."""
    torch.manual_seed(3)
    return getattr(module, name)(*module.get_init_inputs()).to(device)


def check_same_state(plain, new, tolerance):
    """Parameters bit for bit; statistics, which a call has moved, within the tolerance."""
    expected, found = plain.state_dict(), new.state_dict()
    assert list(expected) == list(found)
    parameters = dict(plain.named_parameters())
    for name, value in expected.items():
        limit = 0.0 if name in parameters else tolerance
        torch.testing.assert_close(found[name], value, rtol=limit, atol=limit)


def relative_error(found, expected):
    difference = found.double() - expected.double()
    return (difference.norm() / expected.double().norm()).item()
