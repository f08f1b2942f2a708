# Builds, runs and tests Mortise. `make help` lists the targets.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build

PORT ?= 6379
SERVER := $(or $(MORTISE_SERVER),redis-server)
SERVERS ?= $(shell scripts/servers names)
PREFIX ?= /usr/local

# redis.conf names the module in cargo's default place; from elsewhere it is copied there.
BUILT := $(abspath $(or $(CARGO_TARGET_DIR),target))/release/libmortise.so
MODULE := $(abspath target/release/libmortise.so)
# Two servers must not write to one append-only file. The module's relative path there holds in each of these folders.
DATA := $(abspath target/run$(if $(filter-out 6379,$(PORT)),-$(PORT)))
TOOLS := $(dir $(MODULE))

# Where rustup puts cargo; a shell that is no login shell may not know it.
export PATH := $(PATH):$(HOME)/.cargo/bin
export MORTISE_MODULE := $(MODULE)

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## Install what building and running need, if missing
	@scripts/setup $(SETUP)

# The tests need more than the module.
test test-servers valgrind mutants mutations fuzz: SETUP := tests

.PHONY: build
build: setup ## Build the module: target/release/libmortise.so (the default)
	cargo build --release --package mortise
	@if [[ $(BUILT) != $(MODULE) ]]; then install -D $(BUILT) $(MODULE); fi

.PHONY: run
run: port-is-free build ## Start a server with the module in the foreground: make run [PORT=6379]
	@mkdir -p target/run $(DATA)
	$(SERVER) ./redis.conf --port $(PORT) --dir $(DATA)

.PHONY: top
top: setup ## Watch the locks of a server in the terminal: make top [ARGS="redis://127.0.0.1:6379/"]
	cargo run --profile measure --package mortise-top -- $(ARGS)

.PHONY: port-is-free
port-is-free:
	@if (exec 3<>/dev/tcp/127.0.0.1/$(PORT)) 2>/dev/null; then \
	    echo "Port $(PORT) is in use. Stop what listens there, or take another: make run PORT=$$(($(PORT) + 1))" >&2; \
	    exit 1; \
	fi

# Side by side, because the last step of the module's build keeps only one core busy, for half a minute.
.PHONY: test
test: setup ## Run all tests
	@scripts/mutants --check
	@$(MAKE) --no-print-directory --jobs 2 build test-programs
	scripts/test

.PHONY: mutants
mutants: setup ## Take protections out of a copy, one at a time, and see their tests fail: make mutants [ARGS="NAME …"] [ARGS=--check]
	@scripts/mutants $(ARGS)

.PHONY: mutations
mutations: setup ## Run the tests with each mutation that cargo-mutants makes up: make mutations [AREAS="core lock"]
	@scripts/mutations $(or $(AREAS),core wire lock quorum)

.PHONY: valgrind
valgrind: build ## Run tests with servers whose memory valgrind watches: make valgrind [PROGRAMS="mail guard"]
	@scripts/valgrind $(PROGRAMS)

.PHONY: fuzz
fuzz: setup ## Fuzz decoders, arguments and whole programs, guided by coverage: make fuzz [MINUTES=60] [TARGETS="replies"]
	@scripts/fuzz $$(($(or $(MINUTES),1) * 60)) $(TARGETS)

.PHONY: test-programs
test-programs: setup
	@scripts/test --build

.PHONY: test-servers
test-servers: build ## Run the tests against each server: make test-servers [SERVERS="redis-sid valkey-sid"]
	@for name in $(SERVERS); do \
	    scripts/servers path $$name >/dev/null 2>&1 || scripts/servers fetch $$name; \
	done
	@failed=; \
	for name in $(SERVERS); do \
	    echo "== $$name"; \
	    export MORTISE_SERVER=$$(scripts/servers path $$name); \
	    scripts/test --exclude mortise-core --exclude mortise-client-model --exclude mortise-client-simulation || failed+=" $$name"; \
	done; \
	if [[ -n $$failed ]]; then echo "Failed on:$$failed" >&2; exit 1; fi

