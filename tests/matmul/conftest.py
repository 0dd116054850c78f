"""The switch works on CPU tensors here, and no test leaves it on."""

import pytest
from switched import assert_off, install_on_cpu


@pytest.fixture(autouse=True)
def on_cpu():
    install_on_cpu()
    assert_off()
    yield
    assert_off()
