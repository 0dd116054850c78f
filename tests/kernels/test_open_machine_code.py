"""Open kernels with programs in them, assembled as the library does it: what a program lacks is
gone, and registers do."""

import re
import subprocess

import pytest
from cuobjdump import find_cuobjdump
from open_pack import read_pack
from open_texts import Assembler, compile_link_program, require_nvrtc
from program_texts import make_program

from build_system.paths import OPEN_KERNELS, PACKAGE, ROOT
from kernels.open_table import REPAIRS, list_open_kernels, list_open_tf32x3

PACK = ROOT / PACKAGE / OPEN_KERNELS.name
IDENTITY = make_program("return acc", operands=0)
# Scale, bias and LeakyReLU.
LEAKY = make_program(
    *("v0 = add acc p0", "v1 = mul v0 p1", "v2 = gt v1 0x0.0p+0", "v3 = mul v1 p2"),
    *("v4 = where v2 v1 v3", "return v4"),
    operands=3,
)
LEAKY_OPERANDS = ("float32:row", "float32:row", "float32:scalar")
# A gate that comes by TMA where it can.
GATED = make_program("v0 = add acc p0", "v1 = mul v0 p1", "return v1", operands=2)
# A matrix of another kind than a source, and a second output.
BESIDE = make_program("v0 = add acc p0", "v1 = relu v0", "return v1 v0", operands=1)
BESIDE_OPERANDS = ("bfloat16:tile",)
OUTPUT_OF = {"bf16": "bfloat16", "f16": "float16", "fp16x1": "float32", "fp16x3": "float32"}


@pytest.fixture(scope="module")
def assemble(tmp_path_factory):
    require_nvrtc()
    if not PACK.is_file():
        pytest.skip("the library was not built")
    folder = tmp_path_factory.mktemp("machine_code")
    program = compile_link_program("assemble", folder, "-O1")
    return Assembler(program, PACK, folder / "cache")


@pytest.fixture(scope="module")
def texts():
    return read_pack(PACK.read_bytes())


class Code:
    """What cuobjdump says of a kernel."""

    def __init__(self, cubin, path):
        path.write_bytes(cubin)
        sass, usage = (
            subprocess.run(
                [find_cuobjdump(), option, path], capture_output=True, text=True, check=True
            ).stdout
            for option in ("-sass", "-res-usage")
        )
        instruction = r"^\s+/\*[0-9a-f]{4,5}\*/\s+(?:@!?U?P\w+\s+)?([A-Z0-9_.]+)"
        self.names = [name for name in re.findall(instruction, sass, re.M) if name != "NOP"]
        numbers = dict(re.findall(r"(REG|STACK|LOCAL):(\d+)", usage))
        self.registers, self.stack = int(numbers["REG"]), int(numbers["STACK"])

    def count(self, *beginnings):
        return sum(name.startswith(beginnings) for name in self.names)


def list_names():
    """A kernel of each kind: group, Math row and, for SM90, the way of writing."""
    kinds = {}
    for kernel in list_open_kernels():
        way = kernel.shape.rpartition("_")[2] if kernel.arch == "Sm90" else ""
        kinds.setdefault((kernel.arch, kernel.group, kernel.math, way), kernel)
    of_tf32x3 = [kernel.name for kernel in list_open_tf32x3()]
    return [*(kernel.name for kernel in kinds.values()), *of_tf32x3, *REPAIRS]


@pytest.mark.parametrize("name", list_names())
def test_no_spill_and_nothing_is_left_of_what_a_program_lacks(assemble, texts, tmp_path, name):
    as_they_lie = "_tf32" in name
    math = name.split("_")[4] if "repair" not in name and not as_they_lie else "fp16x3"
    y = OUTPUT_OF[math]
    capability = 90 if "sm90" in name or as_they_lie else 80
    by_tma = "CUTLASS_FUSED_LOAD 10 " not in texts[name]
    made = assemble(
        (name, (), (y,), IDENTITY, capability, by_tma),
        (name, LEAKY_OPERANDS, (y,), LEAKY, capability, by_tma),
        (name, (f"{y}:row", f"{y}:tile="), (y,), GATED, capability, by_tma),
        (name, BESIDE_OPERANDS, (y, "bfloat16"), BESIDE, capability, by_tma),
    )
    assert [each["error"] for each in made] == [""] * 4
    identity, leaky, gated, beside = (Code(each["cubin"], tmp_path / "a.cubin") for each in made)
    if "sm90" in name and "split" not in name:
        # By pieces of 16 bytes, as far as there are whole ones.
        pieces = "CUTLASS_FUSED_PACK" in texts[name]
        for access in ("LDG.E.128", "STG.E.128"):
            assert pieces and beside.count(access) > identity.count(access)
        assert ("swapped" in name) == (beside.count("MOVM") > 0)
    for code in (identity, leaky):
        assert code.stack == 0 and code.count("LDL", "STL") == 0
    # Beside the scales of split rows, the partial sums of stream-K, and rows to repair.
    if not math.startswith("fp16x") and not name.endswith("streamk"):
        assert identity.count("LDG.") == 0
    # What calls there are divide integers of the kernel's own.
    assert identity.count("CALL") == leaky.count("CALL")
    assert identity.registers <= leaky.registers <= 255
    assert len(identity.names) < len(leaky.names)
    if by_tma:
        assert gated.count("UTMALDG") > identity.count("UTMALDG")
        assert gated.count("LDG.") - identity.count("LDG.") <= leaky.count("LDG.")
    else:
        assert gated.count("LDG.") > identity.count("LDG.")
