"""Importing without a library, and what the installation says of itself."""

import json
import pathlib

import pytest
import torch
from calls import ALL_OPS
from python_process import run_python

import cutlass_fused
from cutlass_fused import _library, config

PACKAGE = pathlib.Path(cutlass_fused.__file__).parent


@pytest.fixture(params=["missing", "garbage", "folder", "foreign library"])
def broken_library(request, tmp_path):
    """A path that is no library of ours, and a part of the reason that must be given."""
    path = tmp_path / "libcutlass_fused.so"
    if request.param == "missing":
        return path, "no file"
    if request.param == "garbage":
        path.write_bytes(b"\x7fELF and then nonsense")
        return path, "cannot be loaded"
    if request.param == "folder":
        path.mkdir()
        return path, "no file"
    # A library that loads, but holds none of the ops: another project's, or a failed build.
    (source,) = pathlib.Path(torch.__file__).parent.glob("lib/libshm.so")
    path.symlink_to(source)
    return path, "lacks linear"


def test_works_without_library(broken_library):
    path, reason = broken_library
    code = """
        import torch, cutlass_fused  # prints nothing: every line of the output is accounted for
        from cutlass_fused import functional, nn
        x, weight = torch.randn(3, 8), torch.randn(5, 8)
        y = functional.linear_scale_leaky_relu(x, weight, None, 2.0, 0.1)
        assert torch.allclose(y, torch.nn.functional.leaky_relu(x @ weight.T * 2.0, 0.1))
        module = nn.LinearScaleLeakyReLU(8, 5, 2.0, 0.1)
        module(x).sum().backward()
        assert module.gemm.weight.grad is not None
        try:
            torch.ops.cutlass_fused.build_info()
        except RuntimeError as error:
            print("build_info:", error)
        # The kernel that a CUDA tensor would reach, called directly: there is no GPU to make one.
        key = torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA)
        try:
            torch.ops.cutlass_fused.linear.default.redispatch(key, x, weight)
        except RuntimeError as error:
            print("linear:", error)
        print(cutlass_fused.show_config())
    """
    said = run_python(code, CUTLASS_FUSED_LIBRARY=str(path))
    build_info, linear, *config = said.splitlines()
    for line in (build_info, linear):
        assert "library must be loaded" in line and reason in line and str(path) in line
    text = "\n".join(config)
    assert "not loaded" in text and reason in text and str(path) in text
    assert f"cutlass_fused {cutlass_fused.__version__}" in text and torch.__version__ in text


def test_import_prints_nothing_and_does_not_start_cuda():
    """A started CUDA context would cost memory and forbid forking."""
    code = """
        import torch, cutlass_fused.functional, cutlass_fused.nn
        print(torch.cuda.is_initialized())
    """
    assert run_python(code) == "False\n"


def test_show_config_prints_nothing_and_returns_text(capfd):
    text = cutlass_fused.show_config()
    assert capfd.readouterr() == ("", "")
    for part in (f"cutlass_fused {cutlass_fused.__version__}", torch.__version__, "GPU", "CUTLASS"):
        assert part in text
    if _library.load_error() is None:
        assert "not loaded" not in text
    else:
        assert _library.load_error() in text


def test_show_config_marks_what_never_ran(monkeypatch):
    """The kernels for 10.0a; a library of an earlier version says nothing of that."""
    build = {"cutlass": "4.2.0", "cuda": "13.0", "archs": ["8.0", "9.0a", "10.0a"], "ptx": "8.0"}
    for told, expected in (
        ({"untested": ["10.0a"]}, "8.0, 9.0a, 10.0a (untested), PTX of 8.0"),
        ({"untested": []}, "8.0, 9.0a, 10.0a, PTX of 8.0"),
        ({}, "8.0, 9.0a, 10.0a, PTX of 8.0"),
    ):
        monkeypatch.setattr(config, "read_build_info", lambda told=told: build | told)
        assert f"architectures: {expected}" in cutlass_fused.show_config().splitlines()


