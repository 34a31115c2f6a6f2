# Everything runs in .venv, which is made at first use. PYTHON chooses the interpreter.
PYTHON ?= python3
V := .venv/bin
WORKERS ?= 2
# OpenCL runs on PoCL from a wheel, which exists for Linux on x86_64; elsewhere those tests are skipped. There, too,
# NVRTC's wheel compiles every kernel for CUDA without a GPU: CuPy brings no compiler.
EXTRAS ?= opencl,plot,test$(if $(filter Linux-x86_64,$(shell uname -s)-$(shell uname -m)),$(comma)nvrtc)
comma := ,
# The demo needs less, so that it begins sooner.
DEMO_EXTRAS ?= opencl,plot

# The tests start a hundred processes. Without bytecode, which pip does not compile here, each would parse every module.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test lint docs pages gallery races clean

demo: .venv/demo
	@$(V)/particlemesh demo

# Workers have no cores to spare for threads of linear algebra.
test: .venv/ready
	OPENBLAS_NUM_THREADS=1 $(V)/python -m pytest -n $(WORKERS) -q

# What CI runs beside the tests.
lint: .venv/lint
	$(V)/ruff check .
	$(V)/ruff format --check .
	$(V)/mypy

docs: pages

# Warnings are errors.
pages: .venv/docs
	$(V)/sphinx-build -W -q -b html docs docs/_build

# The same pages; the examples of the gallery run, are checked and leave their pictures.
gallery: .venv/docs
	$(V)/sphinx-build -W -q -D plot_gallery=1 -b html docs docs/_build

# Races and bad addresses in every method's kernels; without oclgrind it says so and ends.
races: .venv/ready
	$(V)/python tools/races

.venv/demo: pyproject.toml tools/environment
	@[ .venv/ready -nt pyproject.toml ] || tools/environment "$(PYTHON)" ".[$(DEMO_EXTRAS)]"
	@touch $@

.venv/ready: pyproject.toml tools/environment
	tools/environment "$(PYTHON)" ".[$(EXTRAS)]"
	@touch $@

# All of CI in one step: each resolves anew, and builds the package.
.venv/all: pyproject.toml tools/environment
	tools/environment "$(PYTHON)" ".[$(EXTRAS),lint,docs]"
	@touch .venv/ready .venv/lint .venv/docs $@

.venv/lint: .venv/ready
	tools/environment "$(PYTHON)" ".[lint]"
	@touch $@

.venv/docs: .venv/ready
	tools/environment "$(PYTHON)" ".[docs]"
	@touch $@

clean:
	rm -rf .venv docs/_build docs/gallery out .pytest_cache .mypy_cache .ruff_cache
