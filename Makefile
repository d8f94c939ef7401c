# The short way to build; CMakeLists.txt is the long one.  `make help` lists the targets.
#   PROMPT  the question of `make run`      MODEL   a GGUF file (default: the small model in the program)
#   PREFIX  where `make install` installs   JOBS    compilers at once

JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
ASK := Ben has 60 nuts. He gives half of them to Sara. He buys 52 more. Then he sells half of them. How many nuts are left?

# Taken as they stand ($ and quotes included) and handed on through the environment.
override PROMPT := $(value PROMPT)
override MODEL := $(value MODEL)
export PROMPT MODEL ASK

# What `make run` prints on stdout is the answer alone: building talks on stderr.
# The first configuration leaves the tests out, which need more packages; `make test` turns them on, and they stay on.
FIRST = $(if $(wildcard build/CMakeCache.txt),,-DLLADA_TESTS=OFF)
CMAKE = env -u MAKEFLAGS -u MAKELEVEL cmake

.PHONY: run build test install clean help

run: build
	@build/llada run $${MODEL:+-m "$$MODEL"} -p "$${PROMPT:-$$ASK}"

build:
	@scripts/deps.sh build
	@$(CMAKE) --preset release $(FIRST) >/dev/null
	@$(CMAKE) --build build -j $(JOBS) --target llada_app >&2

test:
	@scripts/deps.sh test
	@$(CMAKE) --preset release -DLLADA_TESTS=ON >/dev/null
	@$(CMAKE) --build build -j $(JOBS)
	@ctest --test-dir build --output-on-failure -j $(JOBS)

install: build
	@$(CMAKE) --build build -j $(JOBS) --target llada_static llada_shared
	@$(CMAKE) --install build --prefix "$(PREFIX)"

clean:
	@rm -rf build build-*/

help:
	@echo 'make run [PROMPT="..."] [MODEL=file.gguf]   build what is needed and answer'
	@echo 'make build                                  the program: build/llada'
	@echo 'make test                                   build and run the tests'
	@echo 'make install [PREFIX=/usr/local]            program, library, header, pkg-config and CMake files'
	@echo 'make clean                                  remove build folders'
	@echo 'Other builds (sanitizers, clang, aarch64, ...): cmake --list-presets'
