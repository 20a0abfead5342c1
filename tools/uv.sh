# Sourced by .ci/run and tools/floors.sh: put uv, which installs in a third of pip's time, into an
# environment. It asks where pip is configured to ask. Fails where there is no uv.
#   get_uv VENV
get_uv() {
  local pip=("$1/bin/python" -m pip --disable-pip-version-check) index links
  "${pip[@]}" install --quiet uv || return 1
  index=${PIP_INDEX_URL:-$("${pip[@]}" config get global.index-url 2>/dev/null || true)}
  links=${PIP_FIND_LINKS:-$("${pip[@]}" config get global.find-links 2>/dev/null || true)}
  [ -z "$index" ] || export UV_DEFAULT_INDEX=$index
  [ -z "$links" ] || export UV_FIND_LINKS=${links// /,}
}
