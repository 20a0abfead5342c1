#!/usr/bin/env bash
# Test perfml on the lowest versions that pyproject.toml allows, or on the newest that install.
#   tools/floors.sh lowest [PYTHON]     tools/floors.sh newest [PYTHON]
# The environment is made in FLOORS_VENV (default: .venv-lowest or .venv-newest) and kept.
set -euo pipefail
cd "$(dirname "$0")/.."
unset PYTHONDONTWRITEBYTECODE # as in the Makefile

which=${1:?lowest or newest}
python=${2:-python3.11}
venv=${FLOORS_VENV:-.venv-$which}
case $which in
  lowest) resolution=lowest-direct ;;
  newest) resolution=highest ;;
  *) echo "lowest or newest, not $which" >&2; exit 2 ;;
esac

. tools/uv.sh

# uv of .ci/run's own environment, if there is one: it makes an environment in no time, too
tool=$venv
if test -x .venv/bin/uv && get_uv .venv; then
  tool=.venv
  test -x "$venv/bin/python" || .venv/bin/uv venv --quiet --python "$python" "$venv"
fi
test -x "$venv/bin/python" || "$python" -m venv "$venv"
if test "$tool" = .venv || get_uv "$venv"; then
  "$tool/bin/uv" pip install --quiet --python "$venv/bin/python" --resolution "$resolution" \
    --editable . 'pytest>=8.2' 'hypothesis>=6.100'
else # pip knows no lowest versions: what pyproject.toml allows at least is asked for by itself
  pins=()
  [ "$which" = newest ] || mapfile -t pins < <("$venv/bin/python" -c 'import tomllib
for each in tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"]:
    print(each.replace(">=", "=="))')
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    --editable . 'pytest>=8.2' 'hypothesis>=6.100' "${pins[@]}"
fi
versions() {
  "$tool/bin/uv" pip list --python "$venv/bin/python" --format freeze 2>/dev/null ||
    "$venv/bin/python" -m pip list --disable-pip-version-check --format freeze
}
versions | grep -iE '^(numpy|pandas|scipy|scikit-learn|joblib|threadpoolctl|linear-tree|matplotlib|pyarrow|typer|rich|jinja2|pooch)=='
# what an old or new version broke so far: readers, tables on disk, the command line; ten examples
# of a property, as its logic is tested elsewhere; in one process, as .ci/run has the cores at work
HYPOTHESIS_PROFILE=dev "$venv/bin/python" -m pytest -q -p no:cacheprovider -m 'not slow' \
  tests/perfml/test_tables.py tests/readers/test_ncu_csv.py tests/readers/test_nvprof_text.py tests/readers/test_frame.py \
  tests/ingest/test_ingest.py tests/ingest/test_merge.py tests/metrics/test_catalogue.py tests/modeling/test_linear_model_tree.py \
  tests/modeling/test_sklearn_compat.py tests/modeling/test_features.py tests/modeling/test_protocols.py \
  tests/cli/test_cli.py
