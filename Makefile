# Each target makes its own .venv from constraints.txt: nothing but Python 3.11 or newer is needed.
PYTHON ?= python3
BIN := .venv/bin
WORKERS ?= 2

.PHONY: help test lint mutants clean

help:
	@echo "make test     install into .venv and run the tests"
	@echo "make lint     ruff and the strict type checker"
	@echo "make mutants  plant bugs one by one and see the tests catch each (some minutes)"

# The stamp is newer than what the environment is made from, or the environment is made again.
.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch setuptools
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

test: .venv/ready
	$(BIN)/python -m pytest -n $(WORKERS)

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

mutants: .venv/ready
	$(BIN)/python tests/mutants.py

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
