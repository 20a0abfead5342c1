# The two commands of the README, `make demo` and `make test`, set up all they need by themselves.
# CONTRIBUTING.md tells when to run which loop: quick, test, .ci/run.

PYTHON ?= python3
VENV ?= .venv
EXTRAS ?= ncu,test
DEMO ?= demo
TESTS ?= not (slow or extras or browser)
ROOM ?=

BIN := $(VENV)/bin
# .ci/run has a faster one
INSTALL ?= $(BIN)/python -m pip install --quiet --disable-pip-version-check
PERFML := $(BIN)/perfml

# Tests start hundreds of processes: without what Python compiled, each compiles pandas anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo quick test portable times check bench docs release clean

help: ## Show this list
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

# The stamp is renewed when the requirements change, so that a pull never runs on old packages.
$(VENV)/.%: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("perfml needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Run: make PYTHON=python3.x") if sys.version_info < (3, 11) else 0'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "Could not make $(VENV): on Debian and Ubuntu install the package python3-venv." >&2; exit 1; }
	$(INSTALL) --constraint constraints.txt --editable '.$(if $(filter base,$*),,[$*])'
	@touch $@

RECORDED := datasets/h200-yolov4-tiny/runs
WHERE := --where precision=fp32 --where batch=1

demo: $(VENV)/.base ## Recorded H200 profiles -> ingest -> merge -> report, in a minute
	@mkdir -p $(DEMO)
	@echo "21 layers of YOLOv4-Tiny under three libraries, as recorded on an H200 (fp32, batch 1):"
	@$(PERFML) ingest $(RECORDED) --out $(DEMO)/kernels.parquet --quiet > $(DEMO)/log.txt
	@$(PERFML) merge $(DEMO)/kernels.parquet --layer 'conv_.*' --out $(DEMO)/layers.parquet --quiet >> $(DEMO)/log.txt
	@$(PERFML) report $(DEMO)/layers.parquet $(WHERE) --launches $(DEMO)/kernels.parquet --out $(DEMO)/report.html --quiet
	@echo "Next, in this folder:"
	@echo "  $(PERFML) explain $(DEMO)/layers.parquet $(WHERE) --launches $(DEMO)/kernels.parquet --baseline cublas --target cudnn"
	@echo "  $(PERFML) advise $(DEMO)/layers.parquet $(WHERE) --launches $(DEMO)/kernels.parquet --top 3"
	@echo "  $(PERFML) rank $(DEMO)/layers.parquet $(WHERE) --resamples 20"

PYTEST := $(BIN)/python -m pytest

quick: $(VENV)/.$(EXTRAS) ## The inner loop, under a minute: no test that is dear or starts a program
	$(PYTEST) -n 2 --dist worksteal -q -m 'not (slow or extras or long or process or page or browser)' tests/$(ROOM) $(PYTEST_ARGS)

# Three processes for two cores: many tests wait for programs and disks.
test: $(VENV)/.$(EXTRAS) ## The tests that need no GPU nor torch, less the slow ones; a room with ROOM=readers
	$(PYTEST) -n 3 --dist worksteal -m '$(TESTS)' tests/$(ROOM) $(PYTEST_ARGS)

# No test may depend on the last digits of one processor's arithmetic: the rooms that compute, as if
# on older processors. Features that this machine lacks anyway change nothing.
NUMERIC := modeling predict merge explain gate reproduce studies collectors/workloads
portable: $(VENV)/.$(EXTRAS) ## The tests that compute, with the arithmetic of older processors
	ATEN_CPU_CAPABILITY=default DNNL_MAX_CPU_ISA=SSE41 OPENBLAS_CORETYPE=Prescott \
	  NPY_DISABLE_CPU_FEATURES='$(NEWER) X86_V3' $(PYTEST) -q -n 2 --dist worksteal $(addprefix tests/,$(NUMERIC)) $(PYTEST_ARGS)
	ATEN_CPU_CAPABILITY=avx2 DNNL_MAX_CPU_ISA=AVX2 OPENBLAS_CORETYPE=Haswell \
	  NPY_DISABLE_CPU_FEATURES='$(NEWER)' $(PYTEST) -q -n 2 --dist worksteal $(addprefix tests/,$(NUMERIC)) $(PYTEST_ARGS)
NEWER := X86_V4 AVX512_ICL AVX512_SPR

times: $(VENV)/.$(EXTRAS) ## Which tests cost how much processor time; ROOM=readers for one room
	$(PYTEST) -q -m '$(TESTS)' --processor-times=40 tests/$(ROOM) $(PYTEST_ARGS)

# Reviewed line by line through ruff's noqa comments: processes, temporary folders, XML and markup of
# our own. B615 takes our own load_dataset for a hub's.
REVIEWED := B101,B108,B311,B314,B404,B405,B603,B606,B607,B608,B615,B704

check: $(VENV)/.check ## Lint, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/bandit -q -r perfml collectors --skip $(REVIEWED)
	$(BIN)/python tools/audit.py

bench: $(VENV)/.bench ## Speed beside the alternatives; leave the machine idle meanwhile
	$(BIN)/python -m benchmarks.run

docs: $(VENV)/.docs ## The documentation, into site/
	$(BIN)/python docs/_site/build.py site

release: $(VENV)/.check ## What is too dear for .ci/run: every extra and every target, an hour
	tools/release.sh $(VENV)

clean: ## Remove the environment and what the demo made
	rm -rf $(VENV) $(DEMO) site .pytest_cache .mypy_cache .ruff_cache .hypothesis
