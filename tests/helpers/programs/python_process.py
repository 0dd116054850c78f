"""Code in a Python process of its own."""

import os
import subprocess
import sys
import textwrap

from build_system.paths import ROOT


def run_python(code, **environment):
    """stdout of `code` in a fresh interpreter; fails if it fails or writes to stderr."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=os.environ | {"PYTHONPATH": path} | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout
