#!/usr/bin/env bash
# All tests: the whole suite at the best instruction set of the processor, the value tests once more at each lower one, the C++ program.
# Run by `make test`; PYTHON is the interpreter of the environment. Arguments go to pytest and then only the suite runs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${PYTHON:-python}

cores=$("$python" -c 'import os; print(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())')
workers=$((cores < 4 ? cores : 4))
logs=build/make/logs
mkdir -p "$logs"
status=0

# suite NAME ISA PYTEST-ARGUMENTS...: each worker computes with one thread, except in tests that set their number themselves.
suite() {
  local name=$1 isa=$2
  shift 2
  echo "== $name"
  TORCHPAIRWISE_ISA=$isa OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 "$python" -m pytest -q -n "$workers" "$@" 2>&1 | tee "$logs/$name.log" || status=1
}

if [ $# -gt 0 ]; then
  exec "$python" -m pytest "$@"
fi

# The value tests are those that read the table of cases.
mapfile -t value_tests < <(grep -lE '^(from|import) (tests\.)?cases|from (\.|tests) import cases' tests/test_*.py)
[ ${#value_tests[@]} -gt 0 ] || { echo "no file in tests/ reads tests/cases.py" >&2; exit 1; }

suite tests "" --durations=10
for isa in $("$python" scripts/instruction_sets.py --lower); do
  suite "values-$isa" "$isa" "${value_tests[@]}"
done

echo "== C++ program"
bash scripts/test_cpp.sh 2>&1 | tee "$logs/cpp.log" || status=1

echo "== summary"
for log in "$logs"/tests.log "$logs"/values-*.log; do
  [ -f "$log" ] && printf '%-18s %s\n' "$(basename "$log" .log)" "$(tail -n 1 "$log")"
done
printf '%-18s %s\n' cpp "$(tail -n 1 "$logs/cpp.log")"
exit "$status"
