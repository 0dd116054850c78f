"""Which slot of an open kernel each operand goes into."""

import subprocess

import pytest
from nvrtc import compile_to_ptx
from open_texts import CODES, FIRST_COLUMN, FIRST_SCALAR, FIRST_TILE, SLOTS, compile_link_program
from program_texts import LARGE, make_program

HALF, WIDE, BRAIN = "float16", "float32", "bfloat16"


@pytest.fixture(scope="module")
def choose(tmp_path_factory):
    """(slots, types) of each (operands, outputs), or None; and the source around a program."""
    program = compile_link_program("slots", tmp_path_factory.mktemp("slots"), "-Wextra")

    def run(operands, outputs=(WIDE,), by_tma=False, text=None):
        words = [str(int(by_tma)), ",".join(operands) or "-", ",".join(outputs)]
        line = " ".join([*words, text.encode().hex() if text else "-"])
        result = subprocess.run([program], input=line, capture_output=True, text=True, check=True)
        first, _, source = result.stdout.removesuffix("====\n").partition("\n")
        if first == "none":
            return None
        *slots, types = first.split(" ")
        return (list(map(int, slots)), types) if text is None else source

    return run


def write_types(used, outputs=()):
    """Of {slot: dtype} and of the outputs beside y."""
    return "".join(CODES[used.get(slot)] for slot in range(SLOTS)) + "".join(
        CODES[type_] for type_ in (*outputs, None, None)[:2]
    )


def test_no_operand(choose):
    assert choose(()) == ([], write_types({}))


def test_kinds(choose):
    """Each in slots of its own, in the order in which they come."""
    operands = (f"{HALF}:tile", f"{WIDE}:row", f"{BRAIN}:scalar", f"{HALF}:column", f"{BRAIN}:row")
    slots = [FIRST_TILE, 0, FIRST_SCALAR, FIRST_COLUMN, 1]
    types = dict(zip(slots, (HALF, WIDE, BRAIN, HALF, BRAIN), strict=True))
    assert choose(operands) == (slots, write_types(types))


def test_outputs(choose):
    """y's type is no type of the program's."""
    assert choose((), (HALF, BRAIN)) == ([], write_types({}, (BRAIN,)))
    assert choose((), (WIDE, WIDE, HALF)) == ([], write_types({}, (WIDE, HALF)))
    assert choose((), (WIDE,) * 4) is None


@pytest.mark.parametrize("kind, most", [("row", 4), ("column", 2), ("tile", 2), ("scalar", 10)])
def test_most(choose, kind, most):
    slots, _ = choose((f"{WIDE}:{kind}",) * most)
    assert len(set(slots)) == most
    assert choose((f"{WIDE}:{kind}",) * (most + 1)) is None


def test_scalars_take_what_is_left(choose):
    """Where vectors leave room, which come first whatever the order is."""
    scalars, rows = (f"{WIDE}:scalar",) * 6, (f"{HALF}:row",) * 3
    slots, types = choose((*scalars, *rows))
    assert slots == [6, 7, 8, 9, 3, 4, 0, 1, 2]
    assert types == "22211011110000"
    assert choose((*scalars, *rows, f"{HALF}:column", f"{HALF}:column")) is None


TILE, LIKE_Y = f"{HALF}:tile", f"{HALF}:tile="


@pytest.mark.parametrize(
    "operands, slots",
    [
        ((LIKE_Y,), [FIRST_TILE]),
        ((TILE,), [FIRST_TILE + 1]),
        ((TILE, LIKE_Y), [FIRST_TILE + 1, FIRST_TILE]),
        ((LIKE_Y, TILE), [FIRST_TILE, FIRST_TILE + 1]),
        ((LIKE_Y, LIKE_Y), [FIRST_TILE, FIRST_TILE + 1]),
        ((TILE, TILE), None),
        ((LIKE_Y, LIKE_Y, LIKE_Y), None),
    ],
)
def test_tiles_by_tma(choose, operands, slots):
    """The first slot takes what lies as y does alone; a kernel that loads elements takes any."""
    found = choose(operands, (HALF,), by_tma=True)
    assert found == (slots and (slots, write_types(dict.fromkeys(slots, HALF))))
    if len(operands) <= 2:
        assert choose(operands, (HALF,))[0] == [FIRST_TILE, FIRST_TILE + 1][: len(operands)]


def test_source(choose):
    """NVRTC compiles it, and leaves a marked line for acc, each operand and each output."""
    text = make_program("v0 = pow acc p0", "v1 = mul v0 p1", "return v1 v0 p1")
    source = choose((f"{WIDE}:tile", f"{HALF}:row"), (WIDE,) * 3, text=text)
    ptx, log = compile_to_ptx(source, ("-arch=compute_90a", "--std=c++17", "-fmad=false"))
    assert ptx is not None, log
    marks = [line.partition("// CUTLASS_FUSED_")[2] for line in ptx.splitlines()]
    assert [mark for mark in marks if mark] == ["IN 0", "IN 11", "IN 1", "OUT 0", "OUT 1", "OUT 2"]


def test_source_of_a_large_program(choose):
    kinds = ["row"] * 4 + ["column"] * 2 + ["scalar"] * 4 + ["tile"] * 2
    assert choose([f"{WIDE}:{kind}" for kind in (*kinds, *["scalar"] * 4)], text=LARGE) is None
    text = make_program("v0 = neg p11", "return v0", operands=12)
    source = choose([f"{WIDE}:{kind}" for kind in kinds], text=text)
    assert source.count("in<") == 13
