#!/usr/bin/env bash
# The tests that need a GPU (marked "cuda"). Says why when they cannot run, and then fails: nothing was tested.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${PYTHON:-python}

if ! "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then
  "$python" - <<'PYTHON_END' >&2
import shutil, torch
print("make test-cuda: no GPU can be used here.")
print(f"  torch {torch.__version__}: {f'built with CUDA {torch.version.cuda}' if torch.version.cuda else 'a CPU build'}")
print(f"  nvcc: {shutil.which('nvcc') or 'not found'}   nvidia-smi: {shutil.which('nvidia-smi') or 'not found'}")
print("Run it on a machine with an NVIDIA GPU, in an environment whose torch was built with CUDA (make test-cuda PYTHON=...).")
PYTHON_END
  exit 1
fi
exec "$python" -m pytest -q -m cuda "$@"
