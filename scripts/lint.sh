#!/usr/bin/env bash
# lint.sh check|format: style of Python (ruff), types (mypy) and format of C++ (clang-format); settings in pyproject.toml and .clang-format.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${PYTHON:-python}
mode=${1:-check}
mapfile -d '' cpp_files < <(find csrc tests \( -name '*.h' -o -name '*.cpp' -o -name '*.inc' -o -name '*.cu' -o -name '*.cuh' \) -print0)

if [ "$mode" = format ]; then
  "$python" -m ruff check --fix --quiet . || true
  "$python" -m ruff format .
  clang-format -i "${cpp_files[@]}"
  exit 0
fi

status=0
step() {
  echo "== $1"
  shift
  "$@" || status=1
}
step "ruff check" "$python" -m ruff check .
step "ruff format" "$python" -m ruff format --check .
step "mypy" "$python" -m mypy
step "clang-format" clang-format --dry-run -Werror "${cpp_files[@]}"
if [ "$status" -ne 0 ]; then
  echo "lint failed; \`make format\` mends what is a matter of format." >&2
fi
exit "$status"
