# `make` alone lists the targets. Each installs what it needs by itself; without a DATABASE_URL, in the environment or in
# .env, each works on a private PostgreSQL in .data/postgres.

.DEFAULT_GOAL := help
.PHONY: help install migrate rollback dev start demo test chaos bench check format schema stop-postgres clean reset

# The repository's own Node comes first, whatever the system's. Said to the shell rather than to make: GNU Make 3.81 (macOS)
# does not heed its own PATH when it looks for a command. With `exec` no shell stands between a signal and its receiver.
bin := export PATH="$(CURDIR)/node_modules/.bin:$$PATH"; exec
ts := $(bin) node --import tsx
run := $(ts) scripts/run.ts
installed := node_modules/.stamp

# Which test files `make test` runs.
only ?= 'test/**/*.test.ts'

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

install: $(installed) ## Install the packages of package-lock.json

# npm runs on the system's Node: the one in node_modules is what it replaces. Its warnings that this Node is too old for some
# packages do not matter then, and its errors still show. The link to the repository's Node is made here, since npm before 11
# leaves it out where packages for several platforms name the same program; and it is not made where that Node cannot run.
node_is_new := node -e 'const [a, b] = process.versions.node.split("."); process.exit(a > 22 || (a == 22 && b >= 12) ? 0 : 1)'
$(installed): package.json package-lock.json
	@echo "installing packages"
	@npm ci --no-progress --loglevel=error > /dev/null
	@for node in node_modules/node-*/bin/node; do \
	  if "$$node" --version > /dev/null 2>&1; then ln -sf "../$${node#node_modules/}" node_modules/.bin/node; \
	  else rm -f node_modules/.bin/node; fi; \
	done
	@($(bin) $(node_is_new)) || { echo "this platform has no Node among the packages: install 22.12 or newer" >&2; exit 1; }
	@$(bin) node scripts/patch-driver.mjs
	@touch $(installed)

migrate: $(installed) ## Bring the database to the current schema; creates it if need be
	@$(run) -- node --import tsx scripts/migrate.ts

rollback: $(installed) ## Take the latest migration back
	@$(run) -- node --import tsx scripts/migrate.ts rollback

dev: $(installed) ## Run the service, with a PostgreSQL if none is given; Ctrl-C lets it finish its work
	@$(run) -- node --import tsx src/main.ts

start: $(installed) ## Run the service alone, on DATABASE_URL
	@$(bin) node $(if $(wildcard .env),--env-file=.env) --import tsx src/main.ts

demo: $(installed) ## Show a whole conversation with the service
	@$(run) -- node --import tsx scripts/demo.ts

test: $(installed) ## Run the tests on TEST_DATABASE_URL's server, or DATABASE_URL's; only=FILES for some
	@$(run) --test -- node --import tsx --test --test-concurrency=2 --test-timeout=600000 $(only)

chaos: $(installed) ## Random faults for CHAOS_SECONDS (60), repeatable by CHAOS_SEED; checks every invariant at the end
	@$(run) --test -- node --import tsx test/crash/chaos.ts

bench: $(installed) ## Measure against other engines, on databases of its own; BENCH=full, only=MEASURES, contenders=NAMES
	@$(run) -- node --import tsx bench/main.ts

check: $(installed) ## Check types, style, and that db/schema.sql is what the migrations make
	@$(bin) tsc --noEmit
	@$(bin) biome check --error-on-warnings
	@$(run) -- node --import tsx scripts/dump-schema.ts --check

format: $(installed) ## Format the sources, and mend what can be mended safely
	@$(bin) biome check --write

schema: $(installed) ## Write db/schema.sql from the migrations; needs pg_dump
	@$(run) -- node --import tsx scripts/dump-schema.ts

stop-postgres: $(installed) ## Stop the private PostgreSQL that a killed command has left running
	@$(ts) scripts/embedded-postgres.ts stop

clean: ## Remove the installed packages
	@rm -rf node_modules
	@if [ -d .data ]; then echo "the private PostgreSQL's data stays in .data: make reset deletes it"; fi

reset: stop-postgres ## Stop the private PostgreSQL and delete its data
	@rm -rf .data
	@echo ".data is deleted"
