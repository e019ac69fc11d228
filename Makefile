# Everything a newcomer needs: `make demo` and `make test` do their own set-up.

PYTHON ?= python3
VENV ?= .venv
# Linux without a GPU: fetch PyTorch's CPU wheels instead of gigabytes of CUDA with
#   make demo PIP_ARGS="--extra-index-url https://download.pytorch.org/whl/cpu"
PIP_ARGS ?=

# Tests run in this many processes, each with one torch thread: make test JOBS=4
JOBS ?= logical

BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist loadfile
SETUP := $(VENV)/.ready
DEV_SETUP := $(VENV)/.ready-dev
DOCS_SETUP := $(VENV)/.ready-docs
RAY_SETUP := $(VENV)/.ready-ray

.PHONY: help demo test test-ci test-all test-gpu check format docs docs-serve model-packages clean

help:  ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 13

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "elmokit needs Python 3.11 or later: make PYTHON=python3.12 ...")'
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

# Ray is not in `dev`: it is large, and few changes touch it.
$(RAY_SETUP): $(DEV_SETUP)
	$(BIN)/python -m pip install --quiet $(PIP_ARGS) -c constraints.txt -e '.[dev,ray]' \
	  && touch $(SETUP) $(DEV_SETUP) $@ || echo "Ray cannot be installed here: its tests are skipped"

demo: $(SETUP)  ## Embed examples/sentences.txt and show what context does to a word
	$(BIN)/python examples/demo.py

test: $(DEV_SETUP)  ## The default tests (about 4 minutes on 2 cores)
	$(PYTEST)

test-ci: $(RAY_SETUP)  ## The slow tests that CI runs as well: kills, process pools, Ray, service
	$(PYTEST) -m ci

test-all: $(RAY_SETUP)  ## All tests that need no GPU
	$(PYTEST) -m 'not gpu'

test-gpu: $(DEV_SETUP)  ## The tests that need a CUDA device
	$(BIN)/python -m pytest -m gpu

check: $(DEV_SETUP)  ## ruff, mypy --strict, and the language of texts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/codespell src docs recipes examples benchmarks scripts README.md CONTRIBUTING.md CHANGELOG.md SECURITY.md
	$(BIN)/python scripts/check_language.py

format: $(DEV_SETUP)  ## Let ruff format and fix what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(DOCS_SETUP)  ## Build the documentation site into build/site, with no warning
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs-serve: $(DOCS_SETUP)  ## Show the site at http://127.0.0.1:8000, and again after each change
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve --watch src

model-packages: $(SETUP)  ## Build the models of weights/ into packages for pip, in dist/
	for model in weights/*/; do $(BIN)/elmo package $$model -o dist; done

clean:  ## Remove the virtual environment and caches
	rm -rf $(VENV) out build .pytest_cache .mypy_cache .ruff_cache
