"""From which folder, and so from which GPU, the documents show what."""

import re

import pytest
from documents import ROOT, TEXTS
from result_rows import META, make_row

from bench import plot, readme
from bench.measure.results import SUITES, InvalidResult, ResultFile


def list_pictures():
    """(the document, the file) of each picture that is shown."""
    return [
        (name, ((ROOT / name).parent / picture).resolve())
        for name, text in TEXTS.items()
        for picture in re.findall(r"!\[[^\]]*\]\((\S*)\)", text)
    ]


def test_every_suite_is_shown_from_where_it_is():
    others = {"profile": "profile-*.txt", "level2": "level2.jsonl"}
    for what, folder in plot.SHOWN.items():
        name = others.get(what, f"{what}.json")
        assert [*(plot.RESULTS / folder).glob(name)], (what, folder)
    assert plot.SHOWN.keys() - others.keys() <= set(SUITES)


def test_nothing_is_kept_that_another_folder_is_shown_for():
    for path in plot.RESULTS.glob("*/*"):
        if path.suffix == ".png":
            suites = plot.PICTURES[path.name]
        else:
            suites = [path.stem.partition("-")[0]]
        assert {plot.SHOWN[suite] for suite in suites} == {path.parent.name}, path


def test_every_result_is_of_the_gpu_of_its_folder():
    for path in plot.RESULTS.glob("*/*.json"):
        meta, _ = plot.read_rows(path.parent, path.stem)
        assert meta["gpu"] == path.parent.name


def test_every_picture_is_in_one_document():
    pictures = [picture for _, picture in list_pictures()]
    assert sorted(pictures) == sorted(plot.RESULTS.glob("*/*.png"))


def test_every_picture_is_of_the_gpu_that_the_tables_beside_it_name():
    """No heading lies between a picture and a table of the suites that it is drawn from."""
    for name, picture in list_pictures():
        sections = re.split(r"^## ", TEXTS[name], flags=re.MULTILINE)
        (section,) = (text for text in sections if picture.name in text)
        (block,) = readme.BLOCK.finditer(section)
        assert f"one NVIDIA {picture.parent.name.upper()}," in block[0]


def write(folder, suite, gpu, rows):
    ResultFile(folder / gpu, suite, META | {"gpu": gpu}).replace(rows)


@pytest.fixture
def shown(monkeypatch, tmp_path):
    """Models of one GPU, the host's times of another one, and models of that one too."""
    monkeypatch.setattr(plot, "RESULTS", tmp_path)
    monkeypatch.setattr(plot, "SHOWN", {"models": "h200", "host": "l40", "profile": "l40"})
    rows = [make_row(variant=name) for name in ("ours", "eager", "compile")]
    write(tmp_path, "models", "h200", rows)
    write(tmp_path, "models", "l40", rows)
    write(tmp_path, "host", "l40", [row | {"suite": "host"} for row in rows])
    return tmp_path


def test_tables_are_of_the_folders_that_are_shown(shown):
    assert "one NVIDIA H200," in readme.write_models(None)
    assert "one NVIDIA L40," in readme.write_host(None)
    assert "one NVIDIA L40," in readme.write_models(shown / "l40")
    assert readme.write_host(shown / "h200") == ""


def test_pictures_are_of_the_folders_that_are_shown(shown, capsys):
    pytest.importorskip("matplotlib")
    assert plot.main([]) == 0
    assert capsys.readouterr().out.count("speedups.png: drawn") == 2
    assert (shown / "h200/speedups.png").exists() and (shown / "l40/speedups.png").exists()


def test_unknown_results_are_told(shown):
    (shown / "l40/host.json").write_text("{}")
    with pytest.raises(InvalidResult, match="l40/host.json is no result file"):
        readme.fill("<!-- results: host -->\n<!-- end -->\n", None)
