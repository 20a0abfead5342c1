"""Nothing of what comes from outside is run: proven on the source of the two packages."""

import ast
import json
import re
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from collectors.run_spec import Run
from perfml.cli import app
from perfml.datasets import DATASETS, fetch
from perfml.errors import PerfmlError
from perfml.tables import read_table
from tests.support.architecture import modules, tree_of

OURS = {name: path for name, path in modules().items() if not name.startswith("studies")}

FORBIDDEN_CALLS = {
    "eval",
    "exec",
    "compile",
    "__import__",
    "os.system",
    "os.popen",
    "os.spawnl",
    "os.spawnv",
    "os.spawnlp",
    "os.spawnvp",
    "pty.spawn",
    "subprocess.getoutput",
    "subprocess.getstatusoutput",
    "asyncio.create_subprocess_shell",
    "joblib.load",
    "numpy.load",
    "np.load",
    "pd.read_pickle",
    "pandas.read_pickle",
    "pd.eval",
    "yaml.load",
    "yaml.unsafe_load",
    "yaml.full_load",
    "marshal.loads",
    "runpy.run_path",
    "shutil.unpack_archive",
    "tempfile.mktemp",
}
FORBIDDEN_METHODS = {"extractall", "extract", "query"}
"""Of archives, which follow paths of the archive; and of pandas, which evaluates a text."""

FORBIDDEN_IMPORTS = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "imp"}


def findings(tree):
    """Yield (line, what) for everything in a source that may run what a text says."""
    named = aliases(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] in FORBIDDEN_IMPORTS:
                    yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            module = (node.module or "").split(".")[0]
            if module in FORBIDDEN_IMPORTS:
                yield node.lineno, module
        elif isinstance(node, ast.Call):
            yield from call_findings(node, named)


def aliases(tree):
    """Return what a module calls things: {"sp": "subprocess", "system": "os.system"}."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {
                alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names
            }
    return found


def dotted(node, named):
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([named.get(node.id, node.id), *reversed(parts)])


def says_no_pickle(node):
    """Whether a call refuses pickles in so many words."""
    return any(
        keyword.arg == "allow_pickle" and getattr(keyword.value, "value", None) is False
        for keyword in node.keywords
    )


def call_findings(node, named):
    called = dotted(node.func, named)
    forbidden = called in FORBIDDEN_CALLS or called.removeprefix("builtins.") in FORBIDDEN_CALLS
    if forbidden and not (called == "numpy.load" and says_no_pickle(node)):
        yield node.lineno, called
    if isinstance(node.func, ast.Attribute) and node.func.attr in FORBIDDEN_METHODS:
        of_text = isinstance(node.func.value, ast.Attribute) and node.func.value.attr == "str"
        constant = bool(node.args) and all(isinstance(each, ast.Constant) for each in node.args)
        if not of_text and not (constant and node.func.attr == "query"):
            yield node.lineno, f".{node.func.attr}()"
    for keyword in node.keywords:
        truth = isinstance(keyword.value, ast.Constant) and not keyword.value.value
        if keyword.arg in ("shell", "allow_pickle") and not truth:
            yield node.lineno, f"{keyword.arg}={ast.unparse(keyword.value)}"
    if called.startswith("subprocess.") and node.args:
        first = node.args[0]
        if isinstance(first, ast.JoinedStr) or (
            isinstance(first, ast.Constant) and isinstance(first.value, str)
        ):
            yield node.lineno, f"{called} of a text, not of a list"


def test_no_code_runs_what_a_text_says():
    found = {name: list(findings(tree_of(path))) for name, path in OURS.items()}
    assert len(found) > 300
    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "bad",
    [
        "eval(text)",
        "import builtins\nbuiltins.exec(text)",
        "import os\nos.system(text)",
        "from os import system\nsystem(text)",
        "import subprocess as sp\nsp.run(command, shell=True)",
        "import subprocess\nsubprocess.run(command, shell=flag)",
        "import subprocess\nsubprocess.run(f'ncu {name}')",
        "import subprocess\nsubprocess.getoutput('ls')",
        "import pickle",
        "from pickle import loads",
        "import joblib\njoblib.load(path)",
        "import numpy as np\nnp.load(path)",
        "import numpy as np\nnp.load(path, allow_pickle=flag)",
        "import numpy\nnumpy.lib.format.read_array(f, allow_pickle=True)",
        "import yaml\nyaml.load(text)",
        "frame.query(text)",
        "archive.extractall(folder)",
    ],
)
def test_the_scan_finds(bad):
    assert list(findings(ast.parse(bad)))


def files_under(folder):
    return {
        str(path.relative_to(folder)): path.stat().st_size
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_names_in_a_manifest_lead_nowhere(recorded, tmp_path):
    inner = tmp_path / "a" / "runs" / "one"
    shutil.copytree(recorded / "fake_tools" / "yolov4-tiny", inner)
    manifest = json.loads((inner / "run.json").read_text())
    secret = tmp_path / "secret.csv"
    secret.write_text("iteration,layer,kernel,time_us\n0,secret,secret,1\n")
    evil = "../../../evil"
    manifest |= {"run_id": evil, "workload": evil, "backend": evil, "timing": {"path": str(secret)}}
    manifest |= {"metrics": str(secret), "files": [str(secret)], "log": "/etc/passwd"}
    (inner / "run.json").write_text(json.dumps(manifest))
    before = files_under(tmp_path)
    out = tmp_path / "a" / "out"
    out.mkdir()
    for command in (
        ["ingest", str(inner), "--out", str(out / "k.parquet")],
        ["merge", str(out / "k.parquet"), "--out", str(out / "l.parquet")],
    ):
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, done.output
    after = files_under(tmp_path)
    made = {name for name in after if not name.startswith("a/out/")}
    assert made == set(before)
    assert all(after[name] == before[name] for name in before)
    assert "secret" not in set(read_table(out / "k.parquet").frame["layer"].dropna())


@given(st.text(min_size=1, max_size=80), st.text(max_size=20), st.sampled_from(["..", "/", "."]))
def test_a_run_id_is_one_name_of_a_folder(workload, backend, precision):
    run_id = Run(workload, backend=backend, precision=precision, batch=1).run_id
    assert re.fullmatch(r"[A-Za-z0-9.-]+", run_id)
    assert not run_id.startswith("..")
    assert Path("out", run_id).resolve().parent == Path("out").resolve()


@pytest.mark.parametrize("dataset", DATASETS.values(), ids=lambda each: each.name)
def test_what_is_downloaded_is_named_by_its_hash_and_stays_in_the_cache(dataset):
    if dataset.url is None:
        assert dataset.file is None
        return
    assert re.fullmatch(r"[0-9a-f]{64}", dataset.sha256)
    assert dataset.url.startswith("https://")
    assert Path(dataset.file).name == dataset.file


def test_other_bytes_than_those_of_the_hash_are_refused(tmp_path, monkeypatch):
    monkeypatch.delenv("PERFML_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "wrong.csv").write_text("type,time\n")
    with pytest.raises(PerfmlError, match="cannot download dataset nazir2024"):
        fetch("nazir2024", url=(tmp_path / "wrong.csv").as_uri())
    assert not list((tmp_path / "cache").rglob("dataset.csv"))
