#!/usr/bin/env bash
# The documentation, with every warning an error: docs/_build/html/index.html.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
"${PYTHON:-python}" -m sphinx -W --keep-going -q -b html -d docs/_build/doctrees docs docs/_build/html
echo "documentation: docs/_build/html/index.html"
