# `make demo` and `make test` set everything up by themselves, in .venv.
# They assume Python 3.11 or newer and pip, nothing else.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

# Name another one with `make PYTHON=...`.
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11 python3.14; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 \
	&& { echo "$$python"; break; }; done)
VENV := .venv
BIN := $(CURDIR)/$(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
# Directories as well: that is how a deleted file shows.
SOURCES := $(shell find qjs_pool worker middleware -name '__pycache__' -prune -o -name '.*' -prune -o -print)

# What is tested is the installed wheel. Without this, Python would find ./qjs_pool first, which
# lacks the packages that setuptools maps into it.
export PYTHONSAFEPATH := 1

.PHONY: help demo test lint types contracts coverage tox clean

help:
	@echo 'make demo    a guided run over real data, then what hostile programs do to it'
	@echo 'make test    lint, types, import contracts, tests with a coverage floor'
	@echo 'make tox     the tests on every interpreter present, and on the classic engine'
	@echo 'make clean   remove what these have made'

demo: $(VENV)/.installed
	@$(BIN)/qjs-pool demo

test: lint types contracts coverage

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed $(VENV)/.dev
	$(BIN)/mypy

# From another directory: import-linter puts the current one in front of the installed package.
contracts: $(VENV)/.installed $(VENV)/.dev
	cd $(VENV) && $(BIN)/lint-imports ../pyproject.toml --cache-dir .import_linter_cache

coverage: $(VENV)/.installed $(VENV)/.dev
	$(BIN)/coverage erase
# Side by side: many of them wait for processes more than they compute.
	@status=0 pids=; \
	for part in unit middleware; do \
		$(BIN)/coverage run -m pytest tests/$$part >$(VENV)/$$part.log 2>&1 & pids+=" $$!"; \
	done; \
	$(BIN)/coverage run -m pytest tests/adversarial tests/integration || status=$$?; \
	for pid in $$pids; do wait $$pid || status=$$?; done; \
	cat $(VENV)/unit.log $(VENV)/middleware.log; exit $$status
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

# pyenv's interpreters as well, which are on no PATH unless they were chosen.
PYENV_ROOT ?= $(HOME)/.pyenv
INTERPRETERS := $(wildcard $(PYENV_ROOT)/versions/3.1[1-9].*/bin/python)

tox: $(VENV)/.dev
	@rm -rf build
	$(BIN)/tox $(if $(INTERPRETERS),--discover $(INTERPRETERS)) $(TOXARGS)

$(VENV)/bin/pip:
	@test -n "$(PYTHON)" || { echo 'Python 3.11 or newer is needed; name it: make PYTHON=...' >&2; exit 1; }
	@echo "setting up $(VENV) with $$("$(PYTHON)" --version)"
# Some distributions ship Python without ensurepip; then the pip that is there installs one.
	@"$(PYTHON)" -m venv $(VENV) >/dev/null 2>&1 || { \
		"$(PYTHON)" -m venv --clear --without-pip $(VENV); \
		"$(PYTHON)" -m pip --quiet --python $(VENV)/bin/python install pip; }

# The wheel: whenever a source has changed. setuptools would pack what it finds in an old build/.
# What it depends on: only when pyproject.toml has.
$(VENV)/.installed: $(SOURCES) pyproject.toml README.md LICENSE | $(VENV)/bin/pip
	@rm -rf build $(VENV)/wheel
	$(PIP) wheel --no-deps --wheel-dir $(VENV)/wheel .
	$(PIP) install --no-deps --force-reinstall $(VENV)/wheel/*.whl
	@[ $(VENV)/.dependencies -nt pyproject.toml ] || $(PIP) install $(VENV)/wheel/*.whl
	@rm -rf build
	@touch $(VENV)/.dependencies $@

$(VENV)/.dev: pyproject.toml | $(VENV)/.installed
	$(PIP) install "$$(echo $(VENV)/wheel/*.whl)[dev]"
	@touch $@

clean:
	rm -rf $(VENV) .tox build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -f .coverage .coverage.*