@pytest.mark.parametrize(
    "told, expected",
    [
        ({"open_kernels": 80}, "within products, by 80 open kernels\n"),
        (
            {"open_kernels": 3, "open_archs": {"compute_80": 1, "sm_90a": 2}},
            "within products, by 3 open kernels: 1 of compute_80, 2 of sm_90a\n",
        ),
        (
            {"open_kernels": "/a/open_kernels.bin: it is cut off"},
            "behind products: /a/open_kernels",
        ),
        ({}, "behind products"),
    ],
)
def test_show_config_says_where_epilogues_run(monkeypatch, told, expected):
    build = {"cutlass": "4.2.0", "cuda": "13.0", "archs": ["8.0"], "ptx": None}
    monkeypatch.setattr(config, "read_build_info", lambda: build | told)
    assert f"\nepilogues of users: {expected}" in cutlass_fused.show_config()


@pytest.mark.parametrize(
    "told, expected",
    [
        ({"common_kernels": 240}, "240 kernels came with the library"),
        (
            {"common_kernels": "/a/common_kernels.bin: there is no such file, or nothing in it"},
            "no kernel came with the library: /a/common_kernels.bin: there is no such file",
        ),
        ({}, "no kernel came with the library\n"),
    ],
)
def test_show_config_says_which_are_linked_already(monkeypatch, told, expected):
    build = {"cutlass": "4.2.0", "cuda": "13.0", "archs": ["8.0"], "ptx": None}
    monkeypatch.setattr(config, "read_build_info", lambda: build | told)
    assert f"\n  common ones: {expected}" in cutlass_fused.show_config()


NVRTC = {"nvrtc": "13.0", "nvrtc_path": "/a/libnvrtc.so.13", "nvrtc_error": ""}
NONE = {"nvrtc": None, "nvrtc_path": "", "nvrtc_error": "libnvrtc.so.13: no such file"}


@pytest.mark.parametrize(
    "nvrtc, expected",
    [
        (NVRTC, "  NVRTC: 13.0, /a/libnvrtc.so.13"),
        (NONE, "  NVRTC: there is none, and what is not linked yet runs by PyTorch: libnvrtc.so"),
    ],
)
def test_show_config_says_how_epilogues_are_linked(monkeypatch, tmp_path, nvrtc, expected):
    build = {"cutlass": "4.2.0", "cuda": "13.0", "archs": ["8.0"], "ptx": None}
    monkeypatch.setattr(config, "read_build_info", lambda: build)
    folders = {"cache": tmp_path / "cache", "linked": tmp_path / "linked"}
    info = nvrtc | {k: {"folder": str(f), "refusal": "no such file"} for k, f in folders.items()}
    monkeypatch.setattr(config, "read_link_info", lambda: info)

    def read():
        lines = cutlass_fused.show_config().splitlines()
        start = next(i for i, line in enumerate(lines) if line.startswith("  NVRTC: "))
        assert lines[start].startswith(expected)
        return [line for line in lines[start + 1 :] if line.startswith("  ")]

    assert read() == [f"  kept: no kernel yet, in {folders['cache']}"]
    for name, folder in folders.items():
        folder.mkdir()
        (folder / "1").touch()
        (folder / "2.345.0.new").touch()  # which another process writes
        info[name]["refusal"] = ""
    counts = [f"1 kernels, in {folder}" for folder in folders.values()]
    assert read() == [f"  kept: {counts[0]}", f"  linked ahead of time: {counts[1]}"]
    info["cache"]["refusal"] = "others may write to /a"
    assert read()[0] == "  kept: nothing is read: others may write to /a"
    info["cache"] = None
    assert read()[0] == "  kept: not on disk: there is no home folder"


def test_link_info(tmp_path):
    """What the library says is what show_config reads."""
    if not _library.is_loaded():
        pytest.skip(f"the library links: {_library.load_error()}")
    code = "import json, cutlass_fused._library as l; print(json.dumps(l.read_link_info()))"
    places = {"CUTLASS_FUSED_NVRTC": str(tmp_path / "none")}
    info = json.loads(run_python(code, CUTLASS_FUSED_CACHE_DIR=str(tmp_path), **places))
    assert info["nvrtc"] is None and info["nvrtc_error"].startswith(str(tmp_path / "none"))
    assert info["cache"]["folder"] == str(tmp_path / "kernels")
    assert info["cache"]["refusal"].startswith("cannot read ")
    assert info["linked"]["folder"] == str(_library.library_path().parent / "linked/kernels")
    info = json.loads(run_python(code))
    if info["nvrtc"] is not None:
        assert info["nvrtc_path"].rpartition("/")[2] == f"libnvrtc.so.{info['nvrtc'][:2]}"
        assert pathlib.Path(info["nvrtc_path"]).is_file() and info["nvrtc_error"] == ""


