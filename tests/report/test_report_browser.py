"""The report as a reader meets it: in a real browser, without a network, on desktop and phone."""

from __future__ import annotations

import re

import pytest

from perfml.ingest.merge.rule import merge
from perfml.report import advise_conditions, build_comparison, explain_pairs, to_html
from tests.support.browser import EXECUTABLE, REASON, Tab, chromium
from tests.support.report_data import build_page, evaluation, kernels, ranking, shapes

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(EXECUTABLE is None, reason=REASON),
]

NASTY = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def browser():
    """Start one browser for the module."""
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def tab(browser):
    """Return the tab that the tests share; each opens its page anew."""
    return Tab(browser)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Write a full report: two batches, shapes, rankings, evaluations, a hostile kernel name."""
    frame = kernels(batches=(1, 8)).assign(device="NVIDIA H200")
    frame.loc[frame["kernel"] == "im2col", "kernel"] = NASTY
    table = merge(frame).assign(flops=1e9, arithmetic_intensity=50.0)
    page = build_page(
        table,
        kernels=frame,
        pairs=explain_pairs(table, frame),
        advice=advise_conditions(table, frame),
        provenance={**shapes(), "sources": [{"path": NASTY * 20, "sha256": "a" * 64}]},
        rankings=[ranking(), ranking("classification")],
        evaluations=[evaluation(), evaluation("classification")],
    )
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(page, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def comparison(tmp_path_factory):
    """Write a comparison: the second dataset is slower, both are called by hostile names."""
    before, after = (kernels(backends=("cublas",)) for _ in range(2))
    after["time_us"] *= 1.5
    for frame in (before, after):
        frame.loc[frame["kernel"] == "im2col", "kernel"] = NASTY
    page = to_html(build_comparison((NASTY, before, None), (NASTY * 2, after, None)))
    path = tmp_path_factory.mktemp("comparison") / "comparison.html"
    path.write_text(page, encoding="utf-8")
    return path


@pytest.fixture(params=["report", "comparison"])
def page_file(request):
    """Return either page."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def desktop(tab, report):
    """Open the report on a desktop."""
    return tab.open(report)


def first_column(opened, table):
    """Return the first cell of every row that is shown."""
    return opened.texts(f"{table} tbody tr > :first-child")


