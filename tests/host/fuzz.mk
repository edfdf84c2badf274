# fuzz.mk: what of the fuzzers is part of test-host: the first inputs of each, the same in each run, and that each notices
# faults that were planted. Included by host.mk, behind all that defines fuzzers.
#
# FUZZER_quick runs FUZZER. fuzz_mutant_NAME runs the one that the first line of tests/host/fuzz_mutants/NAME.sed names,
# with the file that it changes. RUNS are the most inputs that it takes for that.

FUZZ_RUNS ?= 20000
FUZZ_RUNS_fuzz_vmap ?= 1000
FUZZ_QUICK_RUNS ?= 5000
FUZZ_QUICK_RUNS_fuzz_vmap ?= 300
FUZZ_MUTANT_FLAGS := -Iarch/x86_64/include -Imm -fno-strict-aliasing -fsanitize=fuzzer-no-link
FUZZ_MUTANT_FLAGS_fuzz_vmap := -DCONFIG_DEBUG

# $(1) program, $(2) its file, $(3) inputs, $(4) name of the mutant, if it is one
define fuzz_quick
HOST_TESTS += $(1)
$(HOST_OUT)/$(1): $(2) tests/host/fuzz_quick.sh tests/host/fuzz.mk
	@mkdir -p $$(@D)
	@echo 'exec sh tests/host/fuzz_quick.sh $(2) $(3) $(4)' >$$@.new
	@chmod +x $$@.new && mv $$@.new $$@
endef

# $(1) name, $(2) file, $(3) fuzzer
define fuzz_mutant
$(FUZZ_OUT)/mutants/$(1)/mutant.c: tests/host/fuzz_mutants/$(1).sed $(2) tests/host/mutate.sh
	@mkdir -p $$(@D)
	@sh tests/host/mutate.sh $$< $(2) $$@
$(FUZZ_OUT)/mutants/$(1)/mutant.o: $(FUZZ_OUT)/mutants/$(1)/mutant.c tests/host/fuzz.mk
	$$(Q)$$(FUZZCC) $$(HOST_CFLAGS) $$(HOST_SAN) $(FUZZ_MUTANT_FLAGS) $(FUZZ_MUTANT_FLAGS_$(3)) -c $$< -o $$@
$(FUZZ_OUT)/mutants/$(1)/$(3): $(FUZZ_OUT)/mutants/$(1)/mutant.o $(filter-out %/$(2:.c=.o),$(FUZZ_OBJS_$(3))) $(FUZZ_LIBS_$(3))
	$$(Q)$$(FUZZCC) $$(HOST_SAN) -fsanitize=fuzzer -pthread $$(filter %.o,$$^) -Wl,--start-group $$(filter %.a,$$^) \
		-Wl,--end-group $(FUZZ_LINK_$(3)) -o $$@
-include $(FUZZ_OUT)/mutants/$(1)/mutant.d
$(call fuzz_quick,fuzz_mutant_$(1),$(FUZZ_OUT)/mutants/$(1)/$(3),$(or $(FUZZ_RUNS_$(3)),$(FUZZ_RUNS)),$(1))
endef

$(foreach f,$(HOST_FUZZERS),$(eval $(call fuzz_quick,$(f)_quick,$(FUZZ_OUT)/$(f),$(or \
	$(FUZZ_QUICK_RUNS_$(f)),$(FUZZ_QUICK_RUNS)))))
FUZZ_MUTANTS := $(patsubst tests/host/fuzz_mutants/%.sed,%,$(sort $(wildcard tests/host/fuzz_mutants/*.sed)))
$(foreach m,$(FUZZ_MUTANTS),\
	$(eval FUZZ_MUTATES := $(shell sed -n '1s/^# \([^:]*\): \([^:]*\):.*/\1 \2/p' tests/host/fuzz_mutants/$(m).sed))\
	$(eval $(call fuzz_mutant,$(m),$(word 1,$(FUZZ_MUTATES)),$(word 2,$(FUZZ_MUTATES)))))
