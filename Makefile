# Everything runs from the environment in $(VENV), which the first target that needs it makes (constraints/install.py).
#
# Only variables written on make's command line count: the same names in the user's shell (ENV, K, JOBS, ...) are
# ignored. Their values reach the program as data, through the environment and never through the text of a recipe, so
# that spaces, brackets, quotes, `;` and `$(...)` mean nothing to make or to the shell.

SHELL = /bin/sh

VENV = .venv
PYTHON = $(VENV)/bin/python
STALEHARNESS = $(PYTHON) -m staleharness
STAMP = $(VENV)/staleharness-setup.json
$(if $(strip $(VENV)),,$(error VENV= is empty; name a folder, or leave it out))
$(if $(word 2,x$(VENV)x),$(error VENV=$(VENV) has a blank in it; name a folder without one))
ARGS =

SETUP_VALUES = PY TORCH EXTRAS
VALUES = ENV K ALGO SEEDS STEPS PRESET JOBS RUNNER RUNS_PER_GPU MEMORY SLURM DEVICE OUT LAG MISMATCH SET PLUGIN SPEC NORMALISE SCORE N MODEL DATA KIND NAME FOLDER PAPER FIG SCALE A B TO SEED RESULTS CAP LOG WHERE COLUMNS UNIT BATCH UPDATES KEEP ZERO TRACK ADD CODE
SWITCHES = DRY LIST PROBE JSON RESTART QUICK ONE_RATE

OFF = 0 no No NO off Off OFF false False FALSE

given = $(strip $(foreach v,$(1),$(if $(filter command,$(firstword $(origin $v))),$v)))
# the value of a variable that is given, or else nothing
value_of = $(if $(call given,$(1)),$(value $(1)))
lower = $(shell printf '%s' '$(1)' | tr A-Z_ a-z-)
# `--env="$ARG_ENV"` for each value given, `--dry` for each switch that is on.
flags = $(foreach v,$(call given,$(filter $(VALUES) $(SETUP_VALUES),$(1))),--$(call lower,$v)="$$ARG_$v") \
	$(foreach v,$(call given,$(filter $(SWITCHES),$(1))),$(if $(filter-out $(OFF),$(value $v)),--$(call lower,$v)))

# The same for a target, which refuses other variables on the command line, where they would change nothing: $(2) are those
# that it passes on in another way. With several targets each takes what is its own. Names with an underscore are for the
# environment (OMP_NUM_THREADS), unless they begin like one of ours (DRY_RUN).
OTHERS = VENV ARGS PYTHON STALEHARNESS SHELL CC CXX TMPDIR PARALLEL BENCHMARKS FAULTS $(SETUP_VALUES)
OURS = $(filter-out SLURM,$(VALUES) $(SWITCHES) $(SETUP_VALUES)) RUN RUNS ONE
is_ours = $(if $(findstring _,$(1)),$(filter $(OURS),$(firstword $(subst _, ,$(1)))),$(1))
typed = $(foreach v,$(.VARIABLES),$(if $(filter command,$(firstword $(origin $v))),$(if $(call is_ours,$v),$v)))
stray = $(filter-out $(if $(word 2,$(MAKECMDGOALS)),$(VALUES) $(SWITCHES),$(1)) $(OTHERS),$(typed))
refuse = $(foreach v,$(call stray,$(1) $(2)),$(error make $@ takes no $v; it takes $(strip $(2) $(1))))
options = $(call refuse,$(1),$(2))$(call flags,$(1))

# An unset shell variable (DRY=$UNSET) must not start a sweep where a look was asked for.
$(foreach v,$(call given,$(SWITCHES)),$(if $(strip $(value $v)),,$(error $v= is empty; give $v=1, or leave it out)))

unexport $(VALUES) $(SWITCHES) $(SETUP_VALUES) VENV ARGS STALEHARNESS $(addprefix ARG_,$(VALUES))
define pass
ARG_$(1) := $$(value $(1))
export ARG_$(1)
endef
$(foreach v,$(call given,$(VALUES) $(SETUP_VALUES)),$(eval $(call pass,$v)))

.PHONY: help setup sweep status report benchmark figures reproduce compare verify export pack unpack pipeline advise list new test test-long slow test-faults golden mutants bench bench-gpu docs site lint type fix check audit lock clean distclean FORCE

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s", $$1; at = 18; n = split($$2, words, " "); \
	for (i = 1; i <= n; i++) { if (at + 1 + length(words[i]) > 80) { printf "\n%18s", ""; at = 18 } \
	printf " %s", words[i]; at += 1 + length(words[i]) } print "" }' Makefile

