# FusionMQ. `make` alone lists what there is. Needed: Go (the version in .go-version or newer) and make; everything else is fetched.

SHELL    := /bin/bash
MODULES  := $(patsubst %/go.mod,%,$(wildcard */go.mod))
PACKAGES := $(addsuffix /...,$(addprefix ./,$(MODULES)))
# Packages whose tests run goroutines against each other; the race detector runs over these.
RACE     ?= ./store/... ./socket/... ./notify/... ./metaq/... ./sdk-go/... ./fusion/...
LINT     := golangci-lint
LINT_VERSION := v2.15.0
TOOLS    := $(CURDIR)/.tools/bin
DATA     ?= ./data
ARGS     ?=
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS  := -X github.com/fusionmq/fusionmq/fusion.linked=$(VERSION) -X github.com/fusionmq/fusionmq/ops/cli.Version=$(VERSION)
SEEDS    ?= 10
DURATION ?= 60s
FUZZTIME ?= 5s

.DEFAULT_GOAL := help
.PHONY: help build run demo test race lint fuzz mutations bench bench-store bench-compare crash roundtrip soak tidy tidy-check generate clean tools

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## bin/fusionmq and bin/fusionctl
	@mkdir -p bin
	go build -trimpath -ldflags '$(LDFLAGS)' -o bin/fusionmq ./fusion/cmd/fusionmq
	go build -trimpath -ldflags '$(LDFLAGS)' -o bin/fusionctl ./ops/cmd/fusionctl

run: build ## build and serve; DATA=./data, more flags in ARGS="..."
	exec bin/fusionmq server --data $(DATA) $(ARGS)

demo: build ## a RocketMQ client produces, the same messages arrive by push and by pull; beside `make run` or alone
	@go build -o bin/demo ./integration/demo && exec bin/demo -server bin/fusionmq $(ARGS)

test: ## every test that CI runs, with a summary; a skipped test is a failure
	go run ./integration/gotest $(ARGS) $(PACKAGES)

race: ## the race detector over the packages with goroutines (RACE="./store/...")
	go run ./integration/gotest -race $(ARGS) $(RACE)

lint: $(TOOLS)/$(LINT)-$(LINT_VERSION) ## gofmt and golangci-lint over every module
	@scripts/lint $(TOOLS)/$(LINT)-$(LINT_VERSION) $(MODULES)

fuzz: ## every fuzz target for FUZZTIME=5s
	@scripts/fuzz $(FUZZTIME) $(MODULES)

mutations: ## break the store on purpose, a line at a time: the test that is named after the law has to fail (ARGS="-small", "-only REGEXP")
	go run ./integration/mutations $(ARGS)

bench: build ## every budget of this stage beside its baseline; PEER=rocketmq,nats also runs Apache RocketMQ (needs Java and Maven) and NATS JetStream
	@go build -o bin/bench ./integration/bench && exec bin/bench -server bin/fusionmq -peer "$(PEER)" $(ARGS)

bench-store: build ## every budget of the store beside its baseline: appends, publishes, exchange, MariaDB, 10,000 topics, groups, start, memory
	@go build -o bin/bench ./integration/bench && exec bin/bench -server bin/fusionmq -only '^(store|groups|topics|start|memory)$$' $(ARGS)

bench-compare: ## go benchmarks of REF= against the working tree (PKG=./store/log BENCH=Append)
	@scripts/bench-compare "$(REF)" "$(PKG)" "$(BENCH)"

crash: ## kill -9 under 100,000 sends, again and again on one store, and power cuts in process, SEEDS=10 printed seeds each
	go test ./store -run 'TestLaw4|TestLaw5Waiting' -count=1 -timeout 60m -crash.seeds=$$((5 * $(SEEDS))) -crash.kills=$$((5 * $(SEEDS))) -crash.waiting=$$((20 * $(SEEDS))) -crash.all=$$((2000 * $(SEEDS)))
	go test ./store/check -run 'TestEvery' -count=1 -check.each=1 -timeout 60m
	NOTIFY_SEEDS=$(SEEDS) go test ./notify -run 'TestLaw5' -count=1
	CRASH_SEEDS=$(SEEDS) go test ./integration/crash -run Law -count=1 -v -timeout 60m

roundtrip: build ## a directory of real Apache brokers 4.9.7 and 5.3.3, stopped and killed, to FusionMQ and back to 5.3.3, about two minutes; needs Java and Maven, no part of `make test`
	FUSIONMQ_BIN=$(CURDIR)/bin/fusionmq FUSIONCTL_BIN=$(CURDIR)/bin/fusionctl go run ./integration/roundtrip $(ARGS)

soak: ## produce, pull, push and restarts for DURATION=60s
	SOAK_DURATION=$(DURATION) go test ./integration/crash -run Soak -count=1 -v -timeout 24h

tidy: ## go mod tidy in every module, and one version of each dependency over all
	@scripts/tidy $(MODULES)

tidy-check: ## modules tidy, buildable alone, in step with go.work, one version of each dependency
	@scripts/tidy-check $(MODULES)

generate: ## go generate, then the working tree must be as it was
	@before=$$(git status --porcelain); go generate $(PACKAGES) && [ "$$before" = "$$(git status --porcelain)" ] || { git status --short; exit 1; }

tools: $(TOOLS)/$(LINT)-$(LINT_VERSION) ## fetch the pinned tools into .tools/

$(TOOLS)/$(LINT)-$(LINT_VERSION):
	GOBIN=$(TOOLS) GOWORK=off GOFLAGS= go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION)
	@mv $(TOOLS)/$(LINT) $@

clean: ## remove what was built; data stays
	rm -rf bin .tools
