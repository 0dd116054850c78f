"""python -m cutlass_fused.build_epilogues: what calls of an epilogue run, and kernels on disk."""

import os
import stat
import subprocess
import sys

import pytest
import torch
from open_texts import require_nvrtc
from program_texts import make_program
from torch.utils._python_dispatch import TorchDispatchMode

from build_system.paths import ROOT
from cutlass_fused import _library
from cutlass_fused.build_epilogues import calls, command
from cutlass_fused.build_epilogues.calls import Call, Operand, record_calls
from cutlass_fused.programs.epilogue import Epilogue
from kernels.open_table import REPAIRS, list_open_kernels, list_open_tf32x3

needs_library = pytest.mark.skipif(
    not _library.is_loaded(), reason=f"the library links: {_library.load_error()}"
)
ops = torch.ops.cutlass_fused
ROW, TILE, SCALAR = Operand("N", None), Operand("MN", None), Operand("scalar", torch.float32)


@Epilogue
def gated(acc, bias, gate, slope=0.1):
    shifted = acc + bias
    return torch.where(shifted > 0, shifted, shifted * slope) * gate


@Epilogue
def moved(acc, bias):
    return acc.flip(0) + bias


class Ops(TorchDispatchMode):
    """The programs that a call really hands over."""

    def __init__(self):
        super().__init__()
        self.texts = []

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        if function in (ops.linear_epilogue.default, ops.apply_program.default):
            texts = [each for each in arguments if isinstance(each, str)]
            self.texts.append((texts[0], texts[-1]))
        return function(*arguments, **(options or {}))


@pytest.mark.parametrize("gradients", [None, [], ["bias"], ["bias", "gate"]], ids=str)
@pytest.mark.parametrize("slope", [0.25, SCALAR, None], ids=["number", "scalar", "default"])
def test_what_calls_run(gradients, slope):
    """The texts and dtypes are those of a call with tensors."""
    operands = {"bias": Operand("N", torch.float32), "gate": TILE}
    if slope is not None:
        operands["slope"] = slope
    found = record_calls(gated, operands, "bf16", (4, 8, 6), gradients)
    x, weight = (torch.randn(rows, 6).bfloat16() for rows in (4, 8))
    given = {"bias": torch.randn(8), "gate": torch.randn(4, 8).bfloat16()}
    if slope is not None:
        given["slope"] = torch.tensor(0.5) if slope is SCALAR else slope
    trained = [] if gradients is None else [x, weight, *(given[name] for name in gradients)]
    for each in trained:
        each.requires_grad_()
    with Ops() as recorded:
        y = gated(x, weight, precision="ieee", **given)
        if trained:
            y.sum().backward()
    assert [(each.text, each.out) for each in found] == recorded.texts
    assert len(found) == (1 if gradients is None else 2)
    first, *backward = found
    assert (first.dtype, first.precision) == ("bfloat16", "ieee")
    words = ("float32:row", "bfloat16:tile", *["float32:scalar"] * (slope is SCALAR))
    assert first.operands == words
    assert all(each.precision is None for each in backward)


@pytest.mark.parametrize("m, n", [(8, 8), (1, 8), (8, 1)])
def test_sizes_that_are_equal(m, n):
    """An operand stays what it was said to be, but for that of one row."""
    found = record_calls(gated, {"bias": Operand("M", None), "gate": TILE}, "ieee", (m, n, 8))
    assert found[0].operands[0] == ("float32:scalar" if m == 1 else "float32:column")


MODULE = """\
import torch
from cutlass_fused.programs.epilogue import epilogue

@epilogue
def gated(acc, bias, gate):
    return torch.nn.functional.gelu(acc + bias) * gate

class Tails:
    @staticmethod
    def plain(acc, bias=None):
        return acc.relu()
number = 3
"""


@pytest.fixture
def build(tmp_path):
    """Runs the command in a process of its own: (status, lines of stdout, stderr)."""
    (tmp_path / "tails.py").write_text(MODULE)

    def run(*arguments, out=tmp_path / "out", **environment):
        path = os.pathsep.join([str(ROOT), str(tmp_path), os.environ.get("PYTHONPATH", "")])
        command = [sys.executable, "-m", "cutlass_fused.build_epilogues", *arguments]
        command += [] if out is None else ["--out", str(out)]
        done = subprocess.run(
            command,
            env=os.environ | {"PYTHONPATH": path} | environment,
            capture_output=True,
            text=True,
            cwd=tmp_path,
        )
        return done.returncode, done.stdout.splitlines(), done.stderr

    return run


GATED = ("tails:gated", "--operands", "bias=N,gate=MN", "--arch", "9.0")
SHAPE = ("--shape", "1024x4096x4096", "256x4096x4096")


