#!/usr/bin/env bash
# Runs every benchmark script, one after the other; each answers the question in its file name.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
for script in benchmarks/*_vs_*.py; do
  echo "== $script"
  "${PYTHON:-python}" "$script"
done
