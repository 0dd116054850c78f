"""The tables of the documents are those of the result files, and change with them."""

import json
import math
import re

import pytest
from documents import ROOT, TEXTS
from result_rows import ACCURACY, EVERYTHING, LAYERS, META, make_layer_row, make_row

from bench import readme
from bench.cases.accuracy_cases import LAYOUTS, SHAPES, get_depth, get_layout
from bench.kernelbench.level2 import table as level2
from bench.measure.accuracy_errors import LINE_ERRORS, compare_lines, list_excesses
from bench.measure.results import InvalidResult, case_of
from bench.plotting.accuracy import KINDS, LOOKS
from bench.trust import merge
from cutlass_fused.precision import bound_error

DOCUMENT = "before\n" + "".join(
    f"<!-- results: {name} -->\nold\n<!-- end -->\n" for name in readme.TABLES
)


@pytest.fixture
def results(tmp_path):
    """Writes rows into the result file of a suite; gives the folder."""

    def write(suite, rows):
        (tmp_path / f"{suite}.json").write_text(json.dumps({"meta": META, "rows": rows}))
        return tmp_path

    return write


def list_cells(text):
    return [line.strip("|\n ").split(" | ") for line in text.splitlines() if line[:1] == "|"]


def test_tables_are_those_of_the_results():
    """`python -m bench.readme` writes them, each into one document, from where it is shown from."""
    names = []
    for path in readme.DOCUMENTS:
        text = path.read_text()
        assert readme.fill(text, None) == text
        names += [block[2] for block in readme.BLOCK.finditer(text)]
    assert names == list(readme.TABLES)
    told = {name for name, text in TEXTS.items() if readme.BLOCK.search(text)}
    pages = (*readme.DOCUMENTS, merge.PAGE, level2.PAGE)  # both have a table of their own
    assert told == {str(path.relative_to(ROOT)) for path in pages}
    for name in ("README.md", "bench/README.md"):
        for model in ("12", "33", "39", "84"):
            assert f"| {readme.NAMES[model]}" in TEXTS[name]


def list_ratios(table, precisions, compare):
    """Over the cases of a table."""
    _, rows = readme.read_rows(None, table)
    ratios = []
    for model, mode in readme.list_model_cases(rows):
        for precision in precisions:
            found = readme.find_variants(rows, model=model, mode=mode, precision=precision)
            if {"ours", "eager"} <= found.keys():
                ratios.append(compare(found["ours"], found["eager"]))
    return ratios


def get_speedup(ours, eager):
    return eager["ms"] / ours["ms"]


def get_error_ratio(ours, eager):
    return ours["rel_err"] / eager["rel_err"]


def test_ratios_in_the_text_are_those_of_the_results():
    text = " ".join(TEXTS["docs/precision.md"].split())
    for before, precisions, compare, behind in (
        ("at", ["ieee"], get_speedup, "times the speed of eager PyTorch in fp32"),
        ("with", ["ieee"], get_error_ratio, "times its relative error"),
        ("at", ["tf32"], get_speedup, "times the speed of eager PyTorch in TF32"),
        ("at", ["bf16", "fp16"], get_speedup, "times the speed of eager PyTorch in 16 bits"),
    ):
        ratios = list_ratios("models", precisions, compare)
        sentence = f"{before} {min(ratios):.2f} to {max(ratios):.2f} {behind}"
        assert sentence in text


def test_the_first_sentences_are_those_of_the_results():
    """Each has one number, the least of its kind."""
    text = " ".join(TEXTS["README.md"].partition("\n\n")[2].partition("\n\n")[0].split())
    slowest = min(list_ratios("models", ["ieee"], get_speedup))
    assert re.match(f"In fp32 [^.]* at least {slowest:.2f} times as fast as eager PyTorch", text)
    assert max(list_ratios("models", ["ieee"], get_error_ratio)) < 1  # "with a smaller error"
    slowest = min(list_ratios("models", ["bf16", "fp16"], get_speedup))
    assert text.endswith(f"in bf16 and fp16 run at least {slowest:.2f} times as fast.")
    assert len(re.findall(r"\d\.\d", text)) == 2


def test_ratio_to_the_bare_product_is_that_of_the_results():
    _, rows = readme.read_rows(None, "models")
    found = readme.find_variants(rows, model="33", mode="train", precision="bf16")
    ratio = found["ours"]["ms"] / found["bare_product"]["ms"]
    text = " ".join(TEXTS["include/cutlass_fused/README.md"].split())
    name = readme.NAMES["33"]
    assert f"{name} in bf16 then takes {ratio:.2f} times the bare product on an H200" in text


