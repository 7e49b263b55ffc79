PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
JOBS ?= 2
DEMO ?= runs/demo

.PHONY: setup demo test lint bench clean

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

demo: setup
	$(BIN)/torchlace reproduce quick --runs $(DEMO) --jobs 2
	$(BIN)/torchlace report $(DEMO) --method pca --output $(DEMO)/report.html

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS)

bench: setup
	$(BIN)/python benchmarks/heads.py

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .hypothesis
