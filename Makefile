# CI runs what you run: see .ci/run. Demo and tests need nothing but Go.
# Works with GNU make 3.81 (macOS) and later.

FUZZTIME ?= 10s

# How many random histories make soak runs, and the seed of the first.
SOAK ?= 10000
SEED ?= 1

# What the binaries print as their version.
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)

# Time of all files in a package: the commit's.
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)

# The commands of make build.
BINARIES := ./cmd/worker ./cmd/producer ./cmd/spotctl ./cmd/lab

# Where packages go, and for which processors they are; empty for all.
PACKAGES ?= dist
ARCHITECTURES ?=

# The SSH key that signs packages; empty for none.
SIGNING_KEY ?=

# A module beside this one, as a stranger's is.
EXAMPLE := examples/worker

# Debian packages of make integration: a network of their own, a page in Chromium, the model's
# checker, a machine that systemd boots.
DEBIAN_PACKAGES := iproute2 chromium spin debootstrap systemd-container dbus shellcheck

# What make nightly needs besides: promtool, the machine's own Azure CLI, Wine with a compiler,
# containers, packages of a release, and real programs as jobs.
NIGHTLY_PACKAGES := prometheus azure-cli wine wine64 gcc-mingw-w64-x86-64-posix podman runc rpm groff-base gromacs john lammps qemu-user snakemake parallel

# One mode of compilation for all but the race detector and Windows: packages that are compiled
# once serve tests, programs and releases. Without data for debuggers, which releases lack too, a
# fifth of the time is saved.
GOFLAGS ?= -trimpath -gcflags=all=-dwarf=false
CGO_ENABLED ?= 0
export GOFLAGS CGO_ENABLED

.DEFAULT_GOAL := help

# Targets run one after the other, but with AT_ONCE=1, for targets below that mostly wait. A make in
# one of their tests then knows nothing of this one.
ifdef AT_ONCE
unexport MAKEFLAGS
else
.NOTPARALLEL:
endif

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: build
build: ## build bin/worker, bin/producer, bin/spotctl and bin/lab
	go build -ldflags '-s -w -X main.version=$(VERSION) -X github.com/spotworker/spotworker/internal/workercmd.version=$(VERSION)' -o bin/ $(BINARIES)

.PHONY: package
package: ## make packages for VMs, in dist/ (WORKER=folder of a main, HANDLERS=folder with kinds.json, SIGNING_KEY=SSH key)
	@go run ./internal/vmpackage/pack -worker '$(or $(WORKER),./cmd/worker)' -handlers '$(HANDLERS)' -version '$(VERSION)' -time '$(SOURCE_DATE_EPOCH)' -out '$(PACKAGES)' -architectures '$(ARCHITECTURES)' -sign '$(SIGNING_KEY)'

.PHONY: image
image: ## make a container image of the worker in dist/, an OCI archive for amd64 and arm64; without a daemon (WORKER=folder of a main)
	@go run ./internal/vmpackage/pack -image -worker '$(or $(WORKER),./cmd/worker)' -version '$(VERSION)' -time '$(SOURCE_DATE_EPOCH)' -out '$(PACKAGES)' -architectures '$(ARCHITECTURES)'

.PHONY: release-snapshot
release-snapshot: ## make a release in out/release and publish nothing: minutes (SYSTEMS="linux windows", PROCESSORS=amd64)
	@SYSTEMS='$(SYSTEMS)' PROCESSORS='$(PROCESSORS)' tools/release.sh snapshot

.PHONY: release
release: ## make the release of the current tag, as a draft on GitHub (with GITHUB_TOKEN); the release workflow runs it
	@tools/release.sh publish

.PHONY: demo
demo: ## evict workers on a local Azure and check that no job is lost (DEMO_FLAGS=...)
	go run ./cmd/lab demo $(DEMO_FLAGS)

.PHONY: recording
recording: ## run the demo and draw it as the README's picture, docs/demo.svg (RECORDING_FLAGS=...)
	go run ./tools/recording $(RECORDING_FLAGS)

.PHONY: picture
picture: ## make the picture of spotctl web in the README, docs/web.png
	go test -tags integration -count=1 -run '^TestPicture$$' ./internal/test/integration/web -picture '$(CURDIR)/docs/web.png'

.PHONY: chaos
chaos: ## kill real workers at random and verify what happened to every job (CHAOS_FLAGS="--kills 200")
	go run ./cmd/lab chaos $(if $(CHAOS_FLAGS),$(CHAOS_FLAGS),--kills 200)