@needs_library
def test_without_compiler(build, tmp_path):
    """What is linked here is found there, and nothing else is linked."""
    require_nvrtc()
    arguments = (*GATED, *SHAPE, "--gradients", "--precision", "bf16")
    status, lines, errors = build(*arguments)
    assert (status, errors) == (0, "")
    *kernels, total = lines
    files = list((tmp_path / "out/kernels").iterdir())
    assert total == f"{tmp_path}/out/kernels: {len(files)} kernels linked, 0 were there"
    assert all(": new " in line for line in kernels) and len(kernels) == len(files) >= 5
    assert any(line.startswith("gated, bf16, 9.0: new cutlass_fused_open_sm90") for line in kernels)
    assert any(line.startswith("gated in training, bf16, 9.0: new pointwise_8") for line in kernels)
    broken = {"CUTLASS_FUSED_NVRTC": str(tmp_path / "none")}
    status, lines, errors = build(*arguments, **broken)
    assert (status, errors) == (0, "")
    assert sorted(lines[:-1]) == sorted(line.replace(": new ", ": kept ") for line in kernels)
    # Others of them are not there.
    status, lines, _ = build(*GATED, *SHAPE, "--precision", "fp16", **broken)
    assert status == 1 and all(": refused " in line for line in lines if "there is no" in line)
    assert "0 kernels linked, 0 were there" in lines[-1]


@needs_library
def test_others_may_read(build, tmp_path):
    """Whoever runs it later need not be who linked it; and none but he may write."""
    require_nvrtc()
    old = os.umask(0o002)
    try:
        build("relu", "--arch", "8.0", "--shape", "64x64x64", out=tmp_path / "made" / "out")
    finally:
        os.umask(old)
    kernels = tmp_path / "made/out/kernels"
    assert stat.S_IMODE(kernels.parent.stat().st_mode) == 0o775
    assert stat.S_IMODE(kernels.stat().st_mode) == 0o755
    assert {stat.S_IMODE(path.stat().st_mode) for path in kernels.iterdir()} == {0o644}


@needs_library
def test_every_tile(monkeypatch, tmp_path):
    """Those of the Math row, and the repairs of split rows, each once."""
    require_nvrtc()
    monkeypatch.setenv("CUTLASS_FUSED_CACHE_DIR", str(tmp_path))
    (call,) = record_calls(gated, {"bias": ROW, "gate": TILE}, "ieee")
    names = [answer.split() for answer in calls.link(call, 80)]
    of_row = [k.name for k in list_open_kernels() if (k.arch, k.math) == ("Sm80", "Fp16x3")]
    pointwise = ["pointwise_1", "pointwise_2", "pointwise_4"]
    assert [word for word, _ in names] == ["new"] * len(names)
    assert sorted(name for _, name in names) == sorted([*of_row, *REPAIRS, *pointwise])


@needs_library
def test_for_other_gpus(monkeypatch, tmp_path):
    """Their tiles of PTX; and none of a GPU that the library has no code for."""
    require_nvrtc()
    monkeypatch.setenv("CUTLASS_FUSED_CACHE_DIR", str(tmp_path))
    (call,) = record_calls(gated, {"bias": ROW, "gate": TILE}, "bf16", (512, 512, 512))
    answers = calls.link(call, 86, (512, 512, 512))
    assert all(answer.startswith("new ") for answer in answers)
    assert {answer.split("_")[3] for answer in answers if "open" in answer} == {"sm80"}
    # Of 8.7 no GPU is known by its size, so that any tile may serve.
    (call,) = record_calls(gated, {"bias": ROW, "gate": TILE}, "ieee", (512, 512, 512))
    answers = calls.link(call, 87, (512, 512, 512))
    of_row = [k.name for k in list_open_kernels() if (k.arch, k.math) == ("Sm80", "Fp16x3")]
    assert {*of_row, *REPAIRS} < {answer.partition(" ")[2] for answer in answers}
    with pytest.raises(RuntimeError, match="must be one of .* compiled for, got 75"):
        calls.link(call, 75)


@needs_library
def test_behind_products(monkeypatch, tmp_path):
    """A program that swallows NaN is never within a product of split rows, as it is within one of
    tf32x3, nor is one that writes another type of 16 bits."""
    require_nvrtc()
    monkeypatch.setenv("CUTLASS_FUSED_CACHE_DIR", str(tmp_path))
    text = make_program("v0 = gt acc p0", "v1 = where v0 acc p0", "return v1", operands=1)
    of_fp32 = Call(text, ("float32:row",), "float32", "ieee", "float32")
    of_bf16 = Call(text, ("float32:row",), "bfloat16", "ieee", "float16")
    for call, size in ((of_fp32, 4096), (of_bf16, 512)):
        answers = calls.link(call, 90, (size, size, size))
        assert [answer.rpartition("_")[0] for answer in answers] == ["new pointwise"]
    within, behind = calls.link(of_fp32, 90, (256, 256, 256))
    assert within == "new cutlass_fused_open_tf32x3_32x32x64w4"
    assert behind.startswith(("new pointwise", "kept pointwise"))
    of_tiles = {answer.split()[1] for answer in calls.link(of_fp32, 90)}
    of_tf32x3 = {each.name for each in list_open_tf32x3() if not each.in_tf32}
    assert {name for name in of_tiles if "open" in name} == of_tf32x3


