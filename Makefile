# VENV names another virtual environment, PYTHON the interpreter that makes it.
VENV ?= .venv
PYTHON ?= python3

VENV_PYTHON := $(VENV)/bin/python
INSTALL := $(VENV_PYTHON) -m pip install --quiet --disable-pip-version-check
CPP_FILES = $(shell find bench include src tests examples -name '*.hpp' -o -name '*.cuh' -o -name '*.cpp' -o -name '*.cu')

.PHONY: help demo test bench build wheel hub sdist toolchain format clean

help:  ## this list
	@sed -nE 's/^([a-z]+):.*## (.*)/make \1: \2/p' $(MAKEFILE_LIST)

# Without a GPU no kernel could run, so the demo compiles none, and tests run side by side. With one
# they run in one process: they would share its memory, and each other's time.
ifeq ($(shell nvidia-smi -L 2>/dev/null | grep '^GPU')$(wildcard /dev/nvidia0),)
demo: export CUTLASS_FUSED_SKIP_KERNELS := 1
PROCESSES ?= auto
endif
PROCESSES ?= 0
# PLOT=FILE.png also draws the speed-ups.
PLOT ?=
demo: build  ## run the three models: on the GPU, or on the CPU without building a kernel
	$(VENV_PYTHON) -m cutlass_fused.demo $(if $(PLOT),--plot $(PLOT))

test: build  ## build everything and run every test that this machine can run
	@test ! -f build/build_seconds.txt || echo "build: $$(cat build/build_seconds.txt) seconds"
	$(VENV_PYTHON) -m pytest -q tests --numprocesses $(PROCESSES) --maxprocesses 4 --dist worksteal \
	  --durations 25

# To be committed, results go to bench/results/<gpu>: make bench RESULTS=bench/results/h200
# A run that was cut off goes on where it stopped.
RESULTS ?= build/bench
bench: build  ## time models, many shapes, layers, the host's part, errors, products in fp32, steps of training, epilogues, real models, chains of small layers and small models with tails against peers; needs a GPU
	$(VENV_PYTHON) -m bench.models --out $(RESULTS)
	$(VENV_PYTHON) -m bench.sweep --out $(RESULTS)
	$(VENV_PYTHON) -m bench.memory_bound --out $(RESULTS)
	$(VENV_PYTHON) -m bench.host --out $(RESULTS)
	$(VENV_PYTHON) -m bench.accuracy --out $(RESULTS)
	$(VENV_PYTHON) -m bench.products --out $(RESULTS)
	$(VENV_PYTHON) -m bench.training --out $(RESULTS)
	$(VENV_PYTHON) -m bench.epilogues --out $(RESULTS)
	$(VENV_PYTHON) -m bench.end_to_end --out $(RESULTS)
	$(VENV_PYTHON) -m bench.chains --out $(RESULTS)
	$(VENV_PYTHON) -m bench.tails --out $(RESULTS)

# It is for the CUDA of nvcc and named after it, as +cu13. VENV and CUDA_HOME choose others.
WHEELS ?= dist
wheel: toolchain  ## build a wheel for other machines, into dist/
	CUTLASS_FUSED_MANYLINUX=1 $(VENV_PYTHON) -m pip wheel --quiet --disable-pip-version-check \
	  --no-build-isolation --no-deps --wheel-dir $(WHEELS) .

# TORCH: versions such as 2.12, or stable for all: else the one that is installed.
HUB ?= dist/hub
TORCH ?=
hub: export CUTLASS_FUSED_OP_NAMESPACE ?= cutlass_fused_$(shell git rev-parse --short=7 HEAD)
hub:  ## lay a wheel out for the kernels hub, with a namespace of its own for the ops, into dist/hub
	rm -rf build/hub
	$(MAKE) wheel WHEELS=build/hub
	PYTHONPATH=src $(VENV_PYTHON) -m build_system.wheel.hub build/hub/*.whl $(HUB) $(TORCH:%=--torch=%)

sdist: toolchain  ## pack the sources, into dist/
	$(VENV_PYTHON) setup.py --quiet sdist --dist-dir $(WHEELS)

build: export CUTLASS_FUSED_CLOCK ?= 1
build: toolchain  ## build the library in place, in cutlass_fused/
	$(VENV_PYTHON) setup.py --quiet build_ext --inplace

# What is missing can change from run to run (CUTLASS_PATH, CUDA_HOME), hence no stamp.
toolchain: $(VENV)/.installed
	PYTHONPATH=src $(VENV_PYTHON) -m build_system.missing_packages | \
	  while read -r arguments; do $(INSTALL) $$arguments || exit 1; done

$(VENV)/.installed: requirements.txt
	test -x $(VENV_PYTHON) || $(PYTHON) -m venv $(VENV)
	$(INSTALL) -r $<
	touch $@

$(VENV)/.installed-format: requirements-format.txt
	test -x $(VENV_PYTHON) || $(PYTHON) -m venv $(VENV)
	$(INSTALL) -r $<
	touch $@

format: $(VENV)/.installed-format  ## format C++ and Python, and mend what the linter can
	$(VENV)/bin/clang-format -i $(CPP_FILES)
	$(VENV_PYTHON) -m ruff format .
	$(VENV_PYTHON) -m ruff check --fix .

clean:  ## remove what the build made; the virtual environment stays
	rm -rf build dist *.egg-info cutlass_fused/*.so cutlass_fused/*_kernels.bin cutlass_fused/op_namespace.txt
