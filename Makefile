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

# Modules beside this one, as a stranger's are.
EXAMPLES := $(patsubst %/,%,$(dir $(wildcard examples/*/go.mod)))

# Debian packages that integration tests need: iproute2 for a network of their
# own, chromium for the page of spotctl web, spin for the model, prometheus for promtool, azure-cli to evict workers, wine and mingw to run Windows
# programs, podman and runc to run the image, gromacs, john and lammps as jobs (qemu-user where the processor is too old for them), the others for a machine that systemd boots and for what is installed
# there.
DEBIAN_PACKAGES := iproute2 gromacs john lammps qemu-user spin prometheus azure-cli wine wine64 gcc-mingw-w64-x86-64-posix debootstrap systemd-container dbus shellcheck chromium rpm groff-base podman runc

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
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w -X main.version=$(VERSION) -X github.com/spotworker/spotworker/internal/workercmd.version=$(VERSION)' -o bin/ $(BINARIES)

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

# Packages that take longest go first, here and in integration: the others run beside them.
# Four at once, since many tests wait. Packages that only read files of the repository, or run
# its scripts, run without the race detector. So do tests that only compute, most of them in
# virtual time, and the command lines, which are hundreds of short processes: make proof runs both
# with it. The same worker runs under it here in the crash points and histories. A package for VMs
# is compressed by one goroutine, seven times slower with it.
WORKER_TESTS := ./internal/test/worker
LONGEST := $(addprefix $(WORKER_TESTS)/,evictions crashpoints hostile jobs fleets histories outages) ./internal/workercmd ./internal/program ./internal/lab/up
COMMANDS := ./cmd/spotctl ./cmd/producer
COMPUTE := $(addprefix $(WORKER_TESTS)/,evictions hostile fleets outages) $(addprefix ./internal/,checkpoint program/archive operate replay delivery/deadline) ./cmd/spotctl/internal/costs/plan
WITHOUT_RACE := $(COMPUTE) ./infra/policy ./infra/scripts ./internal/test/architecture ./internal/vmpackage $(COMMANDS)

# The race detector waits a second at the end of each process, also without a race.
GORACE ?= atexit_sleep_ms=0
export GORACE

# Most packages wait more than they compute, so more of them run at once (-p) than there are
# processors. The longest come first.
.PHONY: test
test: ## go vet and tests, of long ones a sample, with the race detector where there is a C compiler (TESTFLAGS=...)
	go vet ./...
	@race=$$(tools/race.sh) && others=$$(go list ./... | grep -v $(patsubst .%,-e %$$,$(WITHOUT_RACE))) && \
		echo "+ go test $$race on all packages but $(WITHOUT_RACE)" && \
		go test $$race -vet=off -p 8 -timeout 30m $(TESTFLAGS) $(filter-out $(WITHOUT_RACE),$(LONGEST)) $$others && set -x && \
		go test -vet=off -p 4 -timeout 30m $(TESTFLAGS) $(WITHOUT_RACE)
	@race=$$(tools/race.sh 2>/dev/null) && for module in $(EXAMPLES); do \
		(set -x && cd $$module && go vet ./... && go test $$race $(TESTFLAGS) ./...) || exit 1; done

# The parts of proof: workers in virtual time, which need a processor and no time, so that CI runs
# them beside other tests; tests in real time; and the rest of COMPUTE with the race detector, whose
# code other tests run with it: CI leaves that to the nightly run.
PROOF ?= virtual real race
RACED := $(addprefix ./internal/,checkpoint program/archive)

.PHONY: proof
proof: $(addprefix proof-,$(PROOF)) ## long tests in full: all crash points, 200 histories, hours of virtual time, gigabytes (TESTFLAGS=...)

.PHONY: proof-virtual proof-real proof-real-full proof-real-commands proof-race
proof-virtual:
	@list=$$(go run ./internal/test/proof/prooftests -in internal/test/worker $(LONGEST)) && race=$$(tools/race.sh) && set -x && \
		SPOTWORKER_PROOF=full GOGC=400 go test -vet=off -timeout 60m $$list $(TESTFLAGS) && \
		GOGC=400 go test $$race -vet=off -timeout 60m $(TESTFLAGS) $(RACED)
proof-real:
	@$(MAKE) --no-print-directory AT_ONCE=1 -j 2 proof-real-full proof-real-commands
proof-real-full:
	@list=$$(go run ./internal/test/proof/prooftests -out internal/test/worker $(LONGEST)) && set -x && \
		SPOTWORKER_PROOF=full go test -vet=off -p 6 -timeout 30m $$list $(TESTFLAGS)
proof-real-commands:
	@race=$$(tools/race.sh) && set -x && \
		go test $$race -vet=off -timeout 30m $(TESTFLAGS) $(COMMANDS)
proof-race:
	@race=$$(tools/race.sh) && set -x && \
		GOGC=400 go test $$race -vet=off -timeout 60m $(TESTFLAGS) $(filter-out $(RACED),$(COMPUTE))

.PHONY: integration
integration: ## tests against real components; those without theirs are skipped (TESTFLAGS=...)
	go test -tags integration -count=1 -v -p 5 -timeout 45m $(TESTFLAGS) $(addprefix ./internal/test/integration/,vmapp model azurecli tryout web wine ...)

.PHONY: integration-tools
integration-tools: ## install into .tools/ what integration tests and lint need
	@$(MAKE) --no-print-directory AT_ONCE=1 -j 4 tool-packages tool-goreleaser tool-linters tool-kubernetes tool-debian tool-azure-cli tool-azurite tool-axe tool-wine tool-criu

# GoReleaser takes minutes to build, so it is built while packages are downloaded.
.PHONY: tool-packages tool-goreleaser tool-linters tool-kubernetes tool-debian tool-azure-cli tool-azurite tool-axe tool-wine tool-criu
tool-packages: ; @tools/debian-packages.sh $(DEBIAN_PACKAGES)
tool-goreleaser: ; @tools/go-tool.sh goreleaser >/dev/null
tool-linters: ; @for tool in golangci-lint actionlint; do tools/go-tool.sh $$tool >/dev/null || exit 1; done
tool-kubernetes: ; @cd infra/kubernetes/check && GOFLAGS= go build -o /dev/null . || echo "the test will try again" # it builds from the cache
tool-debian: tool-packages ; @tools/debian-root.sh
tool-azure-cli: tool-packages ; @tools/azure-cli.sh
tool-azurite: tool-packages ; @tools/npm.sh azurite azurite/dist/src/azurite.js
tool-axe: tool-packages ; @tools/npm.sh axe axe-core/axe.min.js
tool-wine: tool-packages ; @tools/wine.sh
tool-criu: ; @tools/criu.sh

.PHONY: lint
lint: ## gofmt, golangci-lint with go vet's checks, and actionlint; it installs into .tools/ what is missing
	@unformatted=$$(find . -path './.*' -prune -o -name '*.go' -print | xargs gofmt -l) || exit 1; \
		[ -z "$$unformatted" ] || { echo "not as gofmt writes it:"; echo "$$unformatted"; exit 1; }
	@linter=$$(tools/go-tool.sh golangci-lint) && for module in . $(EXAMPLES); do \
		echo golangci-lint run in $$module && (cd $$module && "$$linter" run --allow-serial-runners) || exit 1; done
	@echo go vet in infra/kubernetes/check && cd infra/kubernetes/check && GOFLAGS= go vet . # golangci-lint would read 950 packages
	@linter=$$(tools/go-tool.sh actionlint) && set -x && "$$linter"

.PHONY: windows
windows: ## build the commands for Windows, amd64 and arm64, and vet all with tests (no file is for one processor alone)
	GOOS=windows GOARCH=amd64 go vet ./...
	for arch in amd64 arm64; do GOOS=windows GOARCH=$$arch go build -o /dev/null $(BINARIES) || exit 1; done

.PHONY: bicep
bicep: ## check infra/bicep: with the bicep compiler, or with the checker in BICEPCHECK
	@tools/bicep.sh

.PHONY: deploy
deploy: ## deploy to Azure, step by step; without a subscription show the commands (DEPLOY_FLAGS=--what-if)
	@tools/deploy.sh $(DEPLOY_FLAGS)

.PHONY: evict
evict: ## evict one Spot VM of the deployment, as Azure would (VM=name)
	@tools/deploy-evict.sh $(VM)

.PHONY: bench
bench: ## measure the worker beside loops and peers that do the same: minutes (BENCHFLAGS="--only jobs"; docs/performance.md)
	@mkdir -p out && go build -o out/bench ./bench && out/bench $(BENCHFLAGS)

.PHONY: benchmarks
benchmarks: ## Go benchmarks of single functions (BENCHFLAGS=...)
	go test -run '^$$' -bench . -benchmem $(BENCHFLAGS) ./...

.PHONY: figures
figures: ## measure 1,100 evictions, from notice to release: minutes
	go test -count=1 -v -timeout 10m -run '^TestNoticeTo' ./internal/test/worker/fleets -figures
	go test -tags integration -count=1 -v -timeout 5m -run '^TestNoticeOverLoopback$$' ./internal/test/integration/product

.PHONY: soak
soak: ## check 10,000 random histories of a fleet: minutes (SOAK=number, SEED=first)
	@tools/soak.sh $(SOAK) $(SEED)

.PHONY: mutants
mutants: ## break one rule of the worker at a time, the tests must fail; or make all generated mistakes in PACKAGE=./internal/queue
ifdef PACKAGE
	go run ./internal/test/mutation/mutate $(MUTANTFLAGS) $(PACKAGE)
else
	go test -tags integration -count=1 -v -timeout 30m ./internal/test/integration/mutants -all
endif

# How many random mistakes mutants-sample makes, and the percentage that the tests must notice.
SAMPLE ?= 100
SAMPLE_FLOOR ?= 55
.PHONY: mutants-sample
mutants-sample: ## make random mistakes in the packages of internal/test/mutation/baseline.json: 3 minutes (SAMPLE=100)
	go run ./internal/test/mutation/mutate -random $(SAMPLE) -each 2s -limit 3m -floor $(SAMPLE_FLOOR) $(MUTANTFLAGS)

.PHONY: fuzz
fuzz: ## each fuzz target for FUZZTIME (10s)
	@tools/fuzz.sh $(FUZZTIME)

.PHONY: clean
clean: ## remove what was built; .tools/ stays
	rm -rf bin dist out
