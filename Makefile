# New users can start with `make demo` or `make test`. Each target installs what it needs.

PYTHON ?= python3
VENV ?= .venv
# On Linux without a GPU, install PyTorch's CPU wheels to avoid downloading gigabytes of CUDA libraries:
#   make demo PIP_ARGS="--extra-index-url https://download.pytorch.org/whl/cpu"
PIP_ARGS ?=

# Number of test processes, each with one torch thread. For example: make test JOBS=4
JOBS ?= logical

BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist loadfile
SETUP := $(VENV)/.ready
DEV_SETUP := $(VENV)/.ready-dev
DOCS_SETUP := $(VENV)/.ready-docs
RAY_SETUP := $(VENV)/.ready-ray

.PHONY: help demo test test-ci test-all test-gpu check format docs docs-serve model-packages clean

help:  ## List all targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "elmokit requires Python 3.11 or later. Select one with: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)

$(SETUP): pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet $(PIP_ARGS) -c constraints.txt -e .
	touch $@

$(DEV_SETUP): pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet $(PIP_ARGS) -c constraints.txt -e '.[dev]'
	touch $(SETUP) $@

$(DOCS_SETUP): pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet $(PIP_ARGS) -c constraints.txt -e '.[docs]'
	touch $(SETUP) $@

# Ray is not part of `dev`, because it is large and few changes affect it.
$(RAY_SETUP): $(DEV_SETUP)
	$(BIN)/python -m pip install --quiet $(PIP_ARGS) -c constraints.txt -e '.[dev,ray]' \
	  && touch $(SETUP) $(DEV_SETUP) $@ || echo "Ray cannot be installed on this machine. Tests that require it will be skipped."

demo: $(SETUP)  ## Show how context changes the vectors of a word
	$(BIN)/python examples/demo.py

test: $(DEV_SETUP)  ## Run the default tests (about 4 minutes on 2 cores)
	$(PYTEST)

test-ci: $(RAY_SETUP)  ## Run the additional tests of CI (killed processes, process pools, Ray, service)
	$(PYTEST) -m ci

test-all: $(RAY_SETUP)  ## Run all tests that do not need a GPU (about 16 minutes)
	$(PYTEST) -m 'not gpu'

test-gpu: $(DEV_SETUP)  ## Run the tests that need a CUDA GPU
	$(BIN)/python -m pytest -m gpu

check: $(DEV_SETUP)  ## Run ruff, mypy --strict, codespell and the phrase check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/codespell src docs recipes examples benchmarks scripts README.md CONTRIBUTING.md CHANGELOG.md SECURITY.md
	$(BIN)/python scripts/check_language.py

format: $(DEV_SETUP)  ## Format the code and apply automatic fixes with ruff
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(DOCS_SETUP)  ## Build the documentation site in build/site (warnings are errors)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs-serve: $(DOCS_SETUP)  ## Serve the site at http://127.0.0.1:8000 and rebuild it after changes
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve --watch src

model-packages: $(SETUP)  ## Build pip packages of the models in weights/, in dist/
	for model in weights/*/; do $(BIN)/elmo package $$model -o dist; done

clean:  ## Remove the virtual environment, build outputs and caches
	rm -rf $(VENV) out build .pytest_cache .mypy_cache .ruff_cache