# Packages that take longest come first. Most wait more than they compute, so more of them run
# at once (-p) than there are processors.
WORKER_TESTS := ./internal/test/worker
LONGEST := ./internal/lab/up ./internal/lab/trial ./infra/scripts ./internal/program ./internal/workercmd $(addprefix $(WORKER_TESTS)/,jobs crashpoints histories)

# The engine: make race runs it with the race detector, make nightly-race all packages. Neither is in
# CI: the standard library and all modules are compiled once more for it, minutes on two cores.
RACED := $(addprefix ./internal/,delivery drain events lifecycle queue worker worker/intake)

# The race detector waits a second at the end of each process, also without a race.
GORACE ?= atexit_sleep_ms=0
export GORACE

.PHONY: test
test: ## all tests, of long ones a sample (TESTFLAGS=...)
	go test -vet=off -ldflags='-s -w' -p 6 -timeout 20m $(TESTFLAGS) $(LONGEST) ./...
	cd $(EXAMPLE) && go test -ldflags='-s -w' $(TESTFLAGS) ./...

.PHONY: race
race: ## the engine's tests with the race detector, where there is a C compiler (TESTFLAGS=...)
	@export CGO_ENABLED=1; race=$$(tools/race.sh) && set -x && go test $$race -vet=off -ldflags='-s -w' -p 4 -timeout 20m $(TESTFLAGS) $(RACED)

# What make integration runs of each component is a sample too: package proof decides.
.PHONY: integration
integration: ## a sample of the tests against real components; those without theirs are skipped (TESTFLAGS=...)
	go test -tags integration -count=1 -v -vet=off -p 6 -timeout 20m $(TESTFLAGS) $(addprefix ./internal/test/integration/,vmapp azurecli web snapshots model conformance)

# Each piece of make nightly is a target of its own: whoever changes a part runs its piece.
COMPONENTS := azurecli chaos conformance identity incidents kubernetes model product programs python snapshots tryout vmapp web wine
NIGHTLY := lint proof race windows release fuzz mutants soak kills $(COMPONENTS)

.PHONY: nightly
nightly: $(addprefix nightly-,$(NIGHTLY)) ## everything in full, hours: one piece is nightly-NAME, and "make nightly-names" lists them

.PHONY: nightly-names $(addprefix nightly-,$(NIGHTLY))
nightly-names:
	@echo $(NIGHTLY)
nightly-lint:
	@linter=$$(tools/go-tool.sh golangci-lint) && for module in . $(EXAMPLE); do \
		echo golangci-lint run in $$module && (cd $$module && "$$linter" run --allow-serial-runners) || exit 1; done && \
		echo golangci-lint run of depguard for Windows && GOOS=windows "$$linter" run --allow-serial-runners --enable-only depguard
	@echo go vet in infra/kubernetes/check && cd infra/kubernetes/check && GOFLAGS= go vet . # golangci-lint would read 950 packages
	@linter=$$(tools/go-tool.sh actionlint) && set -x && "$$linter" && "$$linter" infra/watch/github.yml
nightly-proof: # all crash points, 200 histories, hours of virtual time, gigabytes
	SPOTWORKER_PROOF=full GOGC=400 go test -vet=off -p 3 -timeout 60m $(TESTFLAGS) $(LONGEST) ./...
nightly-race:
	CGO_ENABLED=1 go test -race -vet=off -p 4 -timeout 60m $(TESTFLAGS) $(LONGEST) ./...
nightly-windows:
	GOOS=windows go vet -tags integration ./...
	for arch in amd64 arm64; do GOOS=windows GOARCH=$$arch go build -o /dev/null $(BINARIES) || exit 1; done
nightly-release: release-snapshot
nightly-fuzz: fuzz
nightly-mutants: mutants
nightly-soak: soak
nightly-kills:
	go run ./cmd/lab chaos --kills 2000 --workers 12 --per-second 6
$(addprefix nightly-,$(COMPONENTS)): nightly-%:
	SPOTWORKER_PROOF=full go test -tags integration -count=1 -v -timeout 60m $(TESTFLAGS) ./internal/test/integration/$*

.PHONY: integration-tools nightly-tools
integration-tools: ## install into .tools/ what make integration needs
	@$(MAKE) --no-print-directory AT_ONCE=1 -j 4 tool-debian tool-azure-cli tool-azurite tool-axe tool-criu
nightly-tools: integration-tools ## install what make nightly needs
	@$(MAKE) --no-print-directory AT_ONCE=1 -j 4 tool-nightly tool-goreleaser tool-linters tool-kubernetes tool-wine

