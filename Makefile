# The environment lives in .venv and is rebuilt when its description changes.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEV := $(VENV)/.dev
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# Idle worker threads that spin for long steal the cores from those that work.
export OMP_WAIT_POLICY ?= PASSIVE
export GOMP_SPINCOUNT ?= 10000

.PHONY: setup demo test test-full lint types clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Transduce needs Python 3.11 or newer; name it with: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	@echo "installing PyTorch and what Transduce needs into $(VENV): some minutes, once"
	$(PIP) -r constraints.txt
	$(PIP) -c constraints.txt -e '.[ct2,demo,serve]'
	@touch $@

# What tests and checks need besides.
$(DEV): $(READY)
	$(PIP) -c constraints.txt -e '.[dev]'
	@touch $@

demo: setup
	@$(BIN)/transduce demo

test: $(DEV)
	$(BIN)/python -m pytest

test-full: $(DEV)
	$(BIN)/python -m pytest -m 'not gpu'

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(DEV)
	$(BIN)/mypy

clean:
	rm -rf $(VENV) demo build dist
