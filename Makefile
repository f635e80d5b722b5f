# Each target makes .venv by itself, from PyPI alone. Another interpreter: make PYTHON=python3.13
PYTHON  ?= python3
# One more than two cores: tests of ranks wait much of their time.
WORKERS ?= 3

VENV   := .venv/bin
STAMP  := .venv/installed
MPIRUN := $(VENV)/mpirun
PYTEST := $(VENV)/python -m pytest

include taskflow/comm/mpi.env
export $(shell grep -o '^[A-Za-z_]*' taskflow/comm/mpi.env)
# Caches in one place. A user may have no home, a TMPDIR that is another's, even a checkout that is another's.
CACHE := $(shell mkdir -p .cache 2>/dev/null; [ -w .cache ] && echo "$(CURDIR)/.cache" || mktemp -d)
export NUMBA_CACHE_DIR              := $(CACHE)/numba
export HYPOTHESIS_STORAGE_DIRECTORY := $(CACHE)/hypothesis
export MYPY_CACHE_DIR               := $(CACHE)/mypy
export RUFF_CACHE_DIR               := $(CACHE)/ruff
export TMPDIR                       := $(shell [ -w "$$TMPDIR" ] && echo "$$TMPDIR" || echo /tmp)
export HOME                         ?= $(CACHE)
# Some hundred processes import the packages; where this is set, as in containers, each would compile them anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo docs sphinx site links warm collect peers browser chromium test skipped lint check format clean

demo: $(STAMP)
	$(MPIRUN) -n 2 $(VENV)/python examples/digits.py

docs: $(STAMP)
	$(VENV)/python docs/operators.py
	$(VENV)/python docs/cuda_operators.py
	$(VENV)/python docs/cuda_figures.py
	$(VENV)/python docs/links.py
	$(VENV)/python -m docs.draw

sphinx: $(STAMP)
	@$(VENV)/python -m pip install --quiet --disable-pip-version-check --no-compile --requirement docs/requirements.txt

# The documentation as a site, in docs/_build/index.html; docs/conf.py says with what. A dead link within it is an error.
site: sphinx
	$(VENV)/python -m sphinx -q -W --keep-going -b html docs docs/_build
	@echo "docs/_build/index.html"

# Tries every link that leads out of the documentation; needs a network.
links: $(STAMP)
	$(VENV)/python docs/links.py --try

# What most tests use is compiled once, here, on two cores.
warm: $(STAMP)
	@$(VENV)/python -m tests.warm

# Python and pytest compile the tests once, here: each worker then collects in 5 s of the processor instead of 12.
collect: $(STAMP)
	$(PYTEST) --collect-only -q -p no:cacheprovider > /dev/null

FETCH := $(VENV)/python -m pip install --quiet --disable-pip-version-check --retries 1 --timeout 60 --no-compile
# What some tests compare with, and nothing needs: without it they skip by name. The range is pyproject's extra `torch`;
# the build for CPUs is of another index, and what it depends on of PyPI.
TORCH = $(shell $(VENV)/python -c "import tomllib; \
  print(tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']['torch'][0])")
peers: $(STAMP)
	@{ $(FETCH) --no-deps --index-url https://download.pytorch.org/whl/cpu '$(TORCH)' && $(FETCH) '$(TORCH)'; } 2>/dev/null \
	  || echo "torch for CPUs cannot be had: the tests that compare with it will skip" >&2
	@$(FETCH) 'transformers>=5,<6' 2>/dev/null \
	  || echo "transformers cannot be had: its architectures are left out of the tests that import them" >&2
	@$(VENV)/python -c "import torch.export, torch.distributed.tensor, transformers" 2>/dev/null || true # compiled once

# Tests of pages look at them in a real browser, and of traces in Perfetto; without these they skip by name.
browser: chromium $(STAMP)
	@$(FETCH) 'playwright>=1.50' 'perfetto>=0.16' 2>/dev/null \
	  || echo "Playwright and perfetto cannot be had: the tests that use them will skip" >&2

chromium:
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq \
	  && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null 2>&1; } \
	  || echo "Chromium cannot be had: the tests of pages will skip" >&2

test: $(STAMP)
	@$(MAKE) --no-print-directory -j 2 warm collect
	$(PYTEST) -n $(WORKERS) --dist worksteal -o cache_dir="$(CACHE)/pytest"
	$(MPIRUN) -n 2 $(PYTEST) tests/mpi -q -p no:cacheprovider
	$(MPIRUN) -n 4 $(PYTEST) tests/mpi -q -p no:cacheprovider

# What skipped in `make test`, and nothing else: for after `make peers browser`.
skipped: $(STAMP)
	$(PYTEST) -n $(WORKERS) --dist worksteal -o cache_dir="$(CACHE)/pytest" --skipped

lint: $(STAMP)
	$(VENV)/ruff check .
	$(VENV)/ruff format --check .
	$(VENV)/mypy

check: lint test

format: $(STAMP)
	$(VENV)/ruff check --fix .
	$(VENV)/ruff format .

clean:
	rm -rf docs/_build .venv .cache .*_cache .hypothesis build dist *.egg-info

# Debian and Ubuntu keep `ensurepip` in a package of its own; a pip outside will do instead.
$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "taskflow needs Python 3.11 or newer. Is there another one? make PYTHON=python3.13" >&2; exit 1; }
	@if $(PYTHON) -c 'import ensurepip' 2>/dev/null; then $(PYTHON) -m venv .venv; \
	elif $(PYTHON) -m pip --version >/dev/null 2>&1; then \
	  $(PYTHON) -m venv --without-pip .venv && $(PYTHON) -m pip --python .venv install --quiet pip; \
	else echo "$(PYTHON) can make no virtual environment: install pip (on Debian: apt install python3-venv)" >&2; exit 1; fi
	@echo "Installing taskflow-dl and its dependencies into .venv (a minute or two) ..."
	@$(VENV)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable '.[test]'
	@touch $@
