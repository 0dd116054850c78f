"""The key under which a plan is kept: all that make_plan reads of a call is in it."""

import re
import subprocess

import pytest
from host_program import compile_host_program
from plans import TRACES, Host, format_command, list_calls

from build_system.cuda_toolkit import find_cuda_toolkit
from build_system.host_compiler import name_host_compiler
from build_system.paths import ROOT

PLAN = ROOT / "include/cutlass_fused/plan"
# A call, and another value of everything that the host program reads of one but the parts of a GPU,
# which its index stands for.
CALL = {"m": 1024, "n": 8192, "k": 8192, "dtype": "bfloat16", "tail": "batch_norm"}
OTHER_VALUES = {
    **{"m": 1023, "n": 8191, "k": 8191, "batch": 2, "dtype": "float16", "y_dtype": "float32"},
    **{"ldx": 8200, "ldw": 8200, "ldy": 8200, "align_x": 8, "align_w": 8, "align_y": 8},
    **{"major_x": 1, "major_w": 1, "major_y": 1},
    **{"tail": "logits", "epilogue": "scale_batch_norm", "keeps_z": 1, "has_centre": 1},
    "bare": 1,
    **{"is_last": 0, "tail_y": 8, "gpu": 1, "forced": "128x128x64B", "tuned": "128x128x64B"},
}


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    return Host(compile_host_program("plan", tmp_path_factory.mktemp("plan_key")))


def make_keys(host, calls):
    return host.run([format_command("key", call) for call in calls])


def test_same_call_same_key(host):
    first, again = make_keys(host, [CALL, dict(reversed(CALL.items()))])
    assert first == again


def test_every_value_counts(host):
    """Alone; none takes the place of another."""
    calls = [CALL] + [CALL | {name: value} for name, value in OTHER_VALUES.items()]
    calls += [CALL | {"struck": part} for part in TRACES]
    calls += [CALL | {"dtype": "float32", "coarse": coarse} for coarse in (0, 1)]
    assert len(set(make_keys(host, calls))) == len(calls)


def test_calls_with_one_key_have_one_plan(host):
    """On each GPU, whose index is in the key."""
    gpus = {}
    calls = [
        call | {"gpu": gpus.setdefault(call["capability"], len(gpus)), "align_x": align}
        for call in list_calls()
        for align in (16, 2)
    ]
    plans = {}
    for key, plan in zip(make_keys(host, calls), host.make_plans(calls), strict=True):
        assert plans.setdefault(key, plan) == plan
    assert len(plans) > 1000


@pytest.fixture
def compile_key(tmp_path):
    """Compiles the header of the key behind changed ones: {file: (struct, a member)}."""
    try:
        include = find_cuda_toolkit().include
    except SystemExit as missing:
        pytest.skip(str(missing))

    def compile_key(changes):
        for file, (struct, member) in changes.items():
            text = (ROOT / "include/cutlass_fused" / file).read_text()
            changed, count = re.subn(rf"(struct {struct} \{{\n)", rf"\1  {member};\n", text)
            assert count == 1
            path = tmp_path / "cutlass_fused" / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(changed)
        source = tmp_path / "key.cpp"
        source.write_text('#include "cutlass_fused/plan/plan_key.hpp"\n')
        command = [name_host_compiler(), "-std=c++17", "-Wall", "-fsyntax-only", source]
        command += ["-I", tmp_path, "-I", ROOT / "include", "-isystem", include]
        result = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        return result.returncode, result.stderr

    return compile_key


def test_key_compiles(compile_key):
    assert compile_key({}) == (0, "")


@pytest.mark.parametrize(
    ("file", "struct"),
    [
        ("plan/problem.hpp", "Problem"),
        ("plan/problem.hpp", "Rows"),
        ("plan/plan.hpp", "Tail"),
        ("plan/overrides.hpp", "Overrides"),
    ],
)
def test_a_member_that_is_not_in_the_key_does_not_compile(compile_key, file, struct):
    status, errors = compile_key({file: (struct, "int another = 0")})
    assert status != 0
    assert re.search(r"plan_key\.hpp:\d+:\d+: error: .*only \d+ names", errors), errors


def test_make_plan_is_given_what_the_key_is(host):
    """And nothing else: no header of plans reads what is global, but to find the overrides."""
    parameters = [
        re.sub(r"\s+", " ", re.search(rf"{name}\(([^)]*)\)", (PLAN / file).read_text())[1])
        for name, file in (("Plan make_plan", "make_plan.hpp"), ("make_plan_key", "plan_key.hpp"))
    ]
    types = [re.findall(r"(\w+) const&", text) for text in parameters]
    assert types[0] == types[1] == ["Problem", "Tail", "Device", "Overrides"]
    for header in PLAN.glob("*.hpp"):
        reads = re.search(
            r"forced_tile\b|tuned_tiles\(\)|getenv|static thread_local", header.read_text()
        )
        assert not reads or header.name in ("overrides.hpp", "tuned_tiles.hpp", "tile_names.hpp")
