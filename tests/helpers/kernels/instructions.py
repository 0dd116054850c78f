"""What the machine code of a library holds."""

import re
import subprocess
from collections import defaultdict

# Looked for in the machine code: tensor cores and asynchronous copies to shared memory, as 8.0 has
# them and as 9.0 has them (of TF32 too; of tiles, which go back too, and of plain bytes), accesses
# of 16 bytes, atomics ("RED" is a suffix of SYNCS), prefetches into L2 (in front of the wait
# alone), the wait for the kernel before, what lets the next start.
INSTRUCTIONS = {
    "HMMA": r"HMMA",
    "LDGSTS": r"LDGSTS",
    "HGMMA_TF32": r"HGMMA[.\w]*\.TF32",
    "HGMMA": r"HGMMA",
    "UTMALDG": r"UTMALDG",
    "UTMASTG": r"UTMASTG",
    "UBLKCP": r"UBLKCP",
    "LDG_CONSTANT": r"LDG\.E[.\w]*\.CONSTANT",
    "LDG_128": r"LDG\.E[.\w]*\.128",
    "STG_128": r"STG\.E[.\w]*\.128",
    "STG_64": r"STG\.E[.\w]*\.64",
    "ATOMIC": r"(?<!\.)(?:ATOM|RED)[GS]?\.",
    "PREFETCH": r"UTMAPF|CCTL\.E\.PF2",
    "ACQBULK": r"ACQBULK",
    "PREEXIT": r"PREEXIT",
}


def read_instructions(cuobjdump, library):
    """{(architecture, kernel): the instructions of INSTRUCTIONS that it holds}, read as a stream:
    the listing has millions of lines."""
    groups = (rf"(?P<{name}>{pattern})" for name, pattern in INSTRUCTIONS.items())
    wanted = re.compile(rf"\b(?:{'|'.join(groups)})")
    found = defaultdict(set)
    arch = key = None
    command = [str(cuobjdump), "-sass", str(library)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        for line in process.stdout:
            if "Function : " in line:
                key = arch, line.split()[-1]
                found[key]  # a kernel counts even if it holds none
            elif match := wanted.search(line):
                if match.lastgroup != "PREFETCH" or "ACQBULK" not in found[key]:
                    found[key].add(match.lastgroup)
            elif line.startswith("arch = "):
                arch = line.split()[-1]
    assert process.returncode == 0
    return found