# The sweep ------------------------------------------------------------------------------------------------------------

# What needs an extra installs it the first time it is asked for; a dry run installs nothing and says what is missing.
also = grep -qs '"extras": "[^"]*$(1)' "$(STAMP)" || $(INSTALL) --also=$(1)
LLM = $(call also,llm)
SMOLLM2 = $(call also,smollm2)
TOKENS = word-problems gsm8k
is_on = $(filter-out $(OFF),$(call value_of,$(1)))
dry = $(strip $(foreach v,DRY LIST PROBE,$(call is_on,$v)))
# what carries runs out elsewhere
ELSEWHERE = $(if $(dry),:,$(if $(filter ray,$(call value_of,RUNNER)),$(call also,ray),:))
# the same where a file that is named in an argument of make asks for a language task
LLM_FOR = if grep -qs smollm2 -- $(1); then $(SMOLLM2); elif grep -qsE 'word-problems|gsm8k' -- $(1); then $(LLM); fi

sweep: $(STAMP) ## train and compare: ENV=Hopper K=1,8 ALGO= SEEDS= STEPS= PRESET= JOBS= RUNNER= OUT= RESTART=1 DRY=1 LIST=1 JSON=1
	@$(if $(dry),:,$(if $(strip $(foreach v,$(TOKENS),$(findstring $v,$(call value_of,ENV)))),$(if $(filter smollm2,$(call value_of,MODEL))$(findstring smollm2,$(call value_of,PRESET)),$(SMOLLM2),$(LLM)),$(if $(call given,SPEC),$(call LLM_FOR,"$$ARG_SPEC"),:)))
	@$(ELSEWHERE)
	@exec $(STALEHARNESS) sweep $(call options,ENV K ALGO SEEDS STEPS PRESET JOBS RUNNER RUNS_PER_GPU MEMORY SLURM DEVICE OUT LAG MISMATCH SET PLUGIN SPEC NORMALISE SCORE N MODEL DATA DRY LIST PROBE JSON RESTART)

status: $(STAMP) ## which runs are done, running or failed: OUT= JSON=1
	@exec $(STALEHARNESS) status $(call options,OUT JSON)

report: $(STAMP) ## make table and figures from stored results, no training: OUT= ENV= K= ALGO= WHERE=lag=oldest PLUGIN= NORMALISE= SCORE= JSON=1
	@exec $(STALEHARNESS) report $(call options,OUT ENV K ALGO WHERE PLUGIN NORMALISE SCORE JSON)

benchmark: $(STAMP) ## StaleBench's verdict on one method: ALGO=my_idea TRACK=tokens|tokens_uniform|control|paper QUICK=1 ONE_RATE=1 PLUGIN= ADD=bundle JOBS= OUT= DRY=1 JSON=1
	@$(if $(dry)$(filter-out tokens tokens_uniform,$(if $(call given,TRACK),$(value TRACK),tokens)),:,$(LLM))
	@$(ELSEWHERE)
	@exec $(STALEHARNESS) benchmark $(call options,ALGO TRACK QUICK ONE_RATE ADD PLUGIN JOBS RUNNER RUNS_PER_GPU MEMORY SLURM OUT DRY JSON RESTART)

figures: $(STAMP) ## draw a paper's figures from published results, no training: PAPER=vaco FIG= SCALE= OUT= JSON=1
	@exec $(STALEHARNESS) figures $(call options,PAPER FIG SCALE OUT JSON)

reproduce: $(STAMP) ## list what can be reproduced; with PAPER=vaco FIG=3, make its runs and figure: SCALE=small|paper JOBS= OUT= DRY=1 JSON=1
	@$(if $(dry),:,$(if $(call given,PAPER),$(call LLM_FOR,experiments/"$$ARG_PAPER"_*.toml experiments/"$$ARG_PAPER".toml),:))
	@$(ELSEWHERE)
	@exec $(STALEHARNESS) reproduce $(call options,PAPER FIG SCALE JOBS RUNNER RUNS_PER_GPU MEMORY SLURM DEVICE OUT DRY PROBE JSON RESTART)

compare: $(STAMP) ## two results folders side by side: A=results/reference/... B=results ENV= K= ALGO= WHERE= OUT=file.csv JSON=1
	@exec $(STALEHARNESS) compare $(if $(call given,A),"$$ARG_A","") $(if $(call given,B),"$$ARG_B",results) $(call options,ENV K ALGO WHERE OUT NORMALISE SCORE JSON,A B)

