"""bench/kernelbench at a reduced size: what a benchmark does with a file, on the CPU."""

import inspect

import kernelbench
import pytest
import torch

SIZES = {"12": (1024, 8192, 8192), "33": (1024, 8192, 8192), "84": (1024, 8192, 8192)}
SIZES["39"] = (16384, 4096, 4096)


@pytest.fixture(params=kernelbench.FILES, ids=lambda path: path.stem)
def module(request, monkeypatch):
    module = kernelbench.load(request.param)
    sizes = {"BATCH": 24, "IN_FEATURES": 80, "OUT_FEATURES": 56}
    for name, value in sizes.items():
        monkeypatch.setattr(module, name, value)
    return module


def test_there_is_a_file_for_each_model_at_its_size():
    assert {path.name.split("_")[0] for path in kernelbench.FILES} == set(SIZES)
    for path in kernelbench.FILES:
        module = kernelbench.load(path)
        size = module.BATCH, module.IN_FEATURES, module.OUT_FEATURES
        assert size == SIZES[path.name.split("_")[0]]


def test_constructors_take_the_same(module):
    plain, new = (inspect.signature(cls.__init__) for cls in (module.Model, module.ModelNew))
    assert plain == new


def test_new_model_computes_what_the_plain_one_does(module):
    plain, new = (kernelbench.build(module, name, "cpu") for name in ("Model", "ModelNew"))
    kernelbench.check_same_state(plain, new, 0.0)
    assert plain.training and new.training and new.precision == "ieee"
    # Several batches: statistics of one are overwritten by no other.
    for _ in range(3):
        (x,) = module.get_inputs()
        assert x.shape == (24, 80)
        with torch.no_grad():
            expected, y = plain(x), new(x)
        torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-4)
        assert kernelbench.relative_error(y, expected) < 1e-5
        kernelbench.check_same_state(plain, new, 1e-5)


def test_state_dicts_are_interchangeable(module):
    plain, new = (kernelbench.build(module, name, "cpu") for name in ("Model", "ModelNew"))
    with torch.no_grad():
        for parameter in plain.parameters():
            parameter.add_(torch.rand_like(parameter))
    (x,) = module.get_inputs()
    new.load_state_dict(plain.state_dict(), strict=True)
    with torch.no_grad():
        torch.testing.assert_close(new(x), plain(x))
    plain.load_state_dict(new.state_dict(), strict=True)