# GoReleaser takes minutes to build, so it is built while packages are downloaded.
.PHONY: tool-packages tool-nightly tool-goreleaser tool-linters tool-kubernetes tool-debian tool-azure-cli tool-azurite tool-axe tool-wine tool-criu
tool-packages: ; @tools/debian-packages.sh $(DEBIAN_PACKAGES)
tool-nightly: ; @tools/debian-packages.sh $(NIGHTLY_PACKAGES)
tool-goreleaser: ; @tools/go-tool.sh goreleaser >/dev/null
tool-linters: ; @for tool in golangci-lint actionlint; do tools/go-tool.sh $$tool >/dev/null || exit 1; done
tool-kubernetes: ; @cd infra/kubernetes/check && GOFLAGS= go test -vet=off -c -o /dev/null . || echo "the test will try again" # it builds from the cache
tool-debian: tool-packages ; @tools/debian-root.sh
tool-azure-cli: tool-packages ; @tools/azure-cli.sh
tool-azurite: ; @tools/npm.sh azurite azurite/dist/src/azurite.js
tool-axe: ; @tools/npm.sh axe axe-core/axe.min.js
tool-wine: tool-nightly ; @tools/wine.sh
tool-criu: ; @tools/criu.sh

.PHONY: lint
lint: ## gofmt and go vet; make nightly-lint runs golangci-lint and actionlint
	@unformatted=$$(find . -path './.*' -prune -o -name '*.go' -print | xargs gofmt -l) || exit 1; \
		[ -z "$$unformatted" ] || { echo "not as gofmt writes it:"; echo "$$unformatted"; exit 1; }
	go vet -tags integration ./...
	cd $(EXAMPLE) && go vet ./...

# Nothing of it runs, so it is compiled as quickly as possible.
UNOPTIMIZED := 'all=-N -l -dwarf=false'

.PHONY: windows
windows: ## vet all packages and build the commands for Windows, amd64 (make nightly-windows: arm64 and integration tests too)
	GOOS=windows GOARCH=amd64 go vet -gcflags=$(UNOPTIMIZED) ./...
	GOOS=windows GOARCH=amd64 go build -gcflags=$(UNOPTIMIZED) -ldflags='-s -w' -o /dev/null $(BINARIES)

.PHONY: bicep
bicep: ## check infra/bicep: with the bicep compiler, or with the checker in BICEPCHECK
	@tools/bicep.sh

.PHONY: deploy
deploy: ## deploy to Azure, step by step; without a subscription show the commands (DEPLOY_FLAGS=--what-if)
	@tools/deploy.sh $(DEPLOY_FLAGS)

.PHONY: rehome
rehome: ## move the Spot VMs to another region, jobs included (REGION=name, or the answer of spotctl plan -o json piped in; REHOME_FLAGS=--dry-run)
	@tools/rehome.sh $(REHOME_FLAGS)

.PHONY: evict
evict: ## evict one Spot VM of the deployment, as Azure would (VM=name)
	@tools/deploy-evict.sh $(VM)

.PHONY: bench
bench: ## measure the worker beside a loop that does the same: minutes (BENCHFLAGS="--only jobs"; docs/proof.md)
	@mkdir -p out && go build -o out/bench ./bench && out/bench $(BENCHFLAGS)

.PHONY: benchmarks
benchmarks: ## Go benchmarks of single functions (BENCHFLAGS=...)
	go test -run '^$$' -bench . -benchmem $(BENCHFLAGS) ./...

.PHONY: figures
figures: ## measure 1,100 evictions, from notice to release: minutes
	go test -count=1 -v -timeout 20m -run '^TestNoticeTo' ./internal/test/worker/fleets -figures
	go test -tags integration -count=1 -v -timeout 5m -run '^TestNoticeOverLoopback$$' ./internal/test/integration/product

.PHONY: soak
soak: ## check 10,000 random histories of a fleet: minutes (SOAK=number, SEED=first)
	@tools/soak.sh $(SOAK) $(SEED)

.PHONY: mutants
mutants: ## break one rule of the worker at a time: the tests must fail
	go test -tags integration -count=1 -v -timeout 60m $(TESTFLAGS) ./internal/test/integration/mutants

.PHONY: fuzz
fuzz: ## each fuzz target for FUZZTIME (10s)
	@tools/fuzz.sh $(FUZZTIME)

.PHONY: clean
clean: ## remove what was built; .tools/ stays
	rm -rf bin dist out