verify: $(STAMP) ## repeat stored runs and compare every bit: A=results/runs/... or a folder; N=3|all JOBS= OUT= JSON=1
	@exec $(STALEHARNESS) verify $(if $(call given,A),"$$ARG_A",results) $(call options,N ENV K ALGO WHERE JOBS PLUGIN OUT JSON,A)

export: $(STAMP) ## export stored runs to other tools: KIND=csv|tensorboard|wandb OUT= TO= ENV= K= ALGO= WHERE= PLUGIN= JSON=1
	@$(if $(call given,KIND),$(foreach v,$(filter tensorboard wandb,$(value KIND)),$(call also,$v);):,:)
	@exec $(STALEHARNESS) export $(if $(call given,KIND),"$$ARG_KIND",csv) $(call options,OUT TO ENV K ALGO WHERE PLUGIN JSON,KIND)

pack: $(STAMP) ## pack results into a bundle of few files, to publish: OUT= TO=results/reference/... SPEC= CODE=
	@exec $(STALEHARNESS) pack $(if $(call given,OUT),"$$ARG_OUT",results) $(if $(call given,TO),"$$ARG_TO","") $(call options,SPEC CODE,OUT TO)

unpack: $(STAMP) ## unpack a bundle into a folder that a sweep can continue: A=results/reference/... OUT=
	@exec $(STALEHARNESS) unpack $(if $(call given,A),"$$ARG_A","") $(if $(call given,OUT),"$$ARG_OUT",results) $(call options,,A OUT)

pipeline: $(STAMP) ## simulate where lag comes from: PRESET=sync,async SET=slots=256,cap=4 STEPS= SEED= PLUGIN= OUT= JSON=1
	@exec $(STALEHARNESS) pipeline $(call options,PRESET SET STEPS SEED PLUGIN OUT JSON)

advise: $(STAMP) ## which K and method on my system? RESULTS= PRESET= SET= CAP= LOG= COLUMNS= KEEP= ENV= ALGO= WHERE= OUT=file.png JSON=1
	@exec $(STALEHARNESS) advise $(call options,RESULTS PRESET SET CAP LOG COLUMNS UNIT BATCH UPDATES KEEP ZERO SCORE ENV K ALGO WHERE OUT JSON)

list: $(STAMP) ## algorithms, environments, lag models: PLUGIN= JSON=1
	@exec $(STALEHARNESS) list $(call options,PLUGIN JSON)

new: $(STAMP) ## a working plugin to start from: NAME=my_idea KIND=algorithm FOLDER=
	@exec $(STALEHARNESS) new "$${ARG_KIND-algorithm}" "$${ARG_NAME-}" $(call options,FOLDER,NAME KIND)

# The environment ------------------------------------------------------------------------------------------------------

INSTALL = python3 constraints/install.py --venv="$(VENV)" $(call flags,PY TORCH EXTRAS) >&2

setup: ## create or update .venv, nothing else: TORCH=auto|cpu|cuda EXTRAS=ray,llm PY=python3.12 VENV=.venv
	@$(call refuse,$(SETUP_VALUES))$(INSTALL)

