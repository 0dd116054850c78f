"""Which kernels run, by the log."""

import os
import re
import subprocess
import sys
import textwrap


def run_logged(code: str, **environment: str) -> tuple[list[str], list[str]]:
    """stdout and the lines of the log of a fresh process, with "--" where the code prints that.

    The log is switched on when a process starts; it is on stderr.
    """
    names = {"CUTLASS_FUSED_LOG": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=os.environ | names | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    log = re.findall(r"^(?:cutlass_fused: .*|--)$", done.stderr, re.MULTILINE)
    return done.stdout.splitlines(), log


def read_plan(line: str) -> list[str]:
    """A line of the log: the product's kernel, and what else belongs to the plan."""
    return re.fullmatch(r"cutlass_fused: .* K=\d+: (.*)", line)[1].split("; ")
