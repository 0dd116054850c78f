"""What the machine code of a library holds."""

import os
import re
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

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
GROUPS = (rf"(?P<{name}>{pattern})" for name, pattern in INSTRUCTIONS.items())
WANTED = re.compile(rf"\b(?:{'|'.join(GROUPS)})")


def read_instructions(cuobjdump, library):
    """{(architecture, kernel): the instructions of INSTRUCTIONS that it holds}. By nvdisasm, which
    lies beside cuobjdump and lists millions of lines in less time without their encodings."""
    found, library = {}, Path(library).resolve()
    listed = run(cuobjdump, "-res-usage", library)
    archs = re.findall(r"^Fatbin elf code:\n=+\narch = (\w+)$", listed, re.MULTILINE)
    with tempfile.TemporaryDirectory() as folder:
        run(cuobjdump, "-xelf", "all", library, cwd=folder)
        # NAME.7.sm_90.cubin is the seventh listed; that of sm_90a has such a name too.
        cubins = sorted(Path(folder).iterdir(), key=lambda path: int(path.name.split(".")[-3]))
        disassembler = Path(cuobjdump).with_name("nvdisasm")
        # Its threads wait for processes.
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            read = pool.map(lambda path: read_cubin(disassembler, path), cubins)
            for arch, kernels in zip(archs, read, strict=True):
                found |= {(arch, kernel): held for kernel, held in kernels.items()}
    return found


def read_cubin(nvdisasm, path):
    """{kernel: ...} of one file."""
    found, held = {}, None
    # No analysis of the flow of data, which only finds what jumps reach.
    command = [str(nvdisasm), "-c", "-ndf", str(path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        for line in process.stdout:
            if line.startswith(".text."):
                # A kernel counts even if it holds none.
                held = found[line.strip()[len(".text.") : -1]] = set()
            elif match := WANTED.search(line):
                if match.lastgroup != "PREFETCH" or "ACQBULK" not in held:
                    held.add(match.lastgroup)
    assert process.returncode == 0, path
    return found


def run(*command, cwd=None):
    words = list(map(str, command))
    return subprocess.run(words, capture_output=True, text=True, check=True, cwd=cwd).stdout
