PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
JOBS ?= 2
DEMO ?= runs/demo

.PHONY: setup demo test lint bench docs release clean

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

# The usual durations are those of two cores.
demo:
	@echo "1 of 3: installing torchlace and what it needs (a minute or two; only the first time)"
	@$(MAKE) --no-print-directory setup
	@echo "2 of 3: training 11 heads from 3 seeds each on handwritten digits (about two minutes)"
	$(BIN)/torchlace reproduce quick --runs $(DEMO) --jobs 2
	@echo "3 of 3: examining the 33 runs and writing the page (about a minute)"
	$(BIN)/torchlace report $(DEMO) --method pca --output $(DEMO)/report.html
	@echo "Done: open $(DEMO)/report.html in a browser"

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS)

bench: setup
	$(BIN)/python benchmarks/heads.py

# Builds the site, after running the code of its tutorials.
docs: setup
	$(BIN)/python -m pip install --quiet --editable '.[docs,tutorials]'
	$(BIN)/python docs/execute.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo build/site/index.html

# Builds the wheel and tries each extra in a clean environment; uploads nothing.
release: setup
	$(BIN)/python -m pip install --quiet build
	rm -rf dist && $(BIN)/python -m build
	$(BIN)/python tests/release.py dist

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .hypothesis