def list_accuracy_pairs(precision, kinds=KINDS, layouts=("fwd",)):
    """The row of ours and that of cuBLAS, for each case."""
    _, rows = readme.read_rows(None, "accuracy")
    cases = {}
    for row in rows:
        cases.setdefault(case_of(row), {})[row["variant"]] = row
    for found in cases.values():
        ours = found["ours"]
        is_wanted = ours["model"] in kinds and get_layout(ours) in layouts
        if is_wanted and ours["precision"] == precision:
            yield ours, found["eager"]


def test_errors_of_fp32_are_below_those_of_cublas():
    """The table of precisions says so, with the exception that it names: the worst model."""
    worst = max(list_ratios("host", ["ieee"], get_error_ratio))
    text = " ".join(TEXTS["docs/precision.md"].split())
    assert f"at M = N = K = 64 up to {worst:.1f} times as large" in text
    for ours, eager in list_accuracy_pairs("ieee", ("rand", "randn")):
        assert ours["K"] < 256 or ours["rel_err"] <= eager["rel_err"], ours
    # Where one term dominates each sum, fp32 rounds it once, and parts hold 22 bits of it: such
    # products are judged by their columns and rows below, with a unit in the last place.
    kinds = [name for name in KINDS if name != "scaled_terms"]
    for ours, eager in list_accuracy_pairs("ieee", kinds):
        assert ours["K"] < 64 or ours["err_componentwise"] <= eager["err_componentwise"], ours


@pytest.mark.parametrize("precision", ["ieee", "tf32"])
def test_every_output_is_within_the_bound(precision):
    pairs = list(list_accuracy_pairs(precision, layouts=LAYOUTS))
    assert len(pairs) >= 70
    for ours, _ in pairs:
        assert ours["err_componentwise"] <= bound_error(get_depth(ours), precision), ours


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("precision", ["ieee", "tf32"])
def test_columns_and_rows_err_at_most_twice_as_much_as_those_of_cublas(precision, layout):
    pairs = list(list_accuracy_pairs(precision, layouts=(layout,)))
    assert len(pairs) == len(KINDS) * len(SHAPES[layout])
    for ours, eager in pairs:
        assert compare_lines((ours, eager)).keys() == set(LINE_ERRORS)
        assert not list_excesses((ours, eager)), (ours, eager)


def test_errors_of_tf32_are_those_of_tf32():
    for ours, eager in list_accuracy_pairs("tf32"):
        assert ours["rel_err"] <= 1.05 * eager["rel_err"], ours


def test_missing_results_leave_nothing(tmp_path):
    filled = readme.fill(DOCUMENT, tmp_path)
    assert "old" not in filled and "|" not in filled
    assert filled.startswith("before\n") and filled.count("<!-- end -->") == len(readme.TABLES)


def test_filling_twice_changes_nothing(results):
    folder = results("models", EVERYTHING)
    filled = readme.fill(DOCUMENT, folder)
    assert filled != DOCUMENT and readme.fill(filled, folder) == filled


def test_unknown_table_is_rejected(tmp_path):
    with pytest.raises(InvalidResult, match="no table 'model'"):
        readme.fill("<!-- results: model -->\n<!-- end -->\n", tmp_path)


def test_models(results):
    text = readme.write_models(results("models", EVERYTHING))
    times, errors = text.split("Relative L2")
    errors, others = errors.split("Milliseconds of ours")
    (head, rule, *lines), (_, _, *more) = list_cells(times), list_cells(errors)
    assert len(head) == len(rule) == 5
    norms = [readme.NAMES[model] for model in ("33", "39", "84")]
    names = [f"{name}, {mode}" for mode in ("training", "inference") for name in norms]
    assert [line[0] for line in lines] == ["Linear + scale + LeakyReLU (12)", *names]
    # Eager 2.0, ours 0.8; of the peers cuDNN is the fastest: ours_sm80 and the product are none.
    assert {cell for line in lines for cell in line[1:]} == {
        "**2.50 / 1.25** (0.800 / 2.00 / 1.00)"
    }
    assert {cell for line in more for cell in line[1:]} == {"1.0e-3 / 1.0e-3"}
    head, _, *lines = list_cells(others)
    assert head == ["model", 'fp32 `"ieee"`', 'fp32 `"tf32"`'] and len(lines) == 7
    assert {cell for line in lines for cell in line[1:]} == {"0.900 / 1.20"}
    for part in ("commit abc", "2026-11-21", "H200", "torch 2.11.0"):
        assert part in times


def test_overview(results):
    """The speed-ups of the models' table, beside the shapes."""
    folder = results("models", EVERYTHING)
    head, _, *lines = list_cells(readme.write_overview(folder))
    _, _, *wanted = list_cells(readme.write_models(folder))[: 2 + len(lines)]
    assert head[:2] == ["model", "M x N x K"] and len(lines) == 7
    shapes = {row["model"]: f"{row['M']} x {row['N']} x {row['K']}" for row in EVERYTHING}
    for line, (name, *cells) in zip(lines, wanted, strict=True):
        (model,) = (model for model, shape in shapes.items() if f"({model})" in name)
        assert line == [name, shapes[model], *(cell.partition(" (")[0] for cell in cells)]


