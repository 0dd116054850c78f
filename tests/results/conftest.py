"""Fixtures of the tests of pictures."""

import pytest

from cutlass_fused.comparison import drawing


@pytest.fixture
def figures(monkeypatch):
    """The figures that were saved."""
    saved, save = [], drawing.save_figure

    def keep(figure, path):
        saved.append(figure)
        save(figure, path)

    monkeypatch.setattr(drawing, "save_figure", keep)
    return saved