def test_version():
    assert cutlass_fused.__version__ == "0.2.0"
    names = "autotune find_engine functional invalidate keep_splits load_tuned_tiles nn prepare"
    names += " accumulate_gradient epilogue fp32_matmul inductor_options matmul_report"
    names += " set_fp32_matmul fuse unfuse"
    assert set(cutlass_fused.__all__) == {"__version__", "show_config", *names.split()}


def read_schemas():
    lines = (PACKAGE / "schemas.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


@pytest.mark.parametrize("line", read_schemas(), ids=lambda line: line.partition("(")[0])
def test_registered_schemas_are_those_of_the_list(line):
    """Whoever defined them, the compiled library or the fallback."""
    expected = torch._C.parse_schema(f"cutlass_fused::{line}")
    registered = getattr(torch.ops.cutlass_fused, expected.name.partition("::")[2]).default._schema
    assert str(registered) == str(expected)


def test_every_op_has_its_kernels():
    listed = {line.partition("(")[0] for line in read_schemas()}
    gradients = {"leaky_relu_gradient", "batch_norm_gradient", "softmax_gradient"}
    gradients |= {"unscale_columns", "scale_gradient", "batch_norm_scale_gradient"}
    others = {"build_info", "find_engine", "shares_split"}
    others |= {"force_tile", "tune_tile", "record_products"}
    sums = {"addmm", "addmm_out", "baddbmm", "baddbmm_out"}
    programs = {"apply_program", "linear_epilogue"}
    links = {"run_program", "link_epilogue", "link_pointwise", "link_info"}
    splits = {"split_weight", "keep_split", "renew_split"}
    products = {*ALL_OPS, *splits, "bmm", "linear_out", *sums}
    assert listed == {*products, *gradients, *programs, *links, *others}
    for op in (*ALL_OPS, *programs):
        for key in ("CPU", "CUDA", "Meta"):
            assert torch._C._dispatch_has_kernel_for_dispatch_key(f"cutlass_fused::{op}", key)
        # Gradients live in the functionals, autocast too.
        for key in ("Autograd", "AutogradCUDA", "AutogradCPU", "AutocastCUDA", "AutocastCPU"):
            assert not torch._C._dispatch_has_kernel_for_dispatch_key(f"cutlass_fused::{op}", key)


def test_imports_no_compiler():
    """They take as long to import as torch, and a process that compiles nothing needs none."""
    code = """
        import sys, torch
        before = set(sys.modules)
        import cutlass_fused
        names = {name.split(".")[0] for name in set(sys.modules) - before}
        heavy = {"torch._dynamo", "torch._inductor", "torch._functorch.aot_autograd"}
        print(*sorted(names & {"sympy", "triton"} | heavy & (set(sys.modules) - before)))
    """
    assert run_python(code).split() == []


def test_epilogue_is_imported_when_it_is_asked_for():
    """By its name in any form, by a function that takes one, or by a module that holds one."""
    code = """
        import sys, torch, cutlass_fused
        from cutlass_fused import functional, nn
        x, layer = torch.ones(2, 3), nn.Linear(3, 4)
        layer(x)
        assert "epilogue" in dir(cutlass_fused) and not hasattr(cutlass_fused, "no_such")
        print("torch._dynamo" in sys.modules)
        {ask}
        print("torch._dynamo" in sys.modules)
    """
    for ask in (
        "assert cutlass_fused.epilogue is cutlass_fused.epilogue",
        "from cutlass_fused import *; epilogue(torch.relu)(x, layer.weight)",
        "functional.linear_epilogue(x, layer.weight, 'relu')",
        "nn.LinearActivation(3, 4, 'relu')",
    ):
        assert run_python(code.replace("{ask}", ask)).split() == ["False", "True"]
