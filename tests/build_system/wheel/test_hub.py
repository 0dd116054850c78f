"""The layout for the kernels hub, and the namespace of the ops, by which versions live together."""

import base64
import hashlib
import json
import os
import re
import subprocess
import sys

import pytest
import torch

from build_system import library, ninja_file
from build_system.flags import cpp_flags, op_flags
from build_system.host_compiler import name_host_compiler
from build_system.paths import GENERATED, ROOT
from build_system.wheel import hub, op_namespace

NAMES = "cutlass_fused_first", "cutlass_fused_second"
TORCH = re.match(r"(\d+)\.(\d+)", torch.__version__).groups()
# The package under two names beside the one of this checkout. The first by what the hub's loaders
# take today, the second by what older ones took.
BOTH = """\
import importlib, importlib.util, json, pkgutil, sys
import torch

def load(name, file):
    spec = importlib.util.spec_from_file_location(name, file)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

first = load(sys.argv[1], sys.argv[3] + "/__init__.py")
second = load("older_loader", sys.argv[4] + "/cutlass_fused/__init__.py")
sys.modules["cutlass_fused"] = None  # an import by this name fails
skipped = ("__main__", "drawing", "command", "pack")
for module in pkgutil.walk_packages(first.__path__, sys.argv[1] + "."):
    if not module.name.endswith(skipped):
        importlib.import_module(module.name)
del sys.modules["cutlass_fused"]
import cutlass_fused as usual

results, classes = [], set()
for package in (first, second, usual):
    torch.manual_seed(0)
    layer = package.nn.LinearScaleLeakyReLU(8, 4, multiplier=2.0, negative_slope=0.1)
    classes.add(type(layer))
    x = torch.linspace(-1, 1, 24).reshape(3, 8).requires_grad_()
    y = torch.compile(layer, backend="aot_eager")(x)
    y.sum().backward()
    clamp = package.epilogue(lambda acc: acc.relu())
    z = package.functional.linear_epilogue(x.detach(), next(layer.parameters()).detach(), clamp)
    results.append([y.tolist(), x.grad.tolist(), z.tolist()])
names = [sys.argv[1], sys.argv[2], "cutlass_fused"]
found = [hasattr(getattr(torch.ops, name), "linear") for name in names]
print(json.dumps([found, len(classes), results]))
"""


def make_wheel(folder, name):
    """That of the CPU, which compiles nothing."""
    command = [sys.executable, "setup.py", "-q", "egg_info", "--egg-base", folder]
    command += ["build", "--build-base", folder / "build", "bdist_wheel", "--dist-dir", folder]
    environment = {"PATH": "/usr/bin:/bin", "CUTLASS_FUSED_SKIP_KERNELS": "1"}
    environment[op_namespace.VARIABLE] = name
    command = list(map(str, command))
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def variants(tmp_path_factory):
    folders = []
    for name in NAMES:
        folder = tmp_path_factory.mktemp(name)
        folders += hub.lay_out(make_wheel(folder, name), folder / "hub", [], version=3)
    return folders


def test_layout(variants):
    for name, variant in zip(NAMES, variants, strict=True):
        assert variant.name == f"torch{TORCH[0]}{TORCH[1]}-cxx11-cpu-x86_64-linux"
        assert variant.parent.name == "build" and [variant] == list(variant.parent.iterdir())
        metadata = json.loads((variant / "metadata.json").read_text())
        assert metadata["id"] == name and metadata["name"] == "cutlass-fused"
        assert metadata["version"] == 3 and metadata["backend"] == {"type": "cpu"}
        files = metadata["digest"]["files"]
        assert {"__init__.py", "cutlass_fused/__init__.py", "schemas.txt"} <= files.keys()
        written = [path for path in variant.rglob("*") if path.is_file()]
        assert len(written) == len(files) + 1  # metadata.json itself
        for path, digest in files.items():
            content = (variant / path).read_bytes()
            assert base64.b64decode(digest) == hashlib.sha256(content).digest()
        assert (variant.parent.parent / "LICENSE.cutlass.txt").is_file()
        assert (variant.parent.parent / "README.md").read_text().startswith("---\n")


