#!/usr/bin/env bash
# Build what would be published, look at it, and ask the wheel a question with each extra, in an
# environment of its own.
#   tools/package.sh VENV EXTRA...      VENV has the tools of the extra check; none is no extra
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
bin=$root/${1:-.venv}/bin
shift || true
[ $# -gt 0 ] || set -- none ncu mcp notebooks
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

"$bin/python" -m hatchling build -d "$folder/dist" >/dev/null
"$bin/python" -m twine check --strict "$folder"/dist/*
# W002: an empty py.typed and the like are alike on purpose; W009: collectors is a package of its own
"$bin/check-wheel-contents" --ignore W002,W009 "$folder"/dist/*.whl
wheel=$(echo "$folder"/dist/*.whl)

. tools/uv.sh
makes() { # an environment with a requirement; with uv where VENV has it
  if test -x "$bin/uv" && get_uv "${bin%/bin}"; then
    "$bin/uv" venv --quiet --python "$bin/python" "$1"
    "$bin/uv" pip install --quiet --python "$1/bin/python" "$2"
  else
    "$bin/python" -m venv "$1"
    "$1/bin/python" -m pip install --quiet --disable-pip-version-check "$2"
  fi
}

asked() { # a question that needs the extra $1; the first lines of the answer
  local perfml=$2/bin/perfml
  case $1 in
    none) "$perfml" advise h200-yolov4-tiny --where batch=1 --where backend=cudnn --brief ;;
    ncu) "$perfml" inspect "$root/tests/data/ncu/yolov4tiny_cudnn_b1_fp32.ncu-rep.xz" ;;
    mcp) "$perfml" mcp <<<'{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "ci", "version": "1"}}}' |
      grep -o '"serverInfo".*' ;;
    notebooks) (cd "$root/notebooks" && "$2/bin/jupyter" execute 06_proof_by_experiment.ipynb 2>&1 | tail -n 1) ;;
    docs) "$2/bin/python" "$root/docs/_site/build.py" "$folder/site" --no-execute ;;
    gpu) "$2/bin/python" -c 'import torch, nvtx; print(torch.__version__)' ;;
    tensorrt | workloads) "$2/bin/python" -c 'import onnx, tensorrt_rtx; print(tensorrt_rtx.__version__)' ;;
    distributed) "$2/bin/python" -c 'import distributed; print(distributed.__version__)' ;;
    atlas) "$2/bin/python" -c 'import lightgbm, hidimstat; print(lightgbm.__version__)' ;;
    fuzz) "$2/bin/python" -c 'import atheris; print(atheris.__name__)' ;;
    bench) "$2/bin/python" -c 'import polars, duckdb, shap; print(polars.__version__)' ;;
    test) "$2/bin/python" -c 'import hypothesis, playwright; print(hypothesis.__version__)' ;;
    check) "$2/bin/ruff" --version ;;
    *) echo "no question for the extra $1" >&2; return 2 ;;
  esac
}

cd "$folder"
for extra in "$@"; do
  makes "$folder/$extra" "$wheel$([ "$extra" = none ] || echo "[$extra]")"
  asked "$extra" "$folder/$extra" >"$folder/answer" || { cat "$folder/answer"; echo "extra $extra: no answer" >&2; exit 1; }
  test -s "$folder/answer" || { echo "extra $extra: an empty answer" >&2; exit 1; }
  echo "extra $extra: $(head -n 1 "$folder/answer" | cut -c 1-100)"
  rm -rf "${folder:?}/$extra"
done
