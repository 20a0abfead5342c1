"""What verbs print at 60 to 200 columns: words and numbers whole, what is left out said."""

import re

import pytest
from typer.testing import CliRunner

from perfml.cli import app, output
from perfml.cli.verbs import groups
from perfml.report.render import text
from perfml.tables import write_table
from tests.support.paths import DATA
from tests.support.report_data import on_h200

pytestmark = pytest.mark.long

WIDTHS = (60, 80, 120, 200)

VERBS = {
    "ingest": ("ingest", "{profile}", "--out", "{folder}/k.parquet"),
    "merge": ("merge", "{kernels}", "--out", "{folder}/l.parquet"),
    "inspect": ("inspect", "{layers}"),
    "metrics": ("metrics",),
    "datasets": ("datasets",),
    "train": ("train", "{layers}", "--model", "dt", "--splits", "2"),
    "rank": (
        *("rank", "{layers}", "--model", "dt", "--resamples", "2", "--permutations", "20"),
        *("--method", "builtin"),
    ),
    "select": ("select", "{layers}", "--most", "2"),
    "select --passes": ("select", "{layers}", "--most", "2", "--passes", "3"),
    "explain": ("explain", "{layers}", "--baseline", "cublas", "--target", "cudnn"),
    "explain --more": (
        *("explain", "{layers}", "--baseline", "cublas", "--target", "cudnn", "--more"),
        *("--launches", "{kernels}"),
    ),
    "advise": ("advise", "{layers}", "--launches", "{kernels}"),
    "roofline": ("roofline", "{layers}"),
    "gate": ("gate", "{layers}", "{layers}"),
    "doctor": ("doctor",),
    "plot": ("plot", "--list"),
    "collect": ("collect", "yolov4-tiny", "--dry-run", "--out", "{folder}/runs"),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Return the files of a small network on a device whose peaks are known."""
    folder = tmp_path_factory.mktemp("widths")
    kernels, layers = on_h200(layers=6)
    found = {name: folder / f"{name}.parquet" for name in ("kernels", "layers")}
    write_table(kernels, found["kernels"], kind="kernels", provenance={})
    write_table(layers, found["layers"], kind="layers", provenance={})
    profile = DATA / "ncu" / "vectors.csv"
    return {name: str(path) for name, path in found.items()} | {
        "folder": str(folder),
        "profile": str(profile),
    }


@pytest.fixture(scope="module")
def printed(files):
    """Return what a verb prints, as a function of the width; a verb runs once."""
    kept = {}

    def of(verb):
        if verb not in kept:
            kept[verb] = _writers(verb, files)
        return kept[verb]

    return of


def _writers(verb, files):
    """Run a verb; return functions that write its documents and tables at a width."""
    writers = []
    to_text, table_text = text.to_text, text.table_text

    def keep(write, shown, **how):
        writers.append(lambda width: write(shown, **{**how, "width": width}))
        return write(shown, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "to_text", lambda shown, **how: keep(to_text, shown, **how))
        patch.setattr(text, "table_text", lambda shown, **how: keep(table_text, shown, **how))
        words = [word.format(**files) for word in VERBS[verb]]
        result = CliRunner().invoke(app, words)
    assert result.exit_code in (0, 1 if verb == "doctor" else 0), result.output
    return writers


def words_of(shown):
    return {word for word in shown.split() if "…" not in word}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in ("gate", "collect")])
def test_lines_fit_and_words_and_numbers_are_whole(verb, width, printed):
    writers = printed(verb)
    assert writers
    for write in writers:
        whole, shown = write(100_000), write(width)
        for line in shown.splitlines():
            assert len(line) <= width or " " not in line.strip(), line
        said = re.sub(r"\(\d+ columns: without .*?\)", "", shown, flags=re.S)
        assert words_of(said) <= words_of(whole)


def test_sentences_fold_between_words_and_commands_stay_whole(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "60")
    words = "a verdict of many words that says which layers are worse, and why " * 2
    shown = output.Output()
    shown.result({}, [f"  {words}"])
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 60
    shown.result({}, [words], whole=True)
    assert capsys.readouterr().out == f"{words}\n"


def test_a_terminal_decides_the_width_and_a_pipe_is_not_folded(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert output._width() == 0
    monkeypatch.setenv("COLUMNS", "80")
    assert output._width() == 80
    monkeypatch.setenv("COLUMNS", "200")
    assert output._width() == 0


def test_explain_fits_on_one_screen_and_says_how_to_see_the_rest(printed):
    (write,) = printed("explain")
    lines = write(80).splitlines()
    # of recorded data it is 38; here most counters are missing, and what to collect is said
    assert len(lines) <= 50
    assert lines[-1].startswith("--more: ")
    assert any(line.strip().startswith("do: ") for line in lines)
    (longer,) = printed("explain --more")
    assert len(longer(80).splitlines()) > 2 * len(lines)


def _verbs():
    return sorted(each.name or each.callback.__name__ for each in app.registered_commands)


def test_the_verbs_stand_in_groups_on_a_screen_of_24_lines_each_in_a_whole_sentence():
    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80"}).output
    assert len(shown.splitlines()) < 24  # and the line of the prompt
    assert max(map(len, shown.splitlines())) <= 80
    for name in {name for verbs in groups().values() for name in verbs}:
        (line,) = (line for line in shown.splitlines() if re.search(rf"^\w* +{name} ", line))
        assert line.endswith(".")
        assert not line.endswith("...")
    for name in (*_verbs(), "datasets"):
        assert re.search(rf"\b{name}\b", shown)


@pytest.mark.parametrize("verb", _verbs())
def test_help_fits_and_breaks_no_word(verb):
    shown = CliRunner().invoke(app, [verb, "--help"], env={"COLUMNS": "80"}).output
    assert max(map(len, shown.splitlines())) <= 80
    assert not [line for line in shown.splitlines() if re.search(r"\w-$", line)]
    assert " range>" not in shown
    assert "list[" not in shown
