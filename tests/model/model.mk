# model.mk: the models of tests/model, checked by SPIN. Included by the top Makefile; also usable
# alone: make -f tests/model/model.mk model
#
# MODEL_ONLY="names" takes some lines of tests/model/checks; MODEL_JOBS says how many run at a time.

BUILD ?= build
HOSTCC ?= clang
Q ?= $(if $(V),,@)
MODEL_JOBS ?= 2
MODEL_ONLY ?=

model: model-tools ## models of mm/ and tlb_gen.c on x86-TSO, by SPIN (MODEL_ONLY="names")
	$(Q)HOSTCC='$(HOSTCC)' sh tests/model/run.sh $(BUILD)/model $(MODEL_JOBS) $(MODEL_ONLY)

test-full: model

# SPIN runs gcc as its preprocessor.
model-tools:
	@for p in spin:spin gcc:gcc '$(firstword $(HOSTCC)):clang'; do \
	    command -v "$${p%%:*}" >/dev/null || \
	    { echo "metalmap: '$${p%%:*}' is missing: install the package $${p#*:} (make deps)" >&2; \
	      exit 1; }; \
	done

.PHONY: model model-tools
