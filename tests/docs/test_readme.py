"""The README is short, its commands run as they are written, and its links lead somewhere."""

import lzma
import re
import shlex
from pathlib import Path

import pytest

from perfml.explain import load_tables
from tests.support.snippets import run_perfml

pytestmark = pytest.mark.page

BLOCK = re.compile(r"```(\w+)(?: [^\n]*)?\n(.*?)```", re.DOTALL)


@pytest.fixture(scope="module")
def readme(root):
    return (root / "README.md").read_text("utf-8")


@pytest.fixture(scope="module")
def commands(readme):
    """Return the commands of the README."""
    blocks = BLOCK.findall(readme)
    assert {kind for kind, _ in blocks} == {"console"}
    lines = [line for _, text in blocks for line in text.splitlines()]
    assert all(line.startswith("$ ") for line in lines)
    return [line.removeprefix("$ ") for line in lines]


def ran(command: str) -> str:
    """Run a command of perfml in this process; return what it printed."""
    program, *words = shlex.split(command)
    assert program == "perfml"
    code, printed = run_perfml(tuple(words))
    assert code == 0, printed
    return printed


def test_it_is_read_in_five_minutes(readme):
    assert len(readme.split()) <= 900


def test_the_make_targets_exist(readme, root):
    makefile = (root / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"(?:`|^\$ )make (\w+)", readme, re.MULTILINE)
    assert {"demo", "docs", "test"} <= set(targets)
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)


def test_its_installation_can_read_a_report(commands, root):
    (install,) = [each for each in commands if each.startswith("pip install ")]
    extra = re.search(r"\.\[(\w+)\]", install)[1]
    assert re.search(
        rf"^{extra} = \[.*ncu-report", (root / "pyproject.toml").read_text("utf-8"), re.M
    )


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


@pytest.mark.slow
def test_the_first_command_writes_a_report(commands, tmp_path, recorded, monkeypatch):
    monkeypatch.chdir(tmp_path)
    whole = (recorded / "ncu" / "yolov4tiny_cudnn_b1_fp32.csv.xz").read_bytes()
    Path("my.ncu-rep").write_bytes(lzma.decompress(whole))
    ran(commands[0])
    assert Path("report.html").stat().st_size > 50_000


def test_the_example_gives_the_ratio_and_the_waves_of_the_recording(commands, readme):
    (command,) = [each for each in commands if each.startswith("perfml explain ")]
    assert "--baseline cublas --target cudnn --layer conv_15" in command
    layers, kernels = load_tables("h200-yolov4-tiny", ["precision=fp32", "batch=1"])
    times = layers[layers["layer"] == "conv_15"].groupby("backend")["time_us"].mean()
    assert f"takes {times['cudnn'] / times['cublas']:.1f} times as long" in readme
    launches = kernels[kernels["layer"] == "conv_15"]
    # of the kernel that takes most of the layer's time
    longest = launches.groupby(["backend", "kernel"])[["time_us", "waves_per_sm"]].mean()
    waves = longest.sort_values("time_us").groupby("backend")["waves_per_sm"].last().round(2)
    said = f"fill {waves['cudnn']} of a wave, those of cuBLAS {waves['cublas']}"
    assert said in readme


def test_every_verb_that_it_names_exists(readme):
    shown = set(re.findall(r"\w+", ran("perfml --help")))
    assert set(re.findall(r"`perfml (\w+)", readme)) <= shown
