"""The documentation does what it says: its pages run, its links and names hold, it builds."""

from __future__ import annotations

import base64
import csv
import io
import re
import sys
from pathlib import Path

import pytest
import yaml
from PIL import Image

import perfml
from perfml import tables
from perfml.cli import app
from perfml.explain.advice.symptoms import load_symptoms
from perfml.explain.tree.causes import TERMS
from perfml.report import advise_conditions, build_report, explain_pairs
from tests.support.browser import EXECUTABLE, REASON, chromium
from tests.support.compiling import made_once
from tests.support.paths import ROOT
from tests.support.processes import ran
from tests.support.report_data import evaluation, on_h200, ranking
from tests.support.snippets import find_verb, parse_perfml, read_page, walk

pytestmark = pytest.mark.page

DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS / "_site"))  # the glue of the site is no package
import words  # noqa: E402
from generated import causes, links_of_site  # noqa: E402

PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
NOTEBOOKS = sorted(f"notebooks/{path.stem}.md" for path in ROOT.glob("notebooks/*.ipynb"))
CARDS = [f"../{path.relative_to(ROOT).as_posix()}" for path in ROOT.glob("datasets/*/README.md")]
RUNNABLE = [
    name
    for name in [*PAGES, *CARDS]
    if any(block.kind != "text" for block in read_page(DOCS / name).blocks)
]
LONG = {"tutorial.md", "howto/ranking.md", "howto/trace.md"}
"""Pages that take five seconds or more: left to CI."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in RUNNABLE],
)
def test_a_page_runs_as_it_stands(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setenv("COLUMNS", "200")
    assert walk(read_page(DOCS / name), ROOT, tmp_path)


def test_commands_named_in_the_text_exist():
    checked = 0
    for name in PAGES:
        text = re.sub(r"^( *)```.*?^\1```", "", (DOCS / name).read_text("utf-8"), flags=re.M | re.S)
        for inline in re.findall(r"`perfml ([^`\n]+)`", text):
            words = tuple(inline.split())
            verb, rest = find_verb(words)
            known = {option for each in verb.params for option in each.opts}
            for word in rest[: rest.index("--")] if "--" in rest else rest:
                if word.startswith("-"):
                    assert word.split("=")[0] in {*known, "--help", "--"}, f"{name}: {inline}"
            checked += 1
    assert checked > 10


def test_examples_in_the_help_are_right():
    import shlex

    import typer

    def examples(command):
        for each in getattr(command, "commands", {}).values():
            yield from examples(each)
        for text in re.findall(r"^Example: (.+(?:\n.+)*)", command.help or "", re.M):
            yield from text.replace("\n", " ").split("; ")

    found = list(examples(typer.main.get_command(app)))
    assert len(found) > 12
    for example in found:
        words = tuple(shlex.split(example))
        if words[0] == "perfml":
            parse_perfml(words[1:])


def test_the_tables_page_names_every_column():
    text = (DOCS / "reference" / "tables.md").read_text("utf-8")
    columns = {*tables.KERNEL_COLUMNS, *tables.KERNEL_OPTIONAL, *tables.LAYER_COLUMNS}
    assert {each for each in columns if f"`{each}`" not in text} == set()


def test_the_sections_of_the_report_are_those_of_its_page():
    page = (DOCS / "howto" / "report.md").read_text("utf-8")
    named = re.findall(r"^\d+\. \*\*(.+?)\.\*\*", page, re.MULTILINE)
    frame, table = on_h200(layers=4)
    report = build_report(
        table,
        kernels=frame,
        pairs=explain_pairs(table, frame, model=None),
        advice=advise_conditions(table, frame),
        rankings=[ranking()],
        evaluations=[evaluation()],
    )
    assert [section.title for section in report.sections] == named


@pytest.fixture(scope="module")
def site():
    """Return the folder of the built site, and what the build printed."""

    def build(folder):
        done = ran(sys.executable, "docs/_site/build.py", folder / "site", "--no-execute")
        assert done.returncode == 0, done.stdout + done.stderr
        (folder / "log.txt").write_text(done.stdout)

    made = made_once("site", build)
    return made / "site", (made / "log.txt").read_text()


@pytest.mark.slow
@pytest.mark.extras
def test_the_site_builds_without_a_warning(site):
    folder, log = site
    assert "No issues found" in log
    for name in {*PAGES, *NOTEBOOKS} - words.NOT_SHOWN:
        assert (folder / name).with_suffix(".html").is_file()


def test_every_page_is_in_the_navigation_once_or_linked_from_one_that_is():
    listed = words.entries()
    assert sorted(listed) == sorted(set(listed))
    assert set(listed) <= set(PAGES)
    linked = {
        (DOCS / name).parent.joinpath(target).resolve()
        for name in listed
        for target in re.findall(r"\]\(([\w./-]+\.md)", (DOCS / name).read_text("utf-8"))
    }
    elsewhere = set(PAGES) - set(listed) - words.NOT_SHOWN
    assert {name for name in elsewhere if DOCS / name not in linked} == set()


def test_the_site_is_small_enough_to_find_something_in():
    count = words.of_sources()
    # a built site has some words more: outputs of notebooks, signatures
    assert count.total <= 41_000, count
    assert count.outside <= 16_000, count
    assert count.entries <= 25
    assert count.pages["explanation/truth.md"] <= 600


def test_links_between_files_of_the_repository_hold():
    files = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md")]
    files += [*ROOT.glob("studies/*/*.md"), *ROOT.glob("benchmarks/*.md")]
    for path in files:
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", path.read_text("utf-8")):
            assert (path.parent / target).exists(), f"{path.relative_to(ROOT)}: {target}"


def test_every_cause_is_listed_with_what_advice_says_about_it():
    rows = [row for row in causes().splitlines() if row.startswith("| `")]
    symptoms, layers = load_symptoms()
    listed = [name for row in rows for name in re.findall(r"`(\w+)`", row.split(" | ")[0])]
    assert sorted(listed) == sorted({*TERMS, *layers})
    for each in symptoms:
        assert any(f"`{each.causes[0]}`" in row and each.hazard in row for row in rows)


def test_a_link_out_of_the_documentation_becomes_a_path_in_the_site():
    text = links_of_site("[all](../../studies/plan/RESULTS.md#x), [b](c.md)", Path("explanation"))
    assert text == "all (`studies/plan/RESULTS.md`), [b](c.md)"


def test_the_logo_is_drawn_from_recorded_data_and_small():
    from logo import LOGO, svg

    assert LOGO.read_text("utf-8") == svg()
    assert LOGO.stat().st_size < 10_000
    assert (ROOT / "mkdocs.yml").read_text("utf-8").count(LOGO.name) == 2


def test_what_is_released_has_one_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    newest = re.search(r"^## \[(.+?)\] - (\S+)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M)
    assert newest.groups() == (perfml.__version__, str(citation["date-released"]))
    assert citation["version"] == perfml.__version__


@pytest.mark.slow
@pytest.mark.extras
def test_the_site_fetches_nothing_from_elsewhere(site):
    folder, _ = site
    loads = re.compile(r"<(?:script|link|img|iframe)[^>]*?\s(?:src|href)=[\"']?(?:https?:)?//[^>]+")
    found = [
        (path.name, tag)
        for path in folder.rglob("*.html")
        for tag in loads.findall(path.read_text("utf-8"))
    ]
    assert found == []


@pytest.mark.slow
@pytest.mark.extras
def test_the_reference_is_made_from_the_program(site):
    folder, _ = site
    reference = folder / "reference"
    commands = (reference / "commands.html").read_text("utf-8")
    assert 'id="perfml-rank"' in commands
    assert "--resamples" in commands
    metrics = (reference / "metrics.html").read_text("utf-8")
    with (ROOT / "perfml" / "metrics" / "catalogue.csv").open(encoding="utf-8") as file:
        names = [row["name"] for row in csv.DictReader(file)]
    assert [name for name in names if f'id="{name}"' not in metrics] == []
    modeling = (reference / "api" / "models.html").read_text("utf-8")
    assert 'id="perfml.modeling.rank"' in modeling
    assert 'id="perfml.modeling.LinearModelTreeRegressor.fit"' in modeling


@pytest.mark.slow
@pytest.mark.extras
def test_pictures_of_the_site_are_there_and_have_alternatives(site):
    folder, _ = site
    for path in folder.rglob("*.html"):
        for tag in re.findall(r"<img [^>]*>", path.read_text("utf-8")):
            source = re.search(r'src="([^"]+)"', tag)[1]
            # 404.html is served for any address, so its own start at the site's root
            place = folder / source[1:] if source.startswith("/") else path.parent / source
            assert place.is_file(), (path.name, source)
            assert re.search(r'alt="[^"]+"', tag), (path.name, tag)


@pytest.mark.slow
@pytest.mark.extras
def test_every_notebook_is_listed_and_links_lead_to_its_page(site):
    folder, _ = site
    page = (folder / "gallery.html").read_text("utf-8")
    for name in NOTEBOOKS:
        assert f'href="{name.removesuffix(".md")}.html"' in page
    source = (DOCS / "gallery.md").read_text("utf-8")
    for name in NOTEBOOKS:
        assert f"../{name.removesuffix('.md')}.ipynb" in source


def test_a_notebook_becomes_a_page_with_its_outputs(tmp_path):
    import nbformat
    from gallery import gallery
    from notebook_pages import notebook_page

    v4 = nbformat.v4
    picture = io.BytesIO()
    Image.new("RGB", (960, 480)).save(picture, format="png")
    outputs = [
        v4.new_output("stream", name="stdout", text="printed ``` inside\n"),
        v4.new_output("stream", name="stderr", text="not for readers"),
        v4.new_output("display_data", data={"text/html": "<progress></progress>"}),
        v4.new_output("execute_result", data={"text/html": "<div>\n\n<b>table</b>\n</div>"}),
        v4.new_output(
            "display_data",
            data={"image/png": base64.b64encode(picture.getvalue()).decode()},
            metadata={"image/png": {"width": 320, "alt": "Ranks [fp32]"}},
        ),
    ]
    cells = [
        v4.new_markdown_cell("# Title\n\n[next](02_two.ipynb), [how](../docs/howto/prove.md)"),
        v4.new_code_cell("shown()", outputs=outputs, metadata={"gallery": "A picture."}),
    ]
    nbformat.write(v4.new_notebook(cells=cells), tmp_path / "01_one.ipynb")
    made = notebook_page(tmp_path / "01_one.ipynb", tmp_path, execute=False)
    page = made.text
    assert "[next](02_two.md), [how](../howto/prove.md)" in page
    assert "````text\nprinted ``` inside\n````" in page
    assert "not for readers" not in page
    assert "<progress" not in page
    assert '<div class="cell-output">\n<div>\n<b>table</b>\n</div>\n</div>' in page
    assert r'![Ranks \[fp32\]](01_one-1-4.png){ width="320" }' in page
    assert (tmp_path / "01_one-1-4.png").read_bytes() == picture.getvalue()
    cards = gallery(made.pictures, tmp_path.parent)
    folder = tmp_path.name
    shown = f"[![A picture.]({folder}/small-01_one-1-4.png)]({folder}/01_one.md)\n\nA picture."
    assert shown in cards
    assert Image.open(tmp_path / "small-01_one-1-4.png").size == (480, 240)


@pytest.mark.browser
@pytest.mark.skipif(EXECUTABLE is None, reason=REASON)
@pytest.mark.slow
@pytest.mark.extras
def test_the_metrics_are_searched_by_name_and_by_counter(site):
    folder, _ = site
    with chromium() as browser:
        page = browser.new_page()
        page.goto((folder / "reference" / "metrics.html").as_uri())
        rows = page.locator("table tbody tr")
        everything = rows.filter(visible=True).count()
        page.fill("input.search-table", "sm__warps_active")
        assert rows.filter(visible=True).all_inner_texts()[0].startswith("achieved_occupancy")
        assert rows.filter(visible=True).count() < everything
        page.fill("input.search-table", "")
        assert rows.filter(visible=True).count() == everything > 200
