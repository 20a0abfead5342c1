#!/usr/bin/env bash
# Build what would be published, look at it, and ask the wheel a question in an empty environment.
#   tools/package.sh [VENV]     with the tools of the extra check
set -euo pipefail
cd "$(dirname "$0")/.."
bin=${1:-.venv}/bin
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

"$bin/python" -m hatchling build -d "$folder/dist" >/dev/null
"$bin/python" -m twine check --strict "$folder"/dist/*
# W002: an empty py.typed and the like are alike on purpose; W009: collectors is a package of its own
"$bin/check-wheel-contents" --ignore W002,W009 "$folder"/dist/*.whl
"$bin/python" -m venv "$folder/empty"
if test -x "$bin/uv"; then
  . tools/uv.sh
  get_uv "${bin%/bin}"
  "$bin/uv" pip install --quiet --python "$folder/empty/bin/python" "$folder"/dist/*.whl
else
  "$folder/empty/bin/python" -m pip install --quiet --disable-pip-version-check "$folder"/dist/*.whl
fi
cd "$folder"
empty/bin/perfml advise h200-yolov4-tiny --where batch=1 --where backend=cudnn --brief | head -n 2
