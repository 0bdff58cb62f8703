#!/usr/bin/env bash
# test_cpp.sh [sanitize]: build tests/cpp with CMake against the installed package, and run the program.
# With "sanitize", the library (baseline instruction set) and the program are built with AddressSanitizer and UBSan first.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [ ! -f tests/cpp/CMakeLists.txt ]; then
  echo "skipped: there is no C++ program in tests/cpp yet"
  exit 0
fi
python=${PYTHON:-python}
mode=${1:-plain}

if [ "$mode" = sanitize ]; then
  prefix=$PWD/build/sanitize/prefix
  cmake -S csrc -B build/sanitize/library -G Ninja -DCMAKE_BUILD_TYPE=Sanitize -DCMAKE_CXX_FLAGS=-O1 -DPython_EXECUTABLE="$python" \
    -DTORCHPAIRWISE_SANITIZE=ON -DTORCHPAIRWISE_COMPILER_HAS_AVX512=OFF >/dev/null
  cmake --build build/sanitize/library
  cmake --install build/sanitize/library --prefix "$prefix" >/dev/null
  prefix=$prefix/torchpairwise
  flags="-fsanitize=address,undefined -fno-omit-frame-pointer -fno-sanitize-recover=undefined"
  # torch is not instrumented: containers that cross its border and memory that it keeps for the life of the process are not errors.
  export ASAN_OPTIONS=detect_leaks=0:detect_container_overflow=0 UBSAN_OPTIONS=print_stacktrace=1
else
  prefix=$("$python" -c 'import torchpairwise; print(torchpairwise.cmake_prefix_path)')
  flags=""
fi
torch_root=$("$python" -c 'import os, torch; print(os.path.dirname(torch.__file__))')

build=build/cpp-$mode
cmake -S tests/cpp -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_CXX_FLAGS="$flags" \
  -Dtorchpairwise_TORCH_ROOT="$torch_root" >/dev/null
cmake --build "$build"
ctest --test-dir "$build" --output-on-failure --no-tests=error
