# The environment lives in .venv and is rebuilt when its description changes.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEV := $(VENV)/.dev
# Twice quiet: pip prints errors, and no warnings or notices.
PIP := $(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check
# Several tests at a time: most of them keep a single core busy.
PARALLEL := -n auto --maxprocesses 4 --dist worksteal

# Idle worker threads that spin for long steal the cores from those that work.
export OMP_WAIT_POLICY ?= PASSIVE
export GOMP_SPINCOUNT ?= 10000

.PHONY: setup demo test test-full test-numerics lint types docs clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Transduce needs Python 3.11 or newer; name it with: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 2; }
	@echo "Installing PyTorch and the other packages into $(VENV); this takes a few minutes, once."
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) -r constraints.txt
	@$(PIP) -c constraints.txt -e '.[ct2,demo,serve]'
	@echo "Installed: run $(BIN)/transduce --help, or make demo."
	@touch $@

# What tests and checks need besides.
$(DEV): $(READY)
	@echo "Installing what the tests and checks need."
	@$(PIP) -c constraints.txt -e '.[dev]'
	@touch $@

demo: setup
	@$(BIN)/transduce demo

test: $(DEV)
	$(BIN)/python -m pytest $(PARALLEL)

# The slow tests too, and every shape in every call (tests/shapes.py).
test-full: $(DEV)
	TRANSDUCE_CHECK_ALL_SHAPES=1 $(BIN)/python -m pytest $(PARALLEL) -m 'not gpu'

# The marked tests as other processors would run them, and with other numbers of threads.
test-numerics: $(DEV)
	@$(BIN)/python tests/numerics.py $(PARALLEL)

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(DEV)
	$(BIN)/mypy

# The documentation as a website in site/; a dead link or a page outside the navigation is an error.
docs: $(DEV)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "Built: open site/index.html; for the search, run $(BIN)/python -m mkdocs serve."

clean:
	rm -rf $(VENV) demo build dist site