@pytest.mark.parametrize("width", [390, 1400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_loads_in_silence_asks_for_nothing_and_fits(tab, page_file, width, scheme):
    opened = tab.open(page_file, width=width, color_scheme=scheme)
    size = opened.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert opened.complaints == []
    assert opened.requests == [page_file.as_uri()]
    assert size == [width, width]


@pytest.mark.parametrize(("width", "shown"), [(390, "narrow"), (1400, "wide")])
def test_figures_come_in_the_width_of_the_page(tab, report, width, shown):
    opened = tab.open(report, width=width)
    figure = opened.page.locator("#times figure").first
    assert figure.locator(f".{shown}").is_visible()
    assert figure.locator(":scope > div:visible").count() == 1
    box = figure.locator("svg:visible").bounding_box()
    # text in a figure is drawn at 13 units; it must not shrink below what can be read
    scale = figure.locator("svg:visible").evaluate(
        "svg => svg.getBoundingClientRect().width / svg.viewBox.baseVal.width"
    )
    assert box["width"] <= width
    assert scale > 0.85


def test_policy_forbids_the_network_even_to_injected_code(desktop):
    page = desktop.page
    policy = page.locator('meta[http-equiv="Content-Security-Policy"]').get_attribute("content")
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    page.evaluate(
        """() => {
            const image = new Image();
            image.src = "http://localhost:9/x.png";
            const script = document.createElement("script");
            script.textContent = "window.injected = true";
            document.body.append(image, script);
        }"""
    )
    blocked = page.evaluate("fetch('http://localhost:9/').then(() => 'sent', () => 'blocked')")
    assert blocked == "blocked"
    assert page.evaluate("window.injected") is None
    assert any("Content Security Policy" in each for each in desktop.complaints)


def test_foreign_text_shows_as_text(desktop):
    desktop.page.select_option("#k-layer", label="conv_01")
    assert NASTY in desktop.texts("#k-out tbody th")
    assert desktop.page.locator("img").count() == 0
    assert NASTY in desktop.page.locator("#provenance").text_content()
    assert desktop.complaints == []


def test_header_sorts_up_then_down_by_value_not_by_text(desktop):
    table = "#times .panel:not([hidden]) table"
    header = desktop.page.locator(f"{table} thead th").nth(2)
    header.locator("button").click()
    assert header.get_attribute("aria-sort") == "ascending"
    names = [f"conv_{place:02d}" for place in range(1, 13)]
    assert first_column(desktop, table) == names
    header.locator("button").click()
    assert header.get_attribute("aria-sort") == "descending"
    assert first_column(desktop, table) == names[::-1]


def test_filter_keeps_rows_with_every_word_and_counts_them(desktop):
    panel = desktop.page.locator("#times .panel:not([hidden])")
    panel.locator("input[type=search]").fill("3×3 256")
    table = "#times .panel:not([hidden]) table"
    assert first_column(desktop, table) == ["conv_08", "conv_10", "conv_12"]
    assert panel.locator("output").inner_text() == "3 of 12 rows"
    panel.locator("input[type=search]").fill("")
    assert len(first_column(desktop, table)) == 12


def test_condition_is_chosen_with_a_button_that_says_it_is_pressed(desktop):
    tabs = desktop.page.locator("#times .tabs button")
    assert tabs.all_inner_texts() == ["fp32, batch 1", "fp32, batch 8"]
    tabs.nth(1).click()
    assert tabs.nth(1).get_attribute("aria-pressed") == "true"
    shown = desktop.page.locator("#times .panel:visible")
    assert shown.count() == 1
    assert shown.get_attribute("data-label") == "fp32, batch 8"


def test_chooser_shows_the_kernels_of_the_chosen_layer_and_backend(desktop):
    page = desktop.page
    page.select_option("#k-condition", label="fp32, batch 8")
    page.select_option("#k-layer", label="conv_02")
    assert desktop.texts("#k-out h3") == ["cublas\n80.8 µs", "cudnn\n121 µs", "inductor\n162 µs"]
    page.select_option("#k-backend", label="cublas")
    assert [row.split() for row in desktop.texts("#k-out tbody tr")] == [
        ["gemm", "80.0", "%", "64.6", "1"],
        [*NASTY.split(), "20.0", "%", "16.2", "1"],
    ]


def test_long_kernel_name_folds_and_opens_by_keyboard(desktop):
    page = desktop.page
    page.select_option("#k-layer", label="conv_01")
    page.select_option("#k-backend", label="cudnn")
    full = page.locator("#k-out .full").first
    assert not full.is_visible()
    page.locator("#k-out summary").first.focus()
    page.keyboard.press("Enter")
    assert full.is_visible()
    assert full.inner_text() == "void gemm<cudnn>(int)"


def test_keyboard_reaches_the_answer_first_then_every_control(desktop):
    page = desktop.page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.tagName"))
    assert {"A", "BUTTON", "INPUT", "SUMMARY"} <= reached


def test_everything_has_a_name_for_those_who_do_not_see(tab, page_file):
    desktop = tab.open(page_file)
    unnamed = desktop.page.evaluate(
        """() => {
            const named = (each) =>
              each.getAttribute("aria-label") || (each.labels && each.labels.length) ||
              each.textContent.trim();
            return [...document.querySelectorAll("svg, input, select, button, [role=region], th")]
              .filter((each) => !named(each)).map((each) => each.outerHTML.slice(0, 120));
        }"""
    )
    assert unnamed == []
    page = desktop.page
    assert page.locator("html").get_attribute("lang") == "en"
    assert page.locator("h1").count() == 1
    assert page.locator("table:not(:has(caption))").count() == 0
    assert page.locator("figure:not(:has(figcaption))").count() == 0


def test_without_scripts_everything_but_the_chooser_is_there(browser, report):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(report.as_uri())
    assert page.locator("#times .panel:visible").count() == 2
    assert page.locator("noscript").count() == 1
    assert not page.locator("#chooser").is_visible()
    context.close()


def test_print_shows_the_times_of_two_conditions_and_no_controls(desktop):
    desktop.page.emulate_media(media="print")
    assert desktop.page.locator("#times .panel:visible").count() == 2
    assert not desktop.page.locator("nav").is_visible()
    assert desktop.page.locator(".tabs:visible").count() == 0


def test_a_printed_report_has_twelve_pages_at_most_and_the_answer_on_the_first(tab, report):
    opened = tab.open(report)
    pages = re.findall(rb"/Type\s*/Page[^s]", opened.page.pdf(format="A4"))
    assert 2 <= len(pages) <= 12
    opened.page.emulate_media(media="print")
    opened.page.set_viewport_size({"width": 760, "height": 1070})
    box = opened.page.locator("#answer").bounding_box()
    assert box["y"] + box["height"] < 1070


def test_a_table_that_goes_on_to_the_right_says_so_until_its_end_is_seen(tab, report):
    opened = tab.open(report, width=390)
    frame = opened.page.locator("#times .panel:visible .scroll").first
    sign = opened.page.locator("#times .panel:visible .swipe").first
    assert frame.evaluate("each => each.scrollWidth > each.clientWidth")
    assert sign.is_visible()
    frame.evaluate("each => { each.scrollLeft = each.scrollWidth; }")
    opened.page.wait_for_function(
        "() => document.querySelector('#times .panel:not([hidden]) .swipe').hidden"
    )


def test_causes_are_chosen_by_pair_and_show_kernels_as_a_diff(desktop):
    page = desktop.page
    assert desktop.texts("#why .tabs button") == [
        "fp32, batch 1: inductor against cublas",
        "fp32, batch 1: cudnn against cublas",
        "fp32, batch 8: inductor against cublas",
        "fp32, batch 8: cudnn against cublas",
    ]
    page.locator("#why .tabs button").nth(1).click()
    assert "cudnn against cublas" in page.locator("#why .panel:visible").text_content()
    page.locator("#why .tabs button").nth(2).click()
    panel = page.locator("#why .panel:visible")
    # the browser lays a panel out when it comes into sight, which is a frame after the click
    layer = panel.locator("h4.big")
    layer.scroll_into_view_if_needed()
    expect = pytest.importorskip("playwright.sync_api").expect
    expect(layer).to_have_text("conv_12", use_inner_text=True)
    rows = panel.locator("table").first.locator("tbody tr").all_inner_texts()
    assert any(NASTY in row for row in rows)
    assert all(row[0] in "=−+" for row in rows)
    assert desktop.complaints == []


def test_advice_becomes_cards_on_a_phone(tab, report):
    opened = tab.open(report, width=390)
    scrolls = opened.page.locator("#advice .panel:visible .scroll:visible").all()
    assert scrolls
    for scroll in scrolls[:2]:
        assert scroll.evaluate("each => each.scrollWidth <= each.clientWidth")
    cell = opened.page.locator("#advice .panel:visible tbody tr").first.locator("td").nth(1)
    label = cell.evaluate("each => getComputedStyle(each, '::before').content")
    assert "finding" in label


@pytest.mark.parametrize(("media", "width"), [("screen", 1200), ("print", 690)])
def test_what_to_do_is_read_without_scrolling_on_a_laptop_and_on_paper(tab, report, media, width):
    opened = tab.open(report, width=width)
    opened.page.emulate_media(media=media)
    table = opened.page.locator("#advice .cards:visible").first
    cut = "each => each.scrollWidth > each.clientWidth + 1"
    assert not table.locator("..").evaluate(cut)
    cells = table.locator("tbody tr").first.locator("th, td").all()
    assert not any(cell.evaluate(cut) for cell in cells)
    # a remedy has room for a few words on a line, and paper shows it in one card
    assert cells[-1].evaluate("each => each.offsetWidth") > 0.25 * width
    assert media == "screen" or len({cell.bounding_box()["x"] for cell in cells}) == 1


def test_a_bar_says_its_value_under_the_pointer_and_leads_to_the_kernels_of_its_layer(desktop):
    page = desktop.page
    bar = page.locator("#times .panel:visible .wide [data-tip^='conv_12, cublas']")
    bar.scroll_into_view_if_needed()
    bar.hover()
    tip = page.locator(".tip")
    assert re.match(r"conv_12, cublas: [\d.]+ µs \(", tip.inner_text())
    bar.click()
    chosen = "each => each.selectedOptions[0].textContent"
    assert page.locator("#k-layer").evaluate(chosen) == "conv_12"
    page.locator("#times .panel:visible button.go", has_text="conv_03").click()
    assert page.locator("#k-layer").evaluate(chosen) == "conv_03"
    page.mouse.move(1, 1)
    assert tip.is_hidden()
    assert desktop.complaints == []


def test_without_scripts_a_bar_has_a_title_and_what_is_folded_is_there(report):
    text = report.read_text(encoding="utf-8")
    assert re.search(r"<title>conv_12, cublas: [\d.]+ µs", text)
    assert "What a fitted model says" in text


def test_names_without_spaces_do_not_widen_the_page(tab, tmp_path):
    long = "k" * 3000
    frame = kernels(layers=2, repeats=2, backends=(long, "b"), kernel=long, workload=long)
    frame["layer"] = frame["layer"] + long
    path = tmp_path / "long.html"
    path.write_text(build_page(merge(frame), kernels=frame), encoding="utf-8")
    for width in (390, 1400):
        opened = tab.open(path, width=width)
        assert opened.page.evaluate("document.documentElement.scrollWidth") == width


def test_names_of_metrics_break_after_an_underscore_on_a_phone(tab, report):
    opened = tab.open(report, width=390)
    broken = opened.page.evaluate(
        """() => [...document.querySelectorAll("#metrics tbody .pieces")]
            .filter((cell) => cell.offsetParent !== null)
            .flatMap((cell) => {
                const walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
                const found = [];
                while (walker.nextNode()) {
                    const range = document.createRange();
                    range.selectNodeContents(walker.currentNode);
                    const word = walker.currentNode.data.trim();
                    if (!/\\s/.test(word) && range.getClientRects().length > 1) found.push(word);
                }
                return found;
            })"""
    )
    assert opened.page.locator("#metrics .pieces").count() > 0
    assert broken == []