def test_versions_live_in_one_process(variants, tmp_path):
    """Under names that no import of the package knows, each with its ops."""
    command = [sys.executable, "-c", BOTH, *NAMES, *map(str, variants)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found, classes, results = json.loads(done.stdout.splitlines()[-1])
    assert found == [True, True, True] and classes == 3
    assert results[0] == results[1] == results[2]


def test_package_of_the_usual_namespace_is_refused(tmp_path):
    wheel = make_wheel(tmp_path, "cutlass_fused")
    with pytest.raises(ValueError, match="must have a namespace of their own, got cutlass_fused"):
        hub.lay_out(wheel, tmp_path / "hub", [])


BUILD = {"cuda": "13.0", "archs": ["8.0", "9.0a"], "ptx": "8.0"}


@pytest.mark.parametrize(
    "torch_version, build, name",
    [
        ("2.11.0+cu130", BUILD, "torch211-cxx11-cu130-x86_64-linux"),
        ("2.9", BUILD | {"cuda": "12.8"}, "torch29-cxx11-cu128-x86_64-linux"),
        ("stable", BUILD, "torch-stable-abi210-cu130-x86_64-linux"),
        ("2.11", None, "torch211-cxx11-cpu-x86_64-linux"),
    ],
)
def test_names_of_variants(torch_version, build, name):
    assert hub.name_variant(torch_version, build) == name


def test_architectures_name_the_ptx():
    assert hub.list_archs(BUILD) == ["8.0+PTX", "9.0a"]
    assert hub.list_archs(BUILD | {"ptx": None}) == ["8.0", "9.0a"]


# The namespace of a build.


@pytest.fixture(scope="module")
def tools():
    try:
        return library.find_tools()
    except SystemExit as error:
        pytest.skip(str(error))


def list_objects(tools):
    return {edge.output: (edge.flags, edge.source) for edge in ninja_file.list_edges(tools)}


def test_kernels_are_compiled_for_all_namespaces(tools, monkeypatch):
    monkeypatch.delenv(op_namespace.VARIABLE, raising=False)
    usual = list_objects(tools)
    monkeypatch.setenv(op_namespace.VARIABLE, NAMES[0])
    other = list_objects(tools)
    assert len(usual) == len(other)
    own = {path: source for path, (_, source) in other.items() if path not in usual}
    assert own and all(source.suffix == ".cpp" for source in own.values())
    assert all(other[path] == usual[path] for path in other.keys() & usual.keys())
    assert all(f"-D{op_namespace.VARIABLE}={NAMES[0]}" in other[path][0] for path in own)


def test_every_file_that_names_an_op_is_compiled_for_its_namespace():
    readers = []
    for path in (ROOT / "src").rglob("*.[ch]pp"):
        text, source = path.read_text(), path.relative_to(ROOT)
        text = re.sub("//.*", "", text)
        assert not re.search(r'"cutlass_fused::|TORCH_LIBRARY\w*\(cutlass_fused', text), source
        if '#include "op_namespace.hpp"' in text:
            readers.append(source)
    assert len(readers) > 30
    outside = [
        source
        for source in readers
        if not any(source.is_relative_to(each) for each in op_namespace.READERS)
    ]
    assert not outside


def test_library_registers_ops_in_the_chosen_namespace(tools, monkeypatch, tmp_path):
    monkeypatch.setenv(op_namespace.VARIABLE, NAMES[0])
    library.write_schemas(folder=tmp_path / GENERATED)
    source = ninja_file.list_sources("src/ops", "library.cpp")[0]
    flags = [*cpp_flags(tools), *op_namespace.namespace_flags(source), "-I", tmp_path / GENERATED]
    out = tmp_path / "ops.so"
    command = [tools.host_compiler, *flags, *op_flags(tools), "-shared", "-o", out, source]
    command += ["-L", tools.torch.lib, "-ltorch_cpu"]
    subprocess.run(list(map(str, command)), cwd=ROOT, check=True)
    say = "import torch, sys; torch.ops.load_library(sys.argv[1]); "
    say += "print(*[hasattr(getattr(torch.ops, n), 'linear') for n in sys.argv[2:]])"
    command = [sys.executable, "-c", say, str(out), NAMES[0], "cutlass_fused"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.split() == ["True", "False"], done.stderr


@pytest.mark.parametrize("name", [op_namespace.USUAL, NAMES[0]])
def test_headers_of_torch_2_10_are_given_the_namespace_itself(monkeypatch, tmp_path, name):
    """Their macro takes the name from the letters of its argument."""
    header = tmp_path / "torch/csrc/stable/library.h"
    header.parent.mkdir(parents=True)
    header.write_text("#define STABLE_TORCH_LIBRARY(ns, m) void registers(char const* = #ns)\n")
    (tmp_path / "schemas.inc").touch()
    monkeypatch.setenv(op_namespace.VARIABLE, name)
    source = ninja_file.list_sources("src/ops", "library.cpp")[0]
    flags = [*op_namespace.namespace_flags(source), "-I", str(tmp_path), "-I", "src"]
    command = [name_host_compiler(), "-E", "-P", *flags, str(source)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert re.findall(r'registers\(char const\* = "(\w+)"', done.stdout) == [name]


@pytest.mark.parametrize("name", ["with space", "2nd", "a::b", "a__b", "ü"])
def test_what_is_no_name_is_refused(monkeypatch, name):
    monkeypatch.setenv(op_namespace.VARIABLE, name)
    with pytest.raises(SystemExit, match="must be a name such as cutlass_fused_1a2b3c, got"):
        op_namespace.choose_namespace()


def test_file_goes_with_the_namespace(monkeypatch, tmp_path):
    monkeypatch.setenv(op_namespace.VARIABLE, NAMES[0])
    op_namespace.write_file(tmp_path)
    assert op_namespace.read_file(tmp_path) == NAMES[0]
    monkeypatch.delenv(op_namespace.VARIABLE)
    op_namespace.write_file(tmp_path)
    assert not list(tmp_path.iterdir())
    assert op_namespace.read_file(tmp_path) == "cutlass_fused"
