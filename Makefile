# Every target sets up .venv by itself (plain venv and pip) and again only when pyproject.toml changes.
SHELL  := /bin/bash
PYTHON ?= python3
BIN    := .venv/bin
OUT    := runs/demo
SITE   := site
METHODS = local,fed_avg,fed_prox,ftfa,rtfa,ditto,pfedme,scaffold,fed_clup

# Where the environment forbids compiled files, every start of Python compiles all it imports anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test thorough bench lint format docs site reproduce clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: .venv/.test ## compare nine methods on handwritten digits, client by client, and be advised; writes runs/demo*
	@out="$(OUT)"; n=2; while [ -e "$$out" ]; do out="$(OUT)-$$n"; n=$$((n + 1)); done; set -ex; \
	$(BIN)/apiece compare --data digits --methods $(METHODS) --rounds 100 --seeds 3 --out "$$out"; \
	$(BIN)/apiece advise digits --brief --out "$$out-advice"; \
	{ echo "The page: $$out/report.html"; } 2>/dev/null

test: .venv/.test ## run the tests that a change needs: all but the thorough and the slow ones
	$(BIN)/pytest -q -n 2 --dist worksteal

thorough: .venv/.test ## run the others that need no real data: every method's contract, every model, every verdict
	$(BIN)/pytest -q -n 2 --dist worksteal -m thorough

bench: .venv/.bench ## measure speed against PyTorch, NumPy and, where installed, pfl
	$(BIN)/python -m benchmarks speed
	$(BIN)/python -m benchmarks methods
	$(BIN)/python -m benchmarks population
	$(BIN)/python -m benchmarks server

lint: .venv/.test ## check style, format and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: .venv/.test ## mend what lint can mend by itself
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: .venv/.test ## write the pages of docs/ that are generated from the code
	$(BIN)/python -m apiece.report.reference.methods > docs/ref-methods.md.new
	mv docs/ref-methods.md.new docs/ref-methods.md
	$(BIN)/python -m apiece.report.reference.models > docs/ref-models.md.new
	mv docs/ref-models.md.new docs/ref-models.md
	$(BIN)/python -m apiece.report.reference.theory > docs/ref-theory.md.new
	mv docs/ref-theory.md.new docs/ref-theory.md
	$(BIN)/python -m apiece.report.reference.api > docs/ref-api.md.new
	mv docs/ref-api.md.new docs/ref-api.md
	$(BIN)/python -m apiece.report.reference.record > docs/record.schema.json.new
	mv docs/record.schema.json.new docs/record.schema.json
	$(BIN)/python -m apiece.report.reference.record product > docs/product.schema.json.new
	mv docs/product.schema.json.new docs/product.schema.json
	$(BIN)/python -m apiece.report.reference.record advice > docs/advice.schema.json.new
	mv docs/advice.schema.json.new docs/advice.schema.json
	$(BIN)/python -m apiece.report.reference.spec > docs/ref-spec.md.new
	mv docs/ref-spec.md.new docs/ref-spec.md
	$(BIN)/python -m apiece.reproduce.page > docs/ref-reproduction.md.new
	mv docs/ref-reproduction.md.new docs/ref-reproduction.md

site: .venv/.docs ## build the book from docs/ into site/, strictly; its notebooks are run
	$(BIN)/python -m book --out "$(SITE)"

reproduce: .venv/.test ## run the experiments of docs/ref-reproduction.md in full (hours; six need APIECE_DATA) and write it anew
	@set -e; work=$$(mktemp -d); trap 'rm -rf "$$work"' EXIT; \
	for name in $$($(BIN)/apiece reproduce --list --json | $(BIN)/python -c \
	  'import json, sys; print(*(row["name"] for row in json.load(sys.stdin)["reproductions"]))'); do \
	  echo "== $$name"; $(BIN)/apiece reproduce $$name --out $$work/$$name; \
	  mkdir -p docs/reproduction; cp $$work/$$name/verdict.json docs/reproduction/$$name.json; \
	  cp $$work/$$name/figure.png docs/reproduction/$$name.png; \
	done
	$(BIN)/python -m apiece.reproduce.page > docs/ref-reproduction.md.new
	mv docs/ref-reproduction.md.new docs/ref-reproduction.md

clean: ## remove .venv and caches (never runs/)
	rm -rf .venv .jax_cache .pytest_cache .ruff_cache .mypy_cache .hypothesis build dist site

.venv/.test: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo 'apiece needs Python 3.11 or newer; name one with: make PYTHON=/path/to/python3 ...' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo 'This Python has no venv module (on Debian and Ubuntu: apt install python3-venv).' >&2; exit 1; }
	@echo 'Installing into .venv: about a minute, once.'
	@$(PYTHON) -m venv .venv
	@$(BIN)/pip install -qq --disable-pip-version-check -e '.[test]'
	@touch $@

.venv/.docs: .venv/.test
	@echo 'Installing what the book is made with into .venv.'
	@$(BIN)/pip install -qq --disable-pip-version-check -e '.[docs]'
	@touch $@

.venv/.bench: .venv/.test
	@echo 'Installing PyTorch, the rival, into .venv.'
	@$(BIN)/pip install -qq --disable-pip-version-check -e '.[bench]'
	@$(BIN)/pip install -qq --disable-pip-version-check pfl || echo 'pfl-research does not install: no rows of it.'
	@touch $@
