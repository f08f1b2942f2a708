# Builds, runs and tests Mortise. `make help` lists what is for every day; `make -C verify help` and `make -C packaging help` list the rest.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build

PORT ?= 6379
SERVER := $(or $(MORTISE_SERVER),redis-server)
PREFIX ?= /usr/local

# redis.conf names the module in cargo's default place; from elsewhere it is copied there.
BUILT := $(abspath $(or $(CARGO_TARGET_DIR),target))/release/libmortise.so
MODULE := $(abspath target/release/libmortise.so)
# Two servers must not write to one append-only file. The module's relative path there holds in each of these folders.
DATA := $(abspath target/run$(if $(filter-out 6379,$(PORT)),-$(PORT)))

# Where rustup puts cargo; a shell that is no login shell may not know it.
export PATH := $(PATH):$(HOME)/.cargo/bin
export MORTISE_MODULE := $(MODULE)

.PHONY: help
help:
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo "and more: make -C verify help, make -C packaging help"

.PHONY: setup
setup:
	@scripts/setup $(SETUP)

# The tests need more than the module.
test: SETUP := tests

.PHONY: build
build: setup ## Build the module, target/release/libmortise.so (the default); installs what is missing
	cargo build --release --package mortise
	@if [[ $(BUILT) != $(MODULE) ]]; then install -D $(BUILT) $(MODULE); fi

.PHONY: run
run: port-is-free build ## Start a server with the module in the foreground: make run [PORT=6379]
	@mkdir -p target/run $(DATA)
	$(SERVER) ./redis.conf --port $(PORT) --dir $(DATA)

.PHONY: port-is-free
port-is-free:
	@if (exec 3<>/dev/tcp/127.0.0.1/$(PORT)) 2>/dev/null; then \
	    echo "Port $(PORT) is in use. Stop what listens there, or take another: make run PORT=$$(($(PORT) + 1))" >&2; \
	    exit 1; \
	fi

# Side by side, because the last step of the module's build keeps only one core busy, for half a minute.
.PHONY: test
test: setup ## Run all tests
	@$(MAKE) --no-print-directory --jobs 2 build test-programs
	scripts/test

.PHONY: test-programs
test-programs: setup
	@scripts/test --build

.PHONY: lint
lint: setup ## Run clippy, and check that the documentation of the code builds
	cargo clippy --workspace --all-targets -- -D warnings
	cargo clippy --package mortise-client --all-features --all-targets -- -D warnings
	cargo clippy --package mortise-bench --features clients -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --package mortise-core --package mortise-client --all-features

.PHONY: bench
bench: build ## Run the benchmarks: make bench [ARGS="clients --quick"] [ARGS="contention --write"] [ARGS=peers]
ifeq ($(firstword $(ARGS)),peers)
	@WITHOUT="$(WITHOUT)" benches/peers/run $(wordlist 2,$(words $(ARGS)),$(ARGS))
else
	cargo run --profile measure --package mortise-bench --features clients -- $(ARGS)
endif

.PHONY: top
top: setup ## Watch the locks of a server in the terminal: make top [ARGS="redis://127.0.0.1:6379/"]
	cargo run --profile measure --package mortise-top -- $(ARGS)

# Nothing is built here, because root installs, and another user builds.
.PHONY: install
install: ## Install what make has built, and print how to load it: make install [PREFIX=/usr/local] [DESTDIR=…]
	@packaging/scripts/install $(MODULE) $(PREFIX) $(DESTDIR)

.PHONY: uninstall
uninstall: ## Remove what was installed there
	@packaging/scripts/install --remove $(PREFIX) $(DESTDIR)

.PHONY: book
book: ## Build the documentation as a book, and the first time mdbook as well: target/book/index.html
	@scripts/book

.PHONY: fmt
fmt:
	cargo fmt --all

.PHONY: clean
clean:
	cargo clean
	rm -rf target
