"""Words that people should not have to read are found, and are in no page."""

import json

import pytest

from tests.support.paths import ROOT
from tools import words

every_page = pytest.mark.parametrize(
    "path", words.pages(), ids=lambda path: path.relative_to(ROOT).as_posix()
)


@every_page
def test_a_page_has_none_of_them(path):
    assert [str(each) for each in words.in_page(path)] == []


@every_page
def test_a_page_has_no_sentence_of_more_than_twenty_words(path):
    assert words.long_sentences(path.read_text("utf-8")) == []


@pytest.mark.parametrize(
    "path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem
)
def test_the_text_of_a_notebook_is_like_that_of_a_page(path, tmp_path):
    cells = json.loads(path.read_text("utf-8"))["cells"]
    page = tmp_path / "page.md"
    page.write_text(
        "\n\n".join("".join(each["source"]) for each in cells if each["cell_type"] == "markdown")
    )
    assert words.long_sentences(page.read_text("utf-8")) == []
    assert [str(each) for each in words.in_page(page)] == []


def test_a_word_is_found_with_its_line_and_what_to_write(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("---\nx: told\n---\n# Title\n\nHe was told `told` so. <!-- told -->\n\n"
                    "```\nexam\n```\nAn Exam stands beside it, for example.\n")  # fmt: skip
    found = [(each.line, each.word) for each in words.in_page(page)]
    assert found == [(6, "told"), (11, "Exam"), (11, "stands beside")]
    assert str(next(words.in_page(page))).endswith(
        "page.md:6: 'told' -> say who says what, to whom"
    )


def test_strings_of_a_program_are_searched_and_docstrings_are_not(tmp_path):
    source = tmp_path / "a.py"
    source.write_text('"""It is told here."""\nx = f"11 rules, for want of {y}"\nkind = "told"\n')
    assert [(each.line, each.word) for each in words.in_strings(source)] == [(2, "for want of")]


def test_a_long_sentence_is_one_of_more_than_twenty_words():
    short, long = (" ".join(["word"] * n) + "." for n in (20, 21))
    assert words.long_sentences(f"{short} {short}\n\n- {long}\n\n| {long} |\n") == [long]


def test_a_value_in_a_printed_sentence_is_one_word(tmp_path):
    source = tmp_path / "a.py"
    short, long = (" ".join(["word"] * n) for n in (19, 20))
    source.write_text(f'"""{long} {long}"""\nx = f"{short} {{a}}. {short} {{a + b}}."\n'
                      f'y = (\n    f"{long} {{a}}: "\n    "more"\n)\n'
                      f're.compile("{long} {long}")\nz = _words("{long} {long}")\n')  # fmt: skip
    assert [(line, len(text.split())) for line, text in words.long_strings(source)] == [(4, 22)]


def test_a_field_of_a_template_is_one_word_whatever_its_format(tmp_path):
    data = tmp_path / "a.toml"
    for words_beside, found in ((19, 0), (20, 1)):
        beside = " ".join(["word"] * words_beside)
        data.write_text(f'evidence = "{beside} {{wait.long_name:.0%}}"\n')
        assert len(words.long_strings(data)) == found


def test_printed_texts_of_data_are_sentences_too(tmp_path):
    data = tmp_path / "a.toml"
    long = " ".join(["word"] * 21)
    data.write_text(f'[[cause]]\naction = "{long}"\nsource = "{long}"\n')
    assert words.long_strings(data) == [(0, long)]


PRINTED = words.printed(ROOT / room for room in ("perfml", "collectors"))


def test_no_sentence_of_the_program_has_one_of_them():
    assert [str(each) for path in PRINTED for each in words.in_strings(path)] == []


def test_no_sentence_of_the_program_has_more_than_twenty_words():
    assert [(str(path), each) for path in PRINTED for each in words.long_strings(path)] == []


VAGUE_NAMES = 1_335
"""Names in perfml and collectors that do not say what they name: it only falls (1,458 before)."""


def test_no_more_names_than_before_say_nothing_of_what_they_name():
    sources = [path for path in PRINTED if path.suffix == ".py"]
    assert sum(words.vague_names(path).total() for path in sources) <= VAGUE_NAMES


def test_a_name_is_counted_where_it_is_given(tmp_path):
    source = tmp_path / "module.py"
    source.write_text("for each in rows:\n    print(each)\ndef found(told, kernel): ...\n")
    assert words.vague_names(source) == {"each": 1, "found": 1, "told": 1}
