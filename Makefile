# Everything runs in an environment of its own, .venv, made at first use.
#   make demo      compare nine policies on one cluster; ends with a table and demo-output/report.html
#   make test      the tests, in under three minutes; those marked exhaustive are left out
#   make test-all  all tests but the deep ones: whole simulations too, every solver on every instance
#   make test-deep  the deep ones, an hour: further draws, workloads and sizes, every notebook
#   make test-slurm  the Slurm adapter on a real Slurm, whose Debian packages it installs where they are absent
#   make test-examples  the examples of training scripts, in an environment of their own with PyTorch and transformers
#   make mutants   which tests notice small wrong changes of the product (docs/contributing.md): hours
#   make lint      format, lint and types
#   make docs      the documentation as a site, in docs-output, which opens without a network
#   make tables    writes the tables of README and docs anew that are made from runs (docs need the public data)
#   make golden    says which results have changed since the goldens were kept, and keeps those of today
#   make bench     decisions and simulations, timed beside the plain cvxpy + ECOS path
#   make clean     remove what these made

VENV := .venv
BIN := $(VENV)/bin

# The first interpreter that is new enough; `make PYTHON=...` names another.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python; do \
	if $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then echo $$p; break; fi; done)

# The release that the examples are tested with; docs/dependencies.md on how large it is.
TORCH ?= torch==2.13.0
# The releases that recorded figures were made with.
CONSTRAINTS := tests/constraints.txt
EXAMPLES := .venv-examples

# Tests start hundreds of processes, each of which would compile all modules.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-all test-deep slurm test-slurm test-examples golden mutants lint docs tables bench clean

demo: $(VENV)/.run
	$(BIN)/allocator compare --out demo-output

CORES ?= $(shell $(BIN)/python -c "import os; print(len(os.sched_getaffinity(0)))")

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n $(CORES) -m "not exhaustive"

# One worker more than there are cores: many exhaustive tests wait for processes.
test-all: $(VENV)/.dev
	$(BIN)/python -m pytest -n $$((1 + $(CORES))) -m "not deep"

test-deep: $(VENV)/.dev
	$(BIN)/python -m pytest -n $(CORES) -m deep

SLURM_PACKAGES := slurmctld slurmd slurm-client munge
AS_ROOT = $(shell test "$$(id -u)" = 0 || echo sudo)

slurm:
	@PATH="$$PATH:/usr/sbin"; which slurmctld slurmd sbatch munged >/dev/null || \
		{ $(AS_ROOT) apt-get update --quiet && \
		$(AS_ROOT) env DEBIAN_FRONTEND=noninteractive apt-get install --quiet --yes --no-install-recommends $(SLURM_PACKAGES); }

test-slurm: $(VENV)/.dev slurm
	ALLOCATOR_EXPECT_SLURM=1 $(BIN)/python -m pytest -n 2 tests/runtime/slurm

test-examples: $(EXAMPLES)/.run
	ALLOCATOR_EXPECT_EXAMPLES=1 OMP_NUM_THREADS=1 $(EXAMPLES)/bin/python -m pytest -n 2 -m "not deep" tests/examples

mutants: $(VENV)/.dev
	$(BIN)/python -m tests.mutants

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check --no-cache .
	$(BIN)/mypy

# The notice is one of the theme about other versions of MkDocs.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "Documentation: $(CURDIR)/docs-output/index.html"

tables: $(VENV)/.dev
	$(BIN)/python -m tests.tables
	$(BIN)/python notebooks/run.py --table

golden: $(VENV)/.dev
	$(BIN)/python -m tests.golden

bench: $(VENV)/.run
	$(BIN)/python -m benchmarks

$(VENV)/.python:
	@test -n "$(PYTHON)" || { echo "error: no Python of version 3.11 or newer found; install one or run make PYTHON=/path/to/python" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	@touch $@

$(VENV)/.run: $(VENV)/.python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable ".[ecos]"
	@touch $@

$(VENV)/.dev: $(VENV)/.run pyproject.toml $(CONSTRAINTS)
	$(BIN)/python -m pip install --quiet --constraint $(CONSTRAINTS) --editable ".[dev]"
	@touch $@

$(VENV)/.docs: $(VENV)/.run pyproject.toml $(CONSTRAINTS)
	$(BIN)/python -m pip install --quiet --constraint $(CONSTRAINTS) --editable ".[docs]"
	@touch $@

$(EXAMPLES)/.run: pyproject.toml
	@test -n "$(PYTHON)" || { echo "error: no Python of version 3.11 or newer found; install one or run make PYTHON=/path/to/python" >&2; exit 1; }
	$(PYTHON) -m venv $(EXAMPLES)
	$(EXAMPLES)/bin/python -m pip install --quiet --editable ".[examples]" "$(TORCH)" pytest pytest-xdist hypothesis
	@touch $@

clean:
	rm -rf $(VENV) $(EXAMPLES) demo-output docs-output build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