@needs_library
def test_every_tile_for_hopper(monkeypatch, tmp_path):
    """Of either precision: those of split rows, the repairs, and those of tf32x3."""
    require_nvrtc()
    monkeypatch.setenv("CUTLASS_FUSED_CACHE_DIR", str(tmp_path))
    (call,) = record_calls(gated, {"bias": ROW, "gate": TILE}, "tf32")
    names = {answer.split()[1] for answer in calls.link(call, 90)}
    of_row = {k.name for k in list_open_kernels() if (k.arch, k.math) == ("Sm90", "Fp16x1")}
    as_they_lie = {each.name for each in list_open_tf32x3() if each.in_tf32}
    assert {name for name in names if "open" in name} == of_row | as_they_lie | {*REPAIRS}


@needs_library
@pytest.mark.parametrize(
    "operand, dtype, m, n, piece",
    [
        ("bfloat16:tile", "bfloat16", 8, 5, 8),  # one row of 40
        ("bfloat16:row", "bfloat16", 8, 5, 1),
        ("bfloat16:row", "bfloat16", 5, 12, 4),
        ("float32:scalar", "float32", 2, 6, 4),
        ("float32:column", "float32", 2, 6, 2),
    ],
)
def test_pieces(monkeypatch, tmp_path, operand, dtype, m, n, piece):
    """The kernel is that for tensors of these sizes, as PyTorch allocates them."""
    require_nvrtc()
    monkeypatch.setenv("CUTLASS_FUSED_CACHE_DIR", str(tmp_path))
    text = make_program("v0 = mul acc p0", "v1 = sub v0 p0", "return v1", operands=1)
    found = calls.link(Call(text, (operand,), dtype, None, dtype), 80, (m, n, 0))
    assert [answer.split()[1] for answer in found] == [f"pointwise_{piece}"]


@needs_library
def test_refused(build):
    """A function that is none of elements, by its line."""
    status, lines, errors = build("tails:missing")
    assert status == 2 and "tails:missing: module 'tails' has no attribute 'missing'" in errors
    with pytest.raises(RuntimeError, match="flip"):
        record_calls(moved, {"bias": ROW}, "ieee")


@pytest.mark.parametrize(
    "arguments, error",
    [
        (["tails:number"], "tails:number must be an epilogue or a function, got int"),
        (["nothing:name"], "nothing:name: No module named 'nothing'"),
        (["./tails.py:gated"], "./tails.py:gated must be module:name, as models.tails:gated"),
        (["tails:Tails"], "Tails: what is called must be a function, got a class"),
        (["swish"], "swish must be module:name, or one of identity, relu"),
        (["tails:gated"], "gated: --operands must have bias, as in bias=N"),
        (["relu", "--operands", "gate=MN"], "operands must be of bias, got gate"),
        (["relu", "--operands", "bias=NM"], "an operand must be N, M, MN, scalar, None or"),
        (["relu", "--operands", "bias=N:int8"], "a dtype must be float16, bfloat16 or float32"),
        (["relu", "--gradients", "gate"], "operands must be of bias, got gate"),
        (["relu", "--arch", "sm_90"], "a compute capability must be as 9.0, got sm_90"),
        (["relu", "--shape", "8x8"], "a shape must be MxNxK, as 1024x8192x4096, got 8x8"),
        (["relu", "--shape", "8x8x8", "--all-tiles"], "not allowed with argument --shape"),
        (["relu", "--precision", "fp8"], "invalid choice: 'fp8'"),
    ],
)
def test_wrong_arguments(arguments, error, monkeypatch, tmp_path, capsys):
    (tmp_path / "tails.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "tails", raising=False)
    with pytest.raises(SystemExit) as ended:
        command.main(arguments)
    assert ended.value.code == 2 and error in capsys.readouterr().err


@needs_library
def test_a_folder_that_is_none(tmp_path, capsys):
    (tmp_path / "out").write_text("")
    assert command.main(["relu", "--arch", "8.0", "--out", str(tmp_path / "out")]) == 1
    assert "--out must be a folder: " in capsys.readouterr().err


def test_functions_and_numbers(monkeypatch, tmp_path):
    (tmp_path / "tails.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "tails", raising=False)
    assert isinstance(command.find("tails:Tails.plain"), Epilogue)
    assert command.parse_operand("2") == 2 and isinstance(command.parse_operand("2"), int)
    assert command.parse_operand("-0.5") == -0.5 and command.parse_operand("None") is None
    assert command.parse_operand("MN:float16") == Operand("MN", torch.float16)


def test_without_library(build, tmp_path):
    status, lines, errors = build("relu", CUTLASS_FUSED_LIBRARY=str(tmp_path / "no.so"))
    assert (status, lines) == (1, [])
    assert errors.startswith("the compiled library must be loaded, got: there is no file")
