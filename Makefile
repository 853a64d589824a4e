# `make` lists what there is. Every target makes the virtual environment .venv itself, also from an empty cache.

PYTHON ?= python3
PY := .venv/bin/python
RUN := .venv/bin/headway
export OMP_NUM_THREADS ?= 1
JOBS ?= 2

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.venv/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Headway needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) -V 2>&1). Name another: make PYTHON=python3.12"; exit 1; }
	test -x $(PY) || $(PYTHON) -m venv .venv
	$(PY) -m pip install --quiet -c constraints.txt -e '.[train,dev]'
	@touch $@

.PHONY: venv
venv: .venv/.ready ## the environment: .venv with everything for training and development

# ---- see it work ----

.PHONY: demo
demo: .venv/.ready ## train digits on two processes, draw samples, judge them, explain every millisecond (2 minutes)
	$(RUN) train digits --run demo --fresh --mesh.dp-shard 2
	$(RUN) sample demo
	$(RUN) evaluate demo
	$(RUN) explain runs/demo --html runs/demo/report.html

# ---- keep it right ----

.PHONY: check
check: .venv/.ready ## format, lint, types, import contracts, sizes, fast tests (< 60 s)
	.venv/bin/ruff format --check
	.venv/bin/ruff check
	.venv/bin/mypy
	.venv/bin/lint-imports
	$(PY) -m pytest tests/house tests/spec tests/stats -m "not gpu and not slow and not alone"

.PHONY: test
test: check ## everything that CI runs: check and all tests (< 25 minutes)
	$(PY) -m pytest -n $(JOBS) --dist loadfile -m "not gpu and not alone" --ignore tests/house
	$(PY) -m pytest -m "alone and not gpu" || [ $$? -eq 5 ]

.PHONY: golden
golden: .venv/.ready ## write the golden texts anew (review the diff)
	$(PY) -m pytest --update-golden -m "not gpu and not alone"

.PHONY: fix
fix: .venv/.ready ## format and repair what ruff can
	.venv/bin/ruff format
	.venv/bin/ruff check --fix

.PHONY: size
size: .venv/.ready ## code lines by room and of the training loop's import closure
	$(PY) tools/size.py

# ---- show it: each writes docs/results/NAME.json ----

.PHONY: parity
parity: .venv/.ready ## the same losses on every layout, in fp32 and fp64 (10 minutes)
	$(PY) -m headway.study.parity --out docs/results/parity.json

.PHONY: kills
kills: .venv/.ready ## killed at random moments, resumed, compared bit by bit (10 minutes)
	$(PY) -m headway.study.kills --out docs/results/kills.json

.PHONY: truth
truth: .venv/.ready ## planted delays against the breakdown
	$(PY) -m headway.study.truth --out docs/results/truth.json

.PHONY: overhead
overhead: .venv/.ready ## our loop against a bare one, and what observing costs (6 minutes)
	$(PY) -m headway.bench.overhead --out docs/results/overhead.json

.PHONY: budget
budget: .venv/.ready ## what more training of the digits recipe gives (15 minutes)
	$(PY) -m headway.study.budget --out docs/results/budget.json

.PHONY: docs
docs: .venv/.ready ## put the measurements of docs/results into the README
	$(PY) tools/results.py --write

# GPU_PYTHON: an interpreter that has torch for CUDA, pytest and hypothesis; .venv has the torch that the package index offers.
.PHONY: gpu
gpu: ## GPU tests and benchmarks; results as JSON in docs/results (GPU_PYTHON=python3 names the interpreter)
	@$(if $(GPU_PYTHON),,$(MAKE) --no-print-directory .venv/.ready)
	PYTHONPATH=src $(or $(GPU_PYTHON),$(PY)) tools/gpu.py

.PHONY: clean
clean: ## remove caches and build outputs (not .venv, not runs)
	rm -rf build src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests tools -name __pycache__ -type d -prune -exec rm -rf {} +
