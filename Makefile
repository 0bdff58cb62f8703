# The commands of the README. Each target sets up what it needs: environment, torch, build (scripts/with_environment.sh).
#
#   TORCH   requirement that torch is installed with, where no suitable torch is at hand
#   PYTHON  interpreter to use; without it the active environment (venv or conda) if it has torch >= 2.9, else .venv
#   CUDA    1: build with CUDA (needs nvcc and a CUDA build of torch)

TORCH = torch==2.13.0
PYTHON =
CUDA =
WITH = TORCH='$(TORCH)' PYTHON='$(PYTHON)' CUDA='$(CUDA)' bash scripts/with_environment.sh

help:
	@echo 'make demo       set up, build, and run the demo'
	@echo 'make test       set up, build, and run all tests and the C++ program'
	@echo 'make build      set up and build; after an edit, only what changed is compiled'
	@echo 'make docs       build the documentation into docs/_build/html'
	@echo 'make bench      run the benchmarks'
	@echo 'make lint       check format, style and types'
	@echo 'make format     format all sources'
	@echo 'make test-cuda  run the tests that need a GPU'
	@echo 'make clean      remove what was built (the environment .venv stays)'
	@echo 'Variables: TORCH=$(TORCH) PYTHON=path CUDA=1'

demo:
	@$(WITH) demo python -m torchpairwise.demo

test:
	@$(WITH) test bash scripts/test.sh

build:
	@$(WITH) - true

docs:
	@$(WITH) docs bash scripts/docs.sh

bench:
	@$(WITH) bench bash scripts/bench.sh

lint:
	@$(WITH) dev bash scripts/lint.sh check

format:
	@$(WITH) dev bash scripts/lint.sh format

test-cuda:
	@$(WITH) test bash scripts/test_cuda.sh

clean:
	rm -rf build dist docs/_build docs/generated docs/auto_gallery docs/sg_execution_times.rst
	rm -rf torchpairwise/lib torchpairwise/include torchpairwise/_build_info.json
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis

.PHONY: help demo test build docs bench lint format test-cuda clean
