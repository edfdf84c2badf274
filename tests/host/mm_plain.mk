# mm_plain.mk: tests of vmalloc on the simulated machine as the kernel is built, without CONFIG_DEBUG: only there has the
# default design its short paths (mm/vmap.c). Included by host.mk after mm_alloc.mk, whose archives it uses.

PLAIN_TESTS := mm_seeds_test mm_free_test mm_pblock_test mm_bounds_test

define plain_test
HOST_TESTS += $(1)_plain
$(HOST_OUT)/$(1)_plain: $(ALLOC_PLAIN)/sim.dir/tests/host/$(1).o $(ALLOC_PLAIN)/libsim.a $(ALLOC_PLAIN)/libmm.a \
		$(HOST_OUT)/libhost.a tests/host/sim/wrap.opts tests/host/sim/mm_data.ld
	$$(Q)$$(HOSTCC) $$(HOST_SAN) -pthread $$(filter %.o,$$^) -Wl,--start-group $$(filter %.a,$$^) -Wl,--end-group \
		$$(SIM_LINK) -lcmocka -o $$@
-include $(ALLOC_PLAIN)/sim.dir/tests/host/$(1).d
endef

$(foreach t,$(PLAIN_TESTS),$(eval $(call plain_test,$(t))))
TSAN_TESTS += mm_free_test_plain