def test_losses_are_told(results):
    """Those of each suite, each by the fastest peer. What is no peer wins nothing."""

    def make(times, **more):
        return [make_row(variant=name, ms=ms, **more) for name, ms in times.items()]

    rows = make({"ours": 2.0, "eager": 3.0, "compile": 1.5, "cudnn": 1.0, "ours_sm80": 0.5})
    rows += make({"ours": 2.0, "eager": 2.0, "bare_product": 1.0}, precision="fp16")
    results("models", rows)
    layers = [
        make_layer_row(variant=name, ms=ms, ms_min=ms, ms_max=ms)
        for name, ms in (("ours", 2.0), ("eager", 1.0), ("copy", 0.5))
    ]
    results("memory_bound", layers)
    sweep = make({"ours": 2.0, "eager": 1.0}, suite="sweep", graph=True, M=16)
    sweep += make({"ours": 2.0, "eager": 0.5}, suite="sweep", graph=True, M=32)
    sweep += make({"ours": 2.0, "eager": 3.0}, suite="sweep", graph=True, M=64)
    text = readme.write_losses(results("sweep", sweep))
    sizes = f"{rows[0]['N']} x {rows[0]['K']}"
    assert [line for line in text.splitlines() if line.startswith("*")] == [
        f"* {readme.NAMES['12']}, bf16, 1024 x {sizes}: 0.500, cuDNN's fused graph.",
        "* softmax, bf16, 4096 x 8192: 0.500, eager PyTorch.",
        f"* {readme.NAMES['12']}, bf16: below 1 at 2 of 3 shapes, least 0.250 at 32 x {sizes}.",
    ]
    assert text.count("commit abc") == 3


def test_model_12_in_training_stands_in_for_eval(results):
    rows = [row for row in EVERYTHING if (row["model"], row["mode"]) == ("12", "train")]
    assert list_cells(readme.write_models(results("models", rows)))[2][0] == readme.NAMES["12"]


def test_missing_variants_leave_a_gap(results):
    rows = [row for row in EVERYTHING if (row["model"], row["mode"]) == ("12", "eval")]
    rows = [row for row in rows if (row["precision"], row["variant"]) != ("tf32", "ours")]
    rows = [row for row in rows if row["precision"] != "fp16"]
    head, _, line, *_ = list_cells(readme.write_models(results("models", rows)))
    assert head == ["model", 'fp32 `"ieee"`', 'fp32 `"tf32"`', "bf16"]
    assert [bool(cell) for cell in line] == [True, True, False, True]


def test_case_without_another_peer(results):
    rows = [make_row(variant=name) for name in ("ours", "eager", "bare_product")]
    cells = list_cells(readme.write_models(results("models", rows)))
    assert cells[2][1] == "**2.50** (0.800 / 2.00)"


def test_accuracy(results):
    """The rows with K = 8192 give an error for each kind of input, and the times of one kind."""
    rows = [row | {"rel_err": 2e-7} for row in ACCURACY]
    for row in rows:
        row["ms"] = row["ms_min"] = row["ms_max"] = 0.5 if row["model"] == "randn" else 0.25
    text = readme.write_accuracy(results("accuracy", rows))
    assert "Accuracy (commit abc" in text and "1024 x 8192 x 8192" in " ".join(text.split())
    head, _, *lines, times = list_cells(text)
    assert head == ["inputs", *(look.label for look in LOOKS.values())]
    assert [line[0] for line in lines] == list(KINDS.values())
    assert {cell for line in lines for cell in line[1:]} == {"2.0e-7"}
    assert times == ["milliseconds, randn", *["0.500"] * len(LOOKS)]


def test_accuracy_of_some(results):
    rows = [row for row in ACCURACY if row["model"] == "rand" and row["precision"] == "ieee"]
    head, _, line, times = list_cells(readme.write_accuracy(results("accuracy", rows)))
    assert len(head) == len(line) == len(times) == 1 + len({row["variant"] for row in rows})
    assert times[0] == "milliseconds, rand"


