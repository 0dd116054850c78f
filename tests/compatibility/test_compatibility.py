"""What people keep of a version works in later ones: pickled modules, exported programs, names."""

import importlib
import json
import os
import re
import sys
import zipfile
from pathlib import Path

import pytest
import torch

import cutlass_fused
from build_system.paths import ROOT
from cutlass_fused import functional, nn, tuning
from cutlass_fused._library import ops
from cutlass_fused.weights import splits as weight_splits

FOLDER = Path(__file__).parent
VERSIONS = sorted(path.stem.removeprefix("public-") for path in FOLDER.glob("public-*.json"))
pytestmark = pytest.mark.parametrize("version", VERSIONS)
# What came with a version, beside what that before had.
MODULES = {
    "0.1.0": {"linear", "leaky_relu", "scale_norm", "norm_softmax", "norm", "softmax", "of_parts"},
    "0.2.0": {"activation", "prelu"},
}
PROGRAM_RESULTS = {
    "0.1.0": {"train norm", "eval norm", "autocast norm"},
    "0.2.0": {"gate", "normalize"},
}


def load(name, version):
    return torch.load(FOLDER / f"{name}-{version}.pt", weights_only=False)


def read_public(version):
    return json.loads((FOLDER / f"public-{version}.json").read_text(encoding="utf-8"))


def gather(came, version):
    """By this version: of it, and of those before."""
    return set().union(*(came[each] for each in VERSIONS[: VERSIONS.index(version) + 1]))


def test_there_are_files(version):
    """Of each version that modules came with: 0.2.0 brought epilogues, and this file knows them."""
    assert version in MODULES
    assert VERSIONS == list(MODULES) == list(PROGRAM_RESULTS)


def test_no_file_names_a_place(version):
    """Of the machine where it was made."""
    for path in FOLDER.glob(f"*-{version}.pt*"):
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                assert b'File \\"/' not in archive.read(name), (path, name)


def test_pickled_modules(version):
    kept, results = load("modules", version), load("results", version)
    assert set(kept["modules"]) == gather(MODULES, version)
    for name, module in kept["modules"].items():
        for key, value in module.state_dict().items():
            assert torch.equal(value, kept["states"][name][key])
        with torch.no_grad():
            torch.testing.assert_close(module(kept["x"]), results["outputs"][name])
        for key, value in results["states"][name].items():
            torch.testing.assert_close(module.state_dict()[key], value)
        assert type(module).__name__ in repr(module)


def test_state_dicts(version):
    """Into modules that are built today."""
    kept = load("modules", version)
    for name, module in kept["modules"].items():
        if name == "of_parts":
            continue
        kind, sizes = type(module), ()
        if gemm := getattr(module, "gemm", None):
            sizes = gemm.in_features, gemm.out_features
        elif isinstance(module, torch.nn.Linear):
            sizes = module.in_features, module.out_features
        elif isinstance(module, nn.BatchNorm1d):
            sizes = (module.num_features,)
        more = {"leaky_relu": (2.0, 0.1), "scale_norm": (sizes[-1],)} if sizes else {}
        more |= {"activation": ("hardtanh",), "prelu": ("prelu",)}
        bias = {"bias": False} if name == "leaky_relu" else {}
        built = kind(*sizes, *more.get(name, ()), **bias)
        built.load_state_dict(kept["states"][name], strict=True)


def test_exported_programs(version):
    program = torch.export.load(FOLDER / f"program-{version}.pt2").module()
    x, expected = load("modules", version)["x"], load("program-results", version)
    found = program(x)
    assert found.keys() == expected.keys() >= gather(PROGRAM_RESULTS, version)
    for name, value in expected.items():
        assert found[name].dtype == value.dtype
        torch.testing.assert_close(found[name], value)
    assert program(torch.cat([x, x, x]))["eval linear"].shape[0] == 18


def test_public_names(version):
    public = read_public(version)
    for name, names in public["names"].items():
        module = importlib.import_module(name)
        assert set(names) <= set(module.__all__)
        assert all(hasattr(module, name) for name in names)
    for name in public["submodules"]:
        module = importlib.import_module(name)
        package, _, last = name.rpartition(".")
        assert not package or getattr(sys.modules[package], last) is module
    # A module that moved is the same by both names, and so is the state that is set on it.
    assert weight_splits is cutlass_fused.weight_splits
    assert weight_splits._cache is importlib.import_module("cutlass_fused.weight_splits")._cache


def read_arguments(schema):
    name, _, rest = schema.partition("(")
    arguments, _, result = rest.rpartition(") -> ")
    parts = re.split(r", (?![^(]*\))", arguments) if arguments else []
    return name, parts, result


def test_schemas_are_only_appended_to(version):
    lines = (ROOT / "cutlass_fused/schemas.txt").read_text().splitlines()
    today = {line.partition("(")[0]: line for line in lines}
    for schema in read_public(version)["schemas"]:
        name, arguments, result = read_arguments(schema)
        assert hasattr(ops, name)
        _, now, result_now = read_arguments(today[name])
        assert (now[: len(arguments)], result_now) == (arguments, result)
        assert all("=" in argument for argument in now[len(arguments) :])


def test_headers(version):
    for name in read_public(version)["headers"]:
        assert (ROOT / "include/cutlass_fused" / name).is_file()


def test_environment_variables(version):
    """Each is still read, by the same name."""
    folders = [ROOT / name for name in ("cutlass_fused", "src", "include")]
    files = [path for folder in folders for path in folder.rglob("*") if path.suffix in SOURCES]
    words = "\n".join(path.read_text(encoding="utf-8") for path in files)
    for name in read_public(version)["environment"]:
        assert f'"{name}"' in words


SOURCES = (".py", ".cpp", ".hpp", ".cu")


def test_files_of_tuned_tiles(version, tmp_path, monkeypatch):
    """Read, where they are of this build; ignored with a warning, where they are of another."""
    monkeypatch.setenv("CUTLASS_FUSED_CACHE_DIR", str(tmp_path))
    tiles = {"bf16 M=1024 N=8192 K=8192 y=bfloat16": "128x256x128B/2x1.cooperative.swapped@m1"}
    build = tuning._cache._describe_build("A GPU")
    path = tmp_path / f"A-GPU-{cutlass_fused.__version__}.json"
    path.write_text(json.dumps(build | {"tiles": tiles}))
    assert tuning._cache.read_tiles("A GPU") == tiles
    path.write_text(json.dumps(build | {"cutlass": "1.0", "tiles": tiles}))
    with pytest.warns(RuntimeWarning, match="ignoring"):
        assert tuning._cache.read_tiles("A GPU") == {}
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("name", [n for n in functional.__all__ if n != "sharding"])
def test_functions_take_the_arguments_that_they_took(version, name):
    """Arguments are given by position and by name."""
    code = getattr(functional, name).__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    assert list(names[: len(ARGUMENTS[name])]) == ARGUMENTS[name]


_MATRICES = ["x", "weight", "bias"]
ARGUMENTS = {
    "linear": _MATRICES,
    "linear_scale_leaky_relu": [*_MATRICES, "scale", "negative_slope"],
    "linear_scale_batch_norm": [*_MATRICES, "scale", "running_mean", "running_var"],
    "linear_batch_norm_scale_softmax": [*_MATRICES, "scale", "running_mean", "running_var"],
    "linear_epilogue": ["x", "weight", "epilogue", "precision", "out_dtype", "weight_split"],
    "batch_norm": ["x", "running_mean", "running_var"],
    "softmax": ["x", "dim"],
}
