# Crewhall's commands. `make up` and `make test` each work as the first command in a fresh clone.

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
ARGS ?=

.PHONY: help up test tests check soak lint bench conformance clients docs lock install clean system npm python

help:
	@echo "make up           serve a hall: dashboard, MCP, REST (ARGS='--port 0')"
	@echo "make test         every check and every test, on SQLite and PostgreSQL"
	@echo "make check        lint, types and the quick tests: under a minute, after every change"
	@echo "make soak         the tests at full size, fresh examples, interrupted set-ups: takes long"
	@echo "make lint         ruff, mypy, import-linter"
	@echo "make bench        what a call costs against its floor"
	@echo "make conformance  the MCP project's own suite against a hub (npm)"
	@echo "make clients      real Claude Code, Codex, Gemini and opencode against a hub (npm)"
	@echo "make docs         write the generated pages"
	@echo "make lock         resolve the dependencies again"
	@echo "make clean        remove the environment"

up: install
	@exec env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL -u MAKEOVERRIDES -u ARGS $(BIN)/crewhall up $(ARGS)

# npm waits for the network and the disk, and so does pip. Tests leave a part of two cores idle: lint runs beside them.
test:
	@$(MAKE) -s -j2 npm $(VENV)/compiled
	@$(MAKE) -s -j2 lint tests

tests:
	@env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL -u MAKEOVERRIDES $(BIN)/python -m tools.test $(ARGS)

check: lint
	@$(BIN)/python -m tools.test --quick

soak: $(VENV)/dev npm
	@$(BIN)/python -m tools.test --soak
	@$(BIN)/python -m tools.interrupts

lint: $(VENV)/dev
	@$(BIN)/ruff check -q .
	@$(BIN)/ruff format -q --check .
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports --no-logo > /dev/null || $(BIN)/lint-imports --no-logo

bench: $(VENV)/dev
	@$(BIN)/python -m bench.run $(ARGS)

conformance: $(VENV)/dev
	@$(BIN)/python -m tools.conformance $(ARGS)

clients: $(VENV)/dev
	@$(BIN)/python -m tools.clients $(ARGS)

docs: $(VENV)/dev
	@$(BIN)/python -m tools.docs

install: $(VENV)/ready
	@$(BIN)/python -m compileall -q src

system:
	@tools/system-packages

npm: system | python
	@$(PYTHON) -m tools.npm

# The locks carry hashes and no addresses: pip takes each package from the registry that this machine uses.
# An interrupted install leaves a mark, and is started over (tools/whole.py).
UNFINISHED := $(wildcard $(VENV)/unfinished)

$(VENV)/ready: requirements.lock pyproject.toml $(UNFINISHED) | python
	@$(PYTHON) -m tools.make_venv $(VENV) requirements.lock
	@touch $@

# It holds what the first lock has, at the same versions: `make up` after `make test` has nothing to install.
$(VENV)/dev: requirements-dev.lock requirements.lock pyproject.toml $(UNFINISHED) | python
	@$(PYTHON) -m tools.make_venv $(VENV) requirements-dev.lock
	@touch $(VENV)/ready $@

# The first run compiles the tests here, beside mypy; else each of its processes would, one as slowly as the other.
$(VENV)/compiled: $(VENV)/dev
	@$(BIN)/python -m tools.test --collect-only -q > /dev/null || true
	@touch $@

python:
	@test -n "$(PYTHON)" || { echo "crewhall needs Python 3.11 or later, and none was found; name one with make PYTHON=…"; exit 1; } >&2

lock:
	@$(BIN)/python -m pip install -q uv
	@$(BIN)/uv pip compile -q pyproject.toml --extra just --extra postgres --group build --universal --python-version 3.11 \
		--generate-hashes --no-header --upgrade -o requirements.lock
	@$(BIN)/uv pip compile -q pyproject.toml --extra just --extra postgres --group build --group dev -c requirements.lock \
		--universal --python-version 3.11 --generate-hashes --no-header --upgrade -o requirements-dev.lock

clean:
	rm -rf $(VENV)