def test_accuracy_of_columns_and_rows(results):
    """The worst of all shapes, by inputs and layout; none of rows that do not say it."""
    rows = [
        make_row(
            *(kind, "eval", precision, variant, 1.0),
            **{"suite": "accuracy", "layout": layout, "K": k, "err_column": error, "err_row": 1e-7},
        )
        for kind, layout in (("randn", "fwd"), ("randn", "wgrad"), ("scaled_both", "wgrad"))
        for precision in (("ieee", "tf32") if kind == "randn" else ("ieee",))
        for k, worse in ((64, 3), (8192, 2))
        for variant, error in (("ours", worse * 1e-6), ("eager", 2e-6))
    ]
    text = readme.write_accuracy(results("accuracy", rows))
    first, second = text.split("The largest relative L2 error of a column")
    assert "wgrad" not in first and len(list_cells(first)) == 2 + 2
    head, _, *lines = list_cells(second)
    assert head == ["inputs", "fwd", "wgrad"]
    assert lines[0] == ["randn", "1.50 / 1.50", "1.50 / 1.50"]
    assert lines[1] == ["scaled both", "- / -", "1.50 / -"]
    assert "of a column" not in readme.write_accuracy(results("accuracy", ACCURACY))


def test_layers(results):
    head, _, *lines = list_cells(readme.write_layers(results("memory_bound", LAYERS)))
    names = ["softmax, fp32", "softmax, bf16", "batch norm, fp32", "batch norm, bf16"]
    assert head == ["M x N", *names]
    assert [line[0] for line in lines] == ["16 x 8192", "4096 x 8192"]
    assert {cell for line in lines for cell in line[1:]} == {"**1.00 / 1.00** (2.00)"}


def test_layers_against_eager_and_the_fastest_other(results):
    ms = make_layer_row(variant="ours")["ms"]
    rows = [
        make_layer_row(variant=name, ms=factor * ms, ms_min=ms, ms_max=2 * ms)
        for name, factor in (("ours", 1), ("eager", 1.5), ("compile", 2), ("max_autotune", 1.25))
    ]
    _, _, line = list_cells(readme.write_layers(results("memory_bound", rows)))
    assert line == ["4096 x 8192", "**1.50 / 1.25** (2.00)"]


def test_copy_of_a_layer_is_no_peer(results):
    ms = make_layer_row(variant="ours")["ms"]
    rows = [make_layer_row(variant=name) for name in ("ours", "eager", "compile")]
    rows.append(make_layer_row(variant="copy", ms=ms / 2, ms_min=ms / 2, gbps=2500.0))
    _, _, line = list_cells(readme.write_layers(results("memory_bound", rows)))
    assert line == ["4096 x 8192", "**1.00 / 1.00** (2.00, 80%)"]


def test_host_is_in_microseconds(results):
    rows = [make_row(variant=name, suite="host") for name in ("ours", "eager", "compile")]
    text = readme.write_host(results("host", rows))
    assert list_cells(text)[2] == [readme.NAMES["12"], "**2.50 / 2.00** (800 / 2000 / 1600)"]


def test_profiles_are_taken_as_they_are(tmp_path):
    for name in ("profile-33-train-bf16", "profile-12-eval-ieee"):
        (tmp_path / f"{name}.txt").write_text(f"\nkernel of {name}\n\n")
    assert readme.write_profile(tmp_path) == (
        "```text\nkernel of profile-12-eval-ieee\n```\n\n"
        "```text\nkernel of profile-33-train-bf16\n```\n"
    )


@pytest.mark.parametrize(
    ("time", "text"),
    [(2.7, "2.70"), (0.39214, "0.392"), (12.06, "12.1"), (151.4, "151"), (0.0123, "0.0123")],
)
def test_times_have_three_digits(time, text):
    assert readme.format_time(time) == text
    assert math.isclose(float(text), time, rel_tol=5e-3)


def test_errors_have_two_digits():
    assert readme.format_error(4.3123e-07) == "4.3e-7"
    assert readme.format_error(0.0) == "0.0e0"
    assert readme.format_error(1.26e-10) == "1.3e-10"


def test_command(results, monkeypatch, capsys, tmp_path):
    document = tmp_path / "README.md"
    document.write_text(DOCUMENT)
    monkeypatch.setattr(readme, "DOCUMENTS", (document,))
    folder = results("models", EVERYTHING)
    for said in ("changed", "as before"):
        assert readme.main(["--results", str(folder)]) == 0
        assert said in capsys.readouterr().out
    assert "**2.50 / 1.25**" in document.read_text()
    (folder / "models.json").write_text("{}")
    with pytest.raises(SystemExit, match="no result file"):
        readme.main(["--results", str(folder)])


def test_folder_that_is_missing_empties_no_table(monkeypatch, capsys, tmp_path):
    document = tmp_path / "README.md"
    document.write_text(DOCUMENT)
    monkeypatch.setattr(readme, "DOCUMENTS", (document,))
    with pytest.raises(SystemExit):
        readme.main(["--results", str(tmp_path / "nowhere")])
    assert "there is no folder" in capsys.readouterr().err
    assert document.read_text() == DOCUMENT
