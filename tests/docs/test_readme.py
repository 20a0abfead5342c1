"""The commands and code of the README and of the tour run as they stand."""

import lzma
import re
import shlex
import shutil
import subprocess
import sys

import pytest

from perfml.metrics import load_catalogue

pytestmark = pytest.mark.page

PAGES = ("README.md", "docs/tour.md")
BLOCK = re.compile(r"```(\w+)(?: [^\n]*)?\n(.*?)```", re.DOTALL)


@pytest.fixture(scope="module")
def blocks(root):
    return [block for name in PAGES for block in BLOCK.findall((root / name).read_text("utf-8"))]


@pytest.fixture(scope="module")
def commands(blocks):
    lines = [line for kind, text in blocks if kind == "console" for line in text.splitlines()]
    assert all(line.startswith("$ ") for line in lines)
    return list(dict.fromkeys(line.removeprefix("$ ") for line in lines))


def start(command: str, folder) -> subprocess.CompletedProcess[str]:
    words = shlex.split(command)
    assert words[0] == "perfml"
    return subprocess.run(
        [sys.executable, "-m", "perfml", *words[1:]],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


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
    asked = set(start(inner, None).stdout.strip().split(","))
    # what explain reads, the published metrics among it
    assert asked == set(load_catalogue().ncu_request(["default"]))
    assert asked > set(load_catalogue().ncu_request(["published"])) - {"gpu__time_duration.sum"}
    assert "--clock-control none" in command
    assert "mymodel_cudnn_fp32_b1.csv" in command


def test_one_profile_is_ranked_and_reported_as_it_is(commands, tmp_path, recorded):
    whole = (recorded / "ncu" / "yolov4tiny_cudnn_b1_fp32.csv.xz").read_bytes()
    (tmp_path / "mymodel_cudnn_fp32_b1.csv").write_bytes(lzma.decompress(whole))
    walked = [each for each in commands if re.match(r"perfml (rank|report) mymodel_", each)]
    assert len(walked) == 2
    for command in walked:
        done = start(command, tmp_path)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "report.html").stat().st_size > 50_000


def test_collecting_commands_print_what_they_would_run(commands, tmp_path):
    collecting = [each for each in commands if each.startswith("perfml collect ")]
    assert len(collecting) == 3
    for command in collecting[:2]:
        done = start(command, tmp_path)
        assert done.returncode == 0, done.stderr
        assert "ncu --metrics" in done.stdout
    assert start("perfml doctor", tmp_path).returncode == 0


def test_the_explanation_finds_what_the_readme_says(commands, tmp_path):
    (command,) = [each for each in commands if each.startswith("perfml explain ")]
    done = start(command, tmp_path)
    assert done.returncode == 0, done.stderr
    told = " ".join(done.stdout.split())
    assert "3.956×" in told
    assert "wave quantization (tail effect)" in told
    assert "blocks fill 7% of the waves they need, 73% in the baseline" in told


@pytest.mark.slow
def test_advice_and_comparison_run_as_written(commands, tmp_path):
    (advise,) = [each for each in commands if each.startswith("perfml advise ")]
    done = start(advise, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "small_grid" in done.stdout
    (compare,) = [each for each in commands if each.startswith("perfml report h200")]
    done = start(compare, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "conv_02" in (tmp_path / "comparison.md").read_text(encoding="utf-8")


def test_a_plan_is_what_collect_then_asks_for(commands, tmp_path):
    (plan,) = [each for each in commands if each.startswith("perfml plan ")]
    done = start(plan, tmp_path)
    assert done.returncode == 0, done.stderr
    (collect,) = [each for each in commands if "metrics.txt" in each and " collect " in each]
    done = start(collect, tmp_path)
    assert done.returncode == 0, done.stderr
    asked = re.search(r"ncu --metrics (\S+)", done.stdout).group(1).split(",")
    assert 1 < len(asked) < 10


def test_a_folder_of_tables_is_merged(commands, root, tmp_path):
    (ingest,) = [each for each in commands if "--partition" in each]
    (merge,) = [each for each in commands if each.startswith("perfml merge kernels --")]
    done = start(ingest.replace("datasets/", f"{root}/datasets/"), tmp_path)
    assert done.returncode == 0, done.stderr
    done = start(merge, tmp_path)
    assert "3780 rows, 21 layers" in done.stdout, done.stderr


def test_the_example_sweep_is_planned(commands, root):
    (sweep,) = [each for each in commands if each.startswith("perfml sweep ")]
    done = start(sweep, root)
    assert done.returncode == 0, done.stderr
    assert "10 runs" in done.stdout + done.stderr


def test_reproduce_is_called_as_its_help_says(commands):
    (command,) = [each for each in commands if each.startswith("perfml reproduce ")]
    text = start("perfml reproduce --help", None).stdout
    assert {word for word in shlex.split(command) if word.startswith("--")} <= set(text.split())


def test_the_python_example_runs(blocks, tmp_path):
    (code,) = [text for kind, text in blocks if kind == "python"]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "leave-one-layer-out" in done.stdout


def test_every_verb_of_the_command_line_is_in_the_table(root):
    text = (root / "docs" / "tour.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `perfml (\w+)[^`]*`", text, re.MULTILINE))
    help_text = start("perfml --help", None).stdout
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
