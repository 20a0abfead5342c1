#!/usr/bin/env bash
# What is too dear for .ci/run, once before a release: every extra of pyproject.toml in an
# environment of its own, the newest versions that install, and every target of the Makefile in a
# fresh clone.
#   tools/release.sh [VENV]     VENV has the extra check
set -euo pipefail
cd "$(dirname "$0")/.."

# The newest Python on the machine that can make an environment; a shim without a version cannot.
newest_python() {
  local candidate
  for candidate in python3.14 python3.13 python3.12 ~/.pyenv/versions/3.1[234].*/bin/python python3; do
    if "$candidate" -c 'import ensurepip' 2>/dev/null; then echo "$candidate"; return; fi
  done
}

venv=${1:-.venv}
mapfile -t extras < <("$venv/bin/python" -c 'import tomllib
print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"], sep="\n")')
tools/package.sh "$venv" none "${extras[@]}"
tools/floors.sh newest "$(newest_python)"

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
git clone --quiet . "$folder/perfml"
if [ -d ../shared ]; then ln -s "$PWD/../shared" "$folder/shared"; fi
cd "$folder/perfml"
for target in help demo quick test check docs bench portable times; do
  echo "== make $target (after ${SECONDS} s)"
  make "$target" VENV=".venv-$target" >"$folder/log" 2>&1 || { tail -n 40 "$folder/log"; exit 1; }
  tail -n 1 "$folder/log"
  rm -rf ".venv-$target"
done
test -z "$(git status --porcelain)" || { echo "left behind:"; git status --short; exit 1; }
