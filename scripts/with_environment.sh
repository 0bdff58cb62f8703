#!/usr/bin/env bash
# with_environment.sh EXTRAS COMMAND...: choose or make a Python environment, install torch and the extras of pyproject.toml ("-" for none),
# build the library, and run COMMAND in it. What is up to date already is not done again.
#
# Reads TORCH (requirement for torch), PYTHON (interpreter) and CUDA (1: build with CUDA). Sets PYTHON for COMMAND.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
extras=$1
shift
torch_requirement=${TORCH:-torch==2.13.0}
build_dir=build/make
environment_dir=.venv

say() { echo "make: $*" >&2; }
fail() {
  say "$@"
  exit 1
}

# Prints the version of torch that an interpreter has, if it is 2.9 or newer.
suitable_torch() {
  "$1" - <<'PYTHON_END' 2>/dev/null
import importlib.metadata, re, sys
version = importlib.metadata.version("torch")
major, minor = map(int, re.match(r"(\d+)\.(\d+)", version).groups())
if sys.version_info < (3, 10) or (major, minor) < (2, 9):
    sys.exit(1)
print(version)
PYTHON_END
}

# An interpreter that is at least Python 3.10, to make .venv with.
base_interpreter() {
  local candidate
  for candidate in ${PYTHON:+"$PYTHON"} python3 python3.13 python3.12 python3.11 python3.10 python; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
      echo "$candidate"
      return
    fi
    [ -z "${PYTHON:-}" ] || fail "PYTHON=$PYTHON is not a Python >= 3.10."
  done
  fail "no Python >= 3.10 was found. Install one (Debian, Ubuntu: apt-get install python3 python3-venv), or name one: make PYTHON=/path/to/python3"
}

# True where the stamp $1 holds the text $2.
current() { [ "$(cat "$stamps/$1" 2>/dev/null)" = "$2" ]; }

make_environment() {
  local base reason
  base=$(base_interpreter)
  if ! reason=$("$base" -c 'import ensurepip, venv' 2>&1); then
    fail "$base cannot make environments (${reason##*$'\n'}). Install its venv module: apt-get install python3-venv (Debian, Ubuntu)," \
      "or activate an environment that has torch >= 2.9."
  fi
  say "making the environment $environment_dir with $base"
  rm -rf "$environment_dir"
  "$base" -m venv "$environment_dir" || fail "$base -m venv failed; on Debian and Ubuntu: apt-get install python3-venv"
  mkdir -p "$environment_dir/stamps"
  echo "$base" >"$environment_dir/stamps/base"
}

# Sets `python`: an active environment with a suitable torch as it is, else .venv.
choose_interpreter() {
  local candidate
  for candidate in ${PYTHON:+"$PYTHON"} ${VIRTUAL_ENV:+"$VIRTUAL_ENV/bin/python"} ${CONDA_PREFIX:+"$CONDA_PREFIX/bin/python"}; do
    if torch_version=$(suitable_torch "$candidate"); then
      python=$(command -v "$candidate")
      stamps=$build_dir/stamps
      return
    fi
    [ -z "${PYTHON:-}" ] || break
  done
  stamps=$environment_dir/stamps
  if ! "$environment_dir/bin/python" -c 'import pip' 2>/dev/null || { [ -n "${PYTHON:-}" ] && ! current base "$PYTHON"; }; then
    make_environment
  fi
  python=$root/$environment_dir/bin/python
  if ! torch_version=$(suitable_torch "$python") || ! current torch "$torch_requirement"; then
    say "installing $torch_requirement"
    # torch comes first and alone: as a dependency of another package pip might choose another build of it.
    "$python" -m pip install --quiet "pip>=22.3" || fail "pip could not be upgraded in $environment_dir"
    "$python" -m pip install "$torch_requirement" || fail "pip could not install '$torch_requirement'. Name another one: make TORCH='torch==X.Y.Z'"
    torch_version=$(suitable_torch "$python") || fail "'$torch_requirement' is too old: torchpairwise needs torch >= 2.9."
    echo "$torch_requirement" >"$stamps/torch"
  fi
}

# pip install, with torch held at the version that is there.
install() { "$python" -m pip install --quiet "torch==$torch_version" "$@" || fail "pip install $* failed (see above)"; }

install_build_requirements() {
  local wanted
  wanted="$python $torch_version $(cksum <pyproject.toml)"
  current build "$wanted" && return
  say "installing the build tools"
  install "scikit-build-core>=0.10" "cmake>=3.28" ninja numpy
  echo "$wanted" >"$stamps/build"
}

check_compiler() {
  command -v "${CXX:-c++}" >/dev/null || fail "no C++ compiler was found (${CXX:-c++}). Install one that knows C++20, such as g++ >= 11" \
    "(Debian, Ubuntu: apt-get install g++), or name one in the variable CXX."
}

# CMake and ninja look for themselves what has changed; a build with nothing to do takes a second.
build_library() {
  local wanted="$python $torch_version ${CXX:-} ${CUDA:-} $root"
  if [ ! -f "$build_dir/build.ninja" ] || [ "$(cat "$build_dir/configured" 2>/dev/null)" != "$wanted" ]; then
    check_compiler
    grep -qsxF "CMAKE_HOME_DIRECTORY:INTERNAL=$root/csrc" "$build_dir/CMakeCache.txt" || rm -rf "$build_dir"/CMakeCache.txt "$build_dir"/CMakeFiles
    cmake -S csrc -B "$build_dir" -G Ninja -DCMAKE_BUILD_TYPE=Release -DPython_EXECUTABLE="$python" -DTORCHPAIRWISE_INPLACE=ON \
      -DCMAKE_INSTALL_MESSAGE=LAZY -DTORCHPAIRWISE_CUDA="${CUDA:-OFF}" >"$build_dir/configure.log" 2>&1 || {
      cat "$build_dir/configure.log" >&2
      fail "CMake could not configure the build (see above)."
    }
    echo "$wanted" >"$build_dir/configured"
  fi
  cmake --build "$build_dir" >&2 || fail "the build failed (see above)."
}

# The package itself, as an editable install of this checkout; the build above is reused and nothing is compiled again.
install_package() {
  local wanted installed target
  wanted="$python $torch_version $(cksum <pyproject.toml)"
  installed=$("$python" -c 'import importlib.metadata as m; print(m.distribution("torchpairwise").read_text("direct_url.json"))' 2>/dev/null || true)
  case $installed in *"file://$root\""*) current "extras-$extras" "$wanted" && return ;; esac
  target=".[$extras]"
  [ "$extras" != - ] || target=.
  say "installing torchpairwise ($target) in editable form"
  SKBUILD_BUILD_DIR=$build_dir SKBUILD_CMAKE_DEFINE="TORCHPAIRWISE_CUDA=${CUDA:-OFF}" install --no-build-isolation --editable "$target"
  echo "$wanted" >"$stamps/extras-$extras"
}

mkdir -p "$build_dir"
choose_interpreter
mkdir -p "$stamps"
scripts_dir=$("$python" -c 'import sysconfig; print(sysconfig.get_path("scripts"))')
export PATH="$scripts_dir:$PATH"
say "using $python (torch $torch_version)"
install_build_requirements
build_library
install_package
export PYTHON=$python
[ "$1" != python ] || set -- "$python" "${@:2}"
exec "$@"