.PHONY: proof
proof: build ## Search for two holders inside one lock while servers, links and clients fail: make proof [MINUTES=30] [ARGS="--seed 1 replicas"]
	cargo run --profile measure --package mortise-proof --features peers -- $(if $(MINUTES),--minutes $(MINUTES)) $(ARGS)

.PHONY: haul
haul: build ## Take and release a million locks a minute for an hour: make haul [MINUTES=60] [ARGS=--write]
	cargo run --profile measure --package mortise-proof -- haul $(if $(MINUTES),--minutes $(MINUTES)) $(ARGS)

.PHONY: interop
interop: build ## Run the other languages' lock libraries, and all together: make interop [WITHOUT="java go"]
	@WITHOUT="$(WITHOUT)" scripts/interop $(ARGS)

.PHONY: pages
pages: build ## Run the Go and Java examples of docs/migrating with the old libraries: make pages [WITHOUT=java]
	@WITHOUT="$(WITHOUT)" benches/peers/pages

.PHONY: tools
tools: setup ## Build mortise-top in target/release
	cargo build --release --package mortise-top
	@if [[ $(TOOLS) != $(dir $(BUILT)) ]]; then \
	    install -D -t $(TOOLS) $(dir $(BUILT))mortise-top; \
	fi

.PHONY: bench
bench: build ## Run the benchmarks: make bench [ARGS="clients --quick"] [ARGS="contention --write"] [ARGS=peers]
ifeq ($(firstword $(ARGS)),peers)
	@WITHOUT="$(WITHOUT)" benches/peers/run $(wordlist 2,$(words $(ARGS)),$(ARGS))
else
	cargo run --profile measure --package mortise-bench --features clients -- $(ARGS)
endif

.PHONY: book
book: ## Build the documentation as a book, and the first time mdbook as well: target/book/index.html
	@scripts/book

# Nothing is built here, because root installs, and another user builds.
.PHONY: install
install: ## Install what make has built, and check that it loads: make install [PREFIX=/usr/local] [DESTDIR=…] [CHECK=no]
	@scripts/install $(MODULE) $(PREFIX) $(DESTDIR)
	@if [[ "$(CHECK)" != no ]]; then $(DESTDIR)$(PREFIX)/sbin/mortise-module check $(MORTISE_SERVER); fi

.PHONY: install-tools
install-tools: ## Install what make tools has built: make install-tools [PREFIX=/usr/local] [DESTDIR=…]
	@scripts/install --tools $(TOOLS) $(PREFIX) $(DESTDIR)

.PHONY: uninstall
uninstall: ## Remove what make install and make install-tools have installed there
	@scripts/install --remove $(PREFIX) $(DESTDIR)

.PHONY: deb
deb: setup ## Build Debian packages: target/deb/mortise_….deb, and mortise-tools_….deb
	@scripts/deb $$(scripts/dist)

.PHONY: deb-test
deb-test: ## Install, use, upgrade and remove the packages in a Debian of their own: make deb-test [SYSTEMS="bookworm"]
	@scripts/test-deb $(SYSTEMS)

.PHONY: release
release: setup ## Pack an archive of what was built: target/release-archive [ARGS=--twice compares two builds]
	@scripts/release $(ARGS)

.PHONY: packages
packages: setup ## Check that the packages of all languages can be published, without publishing: make packages [WITHOUT="java go"]
	@WITHOUT="$(WITHOUT)" scripts/packages

.PHONY: manifests
manifests: ## Check packaging/kubernetes against Kubernetes's schemas
	@scripts/manifests

.PHONY: deny
deny: setup ## Check licences and advisories of all dependencies, with cargo-deny
	cargo deny --workspace check
	cargo deny --manifest-path verify/fuzz/Cargo.toml check

.PHONY: fmt
fmt: ## Format the code
	cargo fmt --all

.PHONY: lint
lint: setup ## Check that no files use each other in a circle, the code with clippy, and that the documentation builds
	scripts/circles
	cargo clippy --workspace --all-targets -- -D warnings
	cargo clippy --package mortise-client --all-features --all-targets -- -D warnings
	cargo clippy --package mortise-bench --features clients -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --package mortise-core --package mortise-client --all-features

.PHONY: clean
clean: ## Remove target/: what was built, the servers fetched and the data of make run
	cargo clean
	rm -rf target
