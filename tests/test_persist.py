"""Models are saved and loaded without trusting what a file says."""

import json
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import skops.io
from modeling_data import linear_layers
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from typer.testing import CliRunner

from perfml import persist
from perfml.cli import app
from perfml.errors import InputError, MissingExtraError, PerfmlError, TableError
from perfml.persist import TRUSTED, SavedModels, fit_models, load_models, save_models

REGRESSION = ("dt", "gbr", "lmt", "lmt:log", "power-law", "gp")
CLASSIFICATION = ("dt", "lr", "lr:standardized", "rf")


@pytest.fixture(scope="module")
def layers():
    table = linear_layers(layers=8)
    table.loc[3, "shared_efficiency"] = np.nan
    return table


@pytest.fixture(scope="module")
def small(layers):
    return fit_models(layers, models=["dt", "lmt"])


@pytest.fixture
def path(tmp_path):
    return tmp_path / "models.skops"


@pytest.mark.parametrize(
    ("task", "names"), [("regression", REGRESSION), ("classification", CLASSIFICATION)]
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_every_model_predicts_the_same_after_loading(layers, path, task, names):
    saved = fit_models(layers, task, names)
    save_models(saved, path)
    loaded = load_models(path)
    assert tuple(loaded.models) == names
    assert (loaded.task, loaded.features, loaded.classes) == (
        task,
        saved.features,
        saved.classes,
    )
    for name in names:
        assert np.array_equal(loaded.predict(layers, name), saved.predict(layers, name))


def test_predictions_are_microseconds_and_backends(layers, small):
    assert small.predict(layers, "lmt") == pytest.approx(layers["time_us"].to_numpy(), rel=0.1)
    backends = fit_models(layers, "classification", ["rf"]).predict(layers)
    assert backends.tolist() == layers["backend"].tolist()


def test_a_logarithmic_target_is_turned_back(layers, path):
    save_models(fit_models(layers, models=["dt"], target="log-time"), path)
    found = load_models(path).predict(layers)
    assert found == pytest.approx(layers["time_us"].to_numpy(), rel=1e-6)


def test_the_model_must_be_named_where_there_are_several(layers, small):
    with pytest.raises(PerfmlError, match="say which model"):
        small.predict(layers)
    with pytest.raises(PerfmlError, match="no model is called 'rf'"):
        small.predict(layers, "rf")


def test_a_missing_feature_is_named(layers, small):
    with pytest.raises(TableError, match="stall_sync"):
        small.predict(layers.drop(columns="stall_sync"), "dt")


def test_the_trusted_types_are_ours_or_of_scikit_learn():
    assert all(name.split(".")[0] in {"perfml", "sklearn", "numpy"} for name in TRUSTED)
    assert [name for name in TRUSTED if name.startswith("numpy")] == ["numpy.dtype"]


def forged(path, model):
    """Write a file as save_models does, without its check."""
    features = [f"x{number}" for number in range(3)]
    document = {"format": 1, "task": "regression", "target": "time", "features": features}
    document |= {"classes": [], "models": {"dt": model}, "facts": {}}
    path.write_bytes(skops.io.dumps(document))


class Hostile:
    """Says so when it comes to life."""

    def __init__(self):
        self.touched = True

    def __setstate__(self, state):
        raise AssertionError("an untrusted object was made")


def test_an_untrusted_type_is_refused_before_it_comes_to_life(path):
    forged(path, Pipeline([("model", FunctionTransformer()), ("x", Hostile())]))
    with pytest.raises(InputError, match="not trusted") as caught:
        load_models(path)
    assert "Hostile" in caught.value.found


@pytest.mark.parametrize("function", ["os.system", "subprocess.getoutput", "builtins.eval"])
def test_a_function_of_another_module_is_refused(path, function, tmp_path):
    forged(path, Pipeline([("model", FunctionTransformer(np.log))]))
    module, name = function.rsplit(".", 1)
    target = tmp_path / "edited.skops"
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(target, "w") as new:
        for each in old.namelist():
            text = old.read(each)
            if each == "schema.json":
                text = text.replace(b'"numpy"', json.dumps(module).encode())
                text = text.replace(b'"ufunc"', json.dumps(name).encode())
                text = text.replace(b'"log"', json.dumps(name).encode())
            new.writestr(each, text)
    with pytest.raises(InputError):
        load_models(target)


def test_a_type_that_could_not_be_loaded_is_not_saved(layers, path):
    saved = fit_models(layers, models=["lmt:linear-tree"])
    with pytest.raises(PerfmlError, match="could not be loaded again"):
        save_models(saved, path)
    assert not path.exists()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x80\x04\x95pickle", b"{}"])
def test_a_file_that_is_no_archive_is_refused(path, content):
    path.write_bytes(content)
    with pytest.raises(InputError, match="not a file of models"):
        load_models(path)


def test_a_pickle_is_never_loaded(path):
    path.write_bytes(b"cos\nsystem\n(S'exit 7'\ntR.")
    with pytest.raises(InputError):
        load_models(path)


def test_a_damaged_schema_is_refused(small, path, tmp_path):
    save_models(small, path)
    with zipfile.ZipFile(path) as old:
        schema = old.read("schema.json")
        names = [name for name in old.namelist() if name != "schema.json"]
        for number, text in enumerate((schema[: len(schema) // 2], b"[]", b'{"__class__": 1}')):
            target = tmp_path / f"{number}.skops"
            with zipfile.ZipFile(target, "w") as new:
                new.writestr("schema.json", text)
                for name in names:
                    new.writestr(name, old.read(name))
            with pytest.raises(InputError):
                load_models(target)


def test_a_file_that_grows_when_decompressed_is_refused(path, monkeypatch):
    monkeypatch.setattr(persist, "LARGEST", 1 << 20)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("schema.json", b" " * (1 << 21))
    assert path.stat().st_size < 1 << 14
    with pytest.raises(InputError, match="when decompressed"):
        load_models(path)


def test_another_document_of_skops_is_refused(path):
    path.write_bytes(skops.io.dumps({"format": 2}))
    with pytest.raises(InputError, match="another document"):
        load_models(path)


def test_models_of_other_features_are_refused(small, path):
    wrong = SavedModels("regression", "time", small.features[:-1], (), small.models)
    save_models(wrong, path)
    with pytest.raises(InputError, match="does not fit"):
        load_models(path)


@pytest.mark.parametrize("fault", ["child", "cycle", "feature"])
@pytest.mark.parametrize("name", ["dt", "gbr", "rf"])
def test_a_tree_that_leads_out_of_its_arrays_is_refused(layers, path, name, fault):
    task = "classification" if name == "rf" else "regression"
    saved = fit_models(layers, task, [name])
    model = saved.models[name].named_steps["model"]
    tree = (model if name == "dt" else np.ravel(model.estimators_)[-1]).tree_
    state = tree.__getstate__()
    nodes = state["nodes"].copy()
    field, value = {
        "child": ("left_child", 10**6),
        "cycle": ("left_child", 0),
        "feature": ("feature", 10**6),
    }[fault]
    nodes[field][0] = value
    tree.__setstate__({**state, "nodes": nodes})
    save_models(saved, path)
    with pytest.raises(InputError, match="not there"):
        load_models(path)


def test_a_linear_model_tree_with_a_cycle_is_refused(layers, path):
    saved = fit_models(layers, models=["lmt"])
    nodes = saved.models["lmt"].named_steps["model"].tree_.nodes
    object.__setattr__(nodes[0], "left", 0)
    object.__setattr__(nodes[0], "right", 0)
    save_models(saved, path)
    with pytest.raises(InputError, match="not there"):
        load_models(path)


def test_train_saves_models_that_predict(layers, tmp_path):
    from perfml.datasets import to_published
    from perfml.tables import RUN_COLUMNS

    whole = layers.assign(kernels=1, kernel_names="k")
    for name in RUN_COLUMNS:
        if name not in whole.columns:
            whole[name] = "x"
    to_published(whole).to_csv(tmp_path / "d.csv", index=False)
    path = tmp_path / "m.skops"
    command = ["train", str(tmp_path / "d.csv"), "--model", "dt", "--splits", "2", "--json", "-q"]
    done = CliRunner().invoke(app, [*command, "--save", str(path)])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["saved"] == str(path)
    found = load_models(path).predict(layers)
    assert found == pytest.approx(layers["time_us"].to_numpy(), rel=1e-6)


def test_without_skops_the_extra_is_named(monkeypatch, small, path):
    monkeypatch.setitem(sys.modules, "skops", None)
    monkeypatch.setitem(sys.modules, "skops.io", None)
    with pytest.raises(MissingExtraError, match=r"perfml\[models\]"):
        save_models(small, path)


def test_importing_perfml_does_not_import_skops():
    code = "import sys, perfml.cli; sys.exit('skops' in sys.modules or 'sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
