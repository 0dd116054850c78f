"""How long the build took, by a clock that ran beside it."""

import pytest

from build_system.clock import read_times
from build_system.paths import BUILD_SECONDS, ROOT

MAX_SECONDS = 20 * 60  # on two cores
# What the clock takes where a build takes 1047 s, as on the machine for which that was set: another
# built in 2801 s, on two cores that other work slowed down, and its clock took 8.0 s.
CLOCK_SECONDS = 3.0


def test_build_time():
    written, times = ROOT / BUILD_SECONDS, read_times()
    if not written.is_file() or not times:
        pytest.skip("the library was not built in this checkout, with a clock")
    seconds = int(written.read_text())
    slowness = sum(times) / len(times) / CLOCK_SECONDS
    assert seconds < MAX_SECONDS * slowness, f"{seconds} s, {slowness:.2f} times as slow a machine"