# A new time on an input asks install.py, which compares contents; so does a choice made on the command line.
$(STAMP): pyproject.toml $(wildcard constraints/*) $(if $(call given,$(SETUP_VALUES)),FORCE)
	@$(INSTALL)

lock: $(STAMP) ## resolve new pins for this Python into constraints/
	@$(PYTHON) constraints/lock.py

# The checks -----------------------------------------------------------------------------------------------------------

# Bytecode is kept, whatever the shell says: or else each process that a test starts compiles the package anew. Tests
# that share a fixture stay together until a worker runs out of its own.
PARALLEL = -q -n auto --maxprocesses 8 --dist worksteal

test: $(STAMP) ## the fast tests; ARGS="-k lag" goes to pytest unchanged
	@$(call refuse,ARGS)$(LLM)
	@PYTHONDONTWRITEBYTECODE= $(PYTHON) -m pytest $(PARALLEL) -m "not long and not slow and not gpu and not faults" $(ARGS)

test-long: $(STAMP) ## a hundred tests of whole runs and pages, which together take as long as all the others
	@$(call refuse,ARGS)$(LLM)
	@PYTHONDONTWRITEBYTECODE= $(PYTHON) -m pytest $(PARALLEL) -m "long and not slow and not gpu and not faults" $(ARGS)

slow: $(STAMP) ## the slow tests, and those that need a GPU
	@$(call refuse,ARGS)$(PYTHON) -m pytest -q -m "slow or gpu" $(ARGS)

# Beside the tests marked so: what is deleted, empty values, results that would be wrong in silence, hostile input,
# set-up, memory, lost actors.
FAULTS = running/test_deletions commands/test_empty_values training/test_global_generators running/test_run_phases \
  store/test_hostile_bundles store/test_hostile_folders store/test_record_schema store/test_disk_errors test_security \
  commands/test_bad_input commands/test_odd_surroundings commands/test_wrong_lines running/test_checkpoint running/test_repair \
  running/test_trouble test_setup running/test_memory_leak_warning logs/test_streaming asynchronous/test_actor_pool running/test_watch_on_deletions
none_fits = $(if $(strip $(ARGS)),|| [ $$? -eq 5 ])
test-faults: $(STAMP) ## hundreds of kills, full disks, hostile files, deletions, set-up, memory; takes a quarter of an hour
	@$(call refuse,ARGS)$(LLM)
	@$(PYTHON) -m pytest -q -m faults $(ARGS) $(none_fits)
	@$(PYTHON) -m pytest $(PARALLEL) -m "not slow and not gpu and not faults" $(FAULTS:%=tests/%.py) $(ARGS) $(none_fits)

golden: $(STAMP) ## do the golden traces hold? ARGS=--write after a change that is meant to move results
	@$(call refuse,ARGS)$(PYTHON) tests/golden/traces.py $(ARGS)

mutants: $(STAMP) ## break important lines one by one: does a test notice? Slow. ARGS="-k learner --jobs 2"
	@$(call refuse,ARGS)$(LLM)
	@$(PYTHON) tests/mutants/run.py $(ARGS)

# each a file of benchmarks/, with an option after the plus
BENCHMARKS = start reading logs sweeps stepping acting training training+sweep training+paper batched_policies pipeline \
  in_flight mismatch trl_grpo trl_grpo+hidden=256 trl_grpo+smollm2 generating vcpo proximal
bench: export BENCH_TABLE = $(CURDIR)/build/bench.txt
bench: $(STAMP) ## speed relative to peers and limits; half an hour on idle cores. ARGS=--quick
	@$(if $(call given,ALGO TRACK QUICK ONE_RATE ADD),echo "make bench measures speed; for the verdict on a method: make benchmark ALGO=$${ARG_ALGO-my_idea}" >&2; exit 2,$(call refuse,ARGS):)
	@mkdir -p build && rm -f "$(CURDIR)/build/bench.txt"
	@$(SMOLLM2)
	@for each in $(BENCHMARKS); do \
	  $(PYTHON) benchmarks/$$(echo $$each | sed 's/+/.py --/; t; s/$$/.py/') $(ARGS) || echo "$$each: failed" >> "$$BENCH_TABLE"; \
	done
	@$(PYTHON) benchmarks/bench_table.py "$$BENCH_TABLE"

bench-gpu: $(STAMP) ## a 0.5B model on this GPU: tokens/s, memory, share of the matrix peak. ARGS=--plain
	@$(call refuse,ARGS)$(LLM)
	@$(PYTHON) benchmarks/gpu.py $(ARGS)

site: $(STAMP) ## the documentation as a site of static pages, in build/site
	@$(call also,docs)
	@NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build -q -f docs/site/mkdocs.yml
	@echo "build/site: python3 -m http.server -d build/site, then open http://localhost:8000"

docs: $(STAMP) ## regenerate pages made from code: methods, settings, lag models, leaderboard, corrections, pictures
	@$(PYTHON) docs/generate.py
	@$(PYTHON) docs/generate_settings.py
	@$(PYTHON) docs/lag_models.py
	@$(PYTHON) docs/time_per_step.py
	@$(PYTHON) docs/pictures.py

lint: $(STAMP) ## style, layout and import rules
	@$(PYTHON) -m ruff check --quiet .
	@$(PYTHON) -m ruff format --check --quiet .
	@$(VENV)/bin/lint-imports --no-logo

type: $(STAMP) ## type checks
	@$(PYTHON) -m mypy

fix: $(STAMP) ## repair style and layout
	@$(PYTHON) -m ruff check --fix .
	@$(PYTHON) -m ruff format .

check: lint type test ## lint, type and test

audit: ## known vulnerabilities in the pinned packages (pip-audit, needs pypi.org)
	@python3 constraints/audit.py

clean: ## remove caches and built files, never results
	@rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	@find staleharness algorithms envs tests constraints -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

distclean: clean ## clean, and remove the environment
	@python3 constraints/install.py --venv="$(VENV)" --remove
