"""The commands and code of the README and of the tour run as they stand."""

import lzma
import re
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from perfml.metrics import load_catalogue
from tests.support.snippets import read_page, run_perfml, walk

pytestmark = pytest.mark.page

BLOCK = re.compile(r"```(\w+)(?: [^\n]*)?\n(.*?)```", re.DOTALL)


@pytest.fixture(scope="module")
def commands(root):
    """Return the commands of the README."""
    blocks = BLOCK.findall((root / "README.md").read_text("utf-8"))
    assert {kind for kind, _ in blocks} == {"console"}
    lines = [line for _, text in blocks for line in text.splitlines()]
    assert all(line.startswith("$ ") for line in lines)
    return [line.removeprefix("$ ") for line in lines]


@dataclass(frozen=True)
class Walked:
    """A page that was walked: where, and what each of its commands printed."""

    folder: Path
    printed: dict[str, str]

    def by(self, beginning):
        """Return what the one command with this beginning printed, in one line."""
        (said,) = [said for line, said in self.printed.items() if line.startswith(beginning)]
        return " ".join(said.split())


@pytest.fixture(scope="module")
def tour(root, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tour")
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        patched.setenv("COLUMNS", "200")
        return Walked(folder, walk(read_page(root / "docs" / "tour.md"), root, folder))


def ran(command: str) -> str:
    """Run a command of perfml in this process; return what it printed."""
    program, *words = shlex.split(command)
    assert program == "perfml"
    code, printed = run_perfml(tuple(words))
    assert code == 0, printed
    return printed


def test_the_make_targets_exist(commands, root):
    makefile = (root / "Makefile").read_text(encoding="utf-8")
    targets = [command.split()[1] for command in commands if command.startswith("make ")]
    assert targets == ["demo", "test"]
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)


def test_the_demo_prints_fifteen_lines_at_most(root):
    makefile = (root / "Makefile").read_text(encoding="utf-8")
    recipe = re.search(r"^demo:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)[1].splitlines()
    assert all(line.startswith("\t@") for line in recipe), "a command would be echoed"
    loud = [line for line in recipe if "> $(DEMO)/log.txt" not in line and "mkdir" not in line]
    (report,) = [line for line in loud if "$(PERFML) report" in line]
    assert "--quiet" in report
    # the report prints its three steps and where it is
    assert len(loud) - 1 + 4 <= 15
    offered = [line for line in loud if 'echo "  $(PERFML)' in line]
    assert len(offered) == 3


def test_the_ncu_command_asks_for_what_the_readme_says(commands):
    (command,) = [each for each in commands if each.startswith("ncu ")]
    inner = re.search(r"\$\((.*?)\)", command).group(1)
    asked = set(ran(inner).strip().split(","))
    # what explain reads, the published metrics among it
    assert asked == set(load_catalogue().ncu_request(["default"]))
    assert asked > set(load_catalogue().ncu_request(["published"])) - {"gpu__time_duration.sum"}
    assert "--clock-control none" in command
    assert "mymodel_cudnn_fp32_b1.csv" in command


@pytest.mark.slow
def test_one_profile_is_ranked_and_reported_as_it_is(commands, tmp_path, recorded, monkeypatch):
    monkeypatch.chdir(tmp_path)
    whole = (recorded / "ncu" / "yolov4tiny_cudnn_b1_fp32.csv.xz").read_bytes()
    Path("mymodel_cudnn_fp32_b1.csv").write_bytes(lzma.decompress(whole))
    walked = [each for each in commands if re.match(r"perfml (rank|report) mymodel_", each)]
    assert len(walked) == 2
    for command in walked:
        assert "--resamples 20" in command
        # the report ranks by all models
        models = " --model dt" if "perfml rank" in command else ""
        ran(command.replace("--resamples 20", "--resamples 2") + models)
    assert Path("report.html").stat().st_size > 50_000


@pytest.mark.slow
def test_the_commands_of_the_tour_print_what_it_says(tour):
    assert "ncu --metrics" in tour.by("perfml collect yolov4-tiny --backend cublas --backend cudnn")
    assert "small_grid" in tour.by("perfml advise ")
    comparison = (tour.folder / "comparison.md").read_text(encoding="utf-8")
    assert "conv_02" in comparison
    planned = tour.by("perfml collect yolov4-tiny --backend cublas --metrics")
    asked = re.search(r"ncu --metrics (\S+)", planned)
    assert 1 < len(asked.group(1).split(",")) < 10
    assert "3,780 rows, 21 layers" in tour.by("perfml merge kernels --layers")
    assert "10 runs" in tour.by("perfml sweep ")
    assert "leave-one-layer-out" in tour.by("from perfml.datasets import")


@pytest.mark.slow
def test_the_explanation_finds_what_the_readme_says(commands, tour):
    (command,) = [each for each in commands if each.startswith("perfml explain ")]
    told = tour.by(command)
    assert "3.956 times the baseline" in told
    assert "wave quantization (tail effect)" in told
    assert "blocks fill 7 % of the waves they need, 73 % in the baseline" in told


def test_reproduce_is_called_as_its_help_says(root):
    (command,) = re.findall(r"^\$ (perfml reproduce .*)", (root / "docs/tour.md").read_text(), re.M)
    text = ran("perfml reproduce --help")
    assert {word for word in shlex.split(command) if word.startswith("--")} <= set(text.split())


def test_every_verb_of_the_command_line_is_in_the_table(root):
    text = (root / "docs" / "tour.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `perfml (\w+)[^`]*`", text, re.MULTILINE))
    help_text = ran("perfml --help")
    verbs = set(re.findall(r"^  (\w+) ", help_text.split("Commands:")[1], re.MULTILINE))
    assert listed == verbs


def test_the_readme_is_read_in_five_minutes(root):
    assert len((root / "README.md").read_text(encoding="utf-8").split()) < 1200


def test_linked_files_exist(root):
    text = (root / "README.md").read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert (root / target).is_file(), target
    for named in re.findall(r"`((?:benchmarks|datasets|docs)/[\w./-]+)`", text):
        assert (root / named).exists(), named
    assert shutil.which("make"), "the README's two commands need make"
