"""What is built, and what is installed from it, is whole and works away from the checkout."""

import os
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser

import pytest

from tests.support.processes import ran

pytestmark = [pytest.mark.process, pytest.mark.slow]


def build(source, out, *what):
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(out), *what]
    done = ran(*command, cwd=source)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def built(root, tmp_path_factory):
    out = tmp_path_factory.mktemp("dist")
    build(root, out)
    (wheel,) = out.glob("*.whl")
    (sdist,) = out.glob("*.tar.gz")
    return wheel, sdist


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """Install the wheel into an empty folder; its dependencies are those of this environment."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    command += ["--no-compile"]  # a few modules are imported, once
    subprocess.run([*command, "--target", str(folder), str(built[0])], check=True)
    return folder


def start(installed, *command):
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    environment.pop("PERFML_DATA", None)
    done = ran(sys.executable, "-P", *command, cwd=installed.parent, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def names_of(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def test_the_wheel_holds_code_data_and_type_information(built, root):
    names = names_of(built[0])
    tracked = ran("git", "ls-files", "perfml", "collectors", cwd=root).stdout.split()
    assert "perfml/py.typed" in names
    assert {"perfml/metrics/catalogue.csv", "perfml/cli/__init__.py"} <= names
    present = {name for name in tracked if (root / name).is_file()}
    assert present <= names, "files of a checkout that the wheel lacks"
    recorded = {name for name in names if name.startswith("perfml/datasets/recorded/")}
    assert {name.split("/")[3] for name in recorded} == {"atlas", "h200-yolov4-tiny"}
    assert built[0].stat().st_size <= 12e6
    rooms = {name.split("/")[0] for name in names}
    assert rooms == {"perfml", "collectors"}


def test_the_wheel_says_what_it_needs(built):
    with zipfile.ZipFile(built[0]) as archive:
        (name,) = [each for each in archive.namelist() if each.endswith("dist-info/METADATA")]
        metadata = Parser().parsestr(archive.read(name).decode())
    assert metadata["Requires-Python"] == ">=3.11"
    assert "Typing :: Typed" in metadata.get_all("Classifier")
    bare = [each for each in metadata.get_all("Requires-Dist") if "extra ==" not in each]
    assert all(">=" in each for each in bare), "every dependency has a floor"


def test_a_wheel_built_from_the_sdist_is_the_same(built, tmp_path):
    with tarfile.open(built[1]) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    assert (source / "tests" / "data" / "ncu" / "vectors.csv").is_file()
    build(source, tmp_path / "again", "-t", "wheel")
    (wheel,) = (tmp_path / "again").glob("*.whl")
    assert names_of(wheel) == names_of(built[0])


def test_the_installed_package_is_used_not_the_checkout(installed):
    assert start(installed, "-c", "import perfml; print(perfml.__file__)").startswith(
        str(installed)
    )


WALK = """
import sys
from pathlib import Path
from perfml.cli import app
folder, out = sys.argv[1:]
profiles = map(str, Path(folder).glob("runs/*-fp32-b1-*"))
kernels, layers = f"{out}/kernels.parquet", f"{out}/layers.parquet"
for words in (
    ["ingest", *profiles, "--out", kernels],
    ["merge", kernels, "--out", layers],
    ["train", layers, "--model", "dt", "--splits", "2", "--json"],
):
    try:
        app(words)
    except SystemExit as ended:
        assert not ended.code, words
"""


def test_an_installed_perfml_walks_from_ingest_to_train(installed, tmp_path):
    folder = start(installed, "-m", "perfml", "datasets", "h200-yolov4-tiny").strip()
    assert folder.startswith(str(installed))
    assert "leave-one-layer-out" in start(installed, "-c", WALK, folder, str(tmp_path))
