/*
 * tlb_gen.pml: flush generations on x86-TSO: no use through a stale translation, no table page
 * and no descriptor given away too early, no lost wake-up, every wait ends.
 *
 * CPU c owns object c: an address and, object 0, an index entry `tab` with a descriptor. Objects
 * have lives 1, 2, ... What each CPU does comes with -D (see DOES); other names leave a step of
 * the code out or do it wrong. All is bounded by those counts, so a wait that never ends is an
 * invalid end state.
 *
 * mirrors arch/x86_64/tlb_gen.c: tlb_gen_catch_up tlb_gen_stamp tlb_gen_advance tlb_gen_passed
 * mirrors arch/x86_64/tlb_gen.c: tlb_gen_passed_all look_at_all tlb_gen_kick tlb_gen_sync
 * mirrors arch/x86_64/tlb_gen.c: tlb_gen_idle_enter tlb_gen_idle_exit
 * mirrors arch/x86_64/tlb_gen.c: tlb_gen_nmi_enter tlb_gen_nmi_exit tlb_gen_wait wake_waiters
 * mirrors arch/x86_64/include/arch/tlb_gen.h: tlb_gen_read_begin tlb_gen_read_end tlb_gen_check
 * mirrors arch/x86_64/smp.c: cpu_idle_wait smp_wait_flag smp_wake
 * mirrors arch/x86_64/trap.c: irq_dispatch nmi_dispatch leave_halt
 * mirrors mm/vmap_pcpu.c: stamp_dirty recycle_passed press_laggards give_way
 * mirrors mm/vmap_purge.c: purge_by_generation purge_lock purge_wait
 */
#ifndef N
#define N 2
#endif
#ifndef SB
#define SB 2
#endif
#ifndef OBJECTS
#define OBJECTS 2
#endif

/* ---- memory ---- */

byte now;                 /* tlb_gen.now */
byte seen[N];             /* tlb_gen_cpu.seen */
bool idle[N];             /* tlb_gen_cpu.idle */
byte summary;             /* summary.passed */
byte pte[OBJECTS];        /* the life that the entry maps, 0: not present */
byte tab;                 /* index entry of object 0: its life, 0: none */
bool flag;                /* what smp_wait_flag() waits for */
bool mutex;               /* CPU 0 retires: CPUs that want to, too, spin */
#ifdef GIVES
byte waiting;             /* waiting.count */
byte awaited[N];          /* the stamp that a CPU halts for, 0: none */
#endif

#define L_SEEN 0
#define L_IDLE 1
#define L_TAB  2
#define L_FLAG 3
#define L_AWAITED 4
#define L_PTE  5 /* + object */

/*
 * Each CPU's TLB: the set of lives that it holds for an object, a bit each. The MMU may cache a
 * present entry at any moment, so it is taken to do so at once, halted or not: caching more can
 * only break more, and nothing in the code depends on what is cached. -DMMU lets a process do it
 * at any moment instead, which must come to the same.
 */
byte tlb[N * OBJECTS];
#define BIT(life)  ((life) -> 1 << (life) : 0)
#define TLB(c, x)  tlb[(c) * OBJECTS + (x)]
#ifdef MMU
#define CACHE(c, x) skip
#else
#define CACHE(c, x) TLB(c, x) = TLB(c, x) | BIT(pte[x])
#endif

inline commit(c, loc, val)
{
    if
    :: loc == L_SEEN -> seen[c] = val
    :: loc == L_IDLE -> idle[c] = val
    :: loc == L_TAB -> tab = val
    :: loc == L_FLAG -> flag = val
#ifdef GIVES
    :: loc == L_AWAITED -> awaited[c] = val
#endif
    :: loc >= L_PTE -> pte[loc - L_PTE] = val;
        CACHE(0, loc - L_PTE); CACHE(1, loc - L_PTE);
#if N > 2
        CACHE(2, loc - L_PTE);
#endif
    fi
}

#include "tso.pml"

/* ---- one CPU's own: nobody else looks ---- */

byte my_seen[N];          /* seen and idle as it wrote them last */
bool my_idle[N];
byte readers[N];          /* tlb_gen_readers */
bool owed[N];             /* tlb_gen_owed */
bool masked[N];           /* interrupts */
bool at_hlt[N];           /* behind STI, before HLT */
bool shadow[N];           /* there, and interrupts are still held off */
bool halted[N];
bool skip_hlt[N];         /* a handler returns behind the HLT */
bool in_irq[N];
bool in_nmi[N];
bool ipi[N];              /* pending; written by who sends it */

/* ---- what is judged ---- */

byte live[OBJECTS];       /* the life that callers may use, 0: none */
byte dead;                /* the highest life of object 0 whose descriptor is gone */
byte hold[N * 3];         /* what a read section has found: task, handler, NMI */
bool can[N];              /* this CPU may use any live address right now */

#define TASK 0
#define IRQ  1
#define NMI  2

/* A use at any moment from now on would go through a stale entry. */
#define STALE(c, x) (live[x] != 0 && (TLB(c, x) & ~BIT(live[x])) != 0)

inline judge(c)
{
    assert(!(can[c] && STALE(c, 0)));
#if OBJECTS > 1
    assert(!(can[c] && STALE(c, 1)));
#endif
}

inline judge_all()
{
    judge(0); judge(1);
#if N > 2
    judge(2);
#endif
}

/* Nobody could still walk the old life of a table page, running or halted. */
inline judge_table(x)
{
    assert(!STALE(0, x) && !STALE(1, x));
#if N > 2
    assert(!STALE(2, x));
#endif
}

inline judge_free(life)
{
    assert(hold[0] != life && hold[1] != life && hold[2] != life);
    assert(hold[3] != life && hold[4] != life && hold[5] != life);
#if N > 2
    assert(hold[6] != life && hold[7] != life && hold[8] != life);
#endif
}

/* ---- tlb_gen.c ---- */

#define BEHIND(c) (my_seen[c] != now)
/* A poll would do something: not the second one inside a read section. */
#define POLL(c)   (BEHIND(c) && !(readers[c] != 0 && owed[c]))

inline flush(c) /* tlb_flush_local_all(): in one atomic step with its guard */
{
    TLB(c, 0) = 0; CACHE(c, 0);
#if OBJECTS > 1
    TLB(c, 1) = 0; CACHE(c, 1);
#endif
}

#define NONE 255

/*
 * One look of look_at_all(); a CPU reads back what it wrote itself. `seen` and then `idle` are
 * two loads, but either being true at some moment is enough for the code, so one moment is enough
 * here.
 */
#define SEEN_BY(c, i) ((i) == (c) -> my_seen[i] : seen[i])
#define IDLE_BY(c, i) ((i) == (c) -> my_idle[i] : idle[i])

#ifdef GIVES
/* tlb_gen_passed(what), which leaves in wi: N if it has. */
inline passed(c, what)
{
    wi = (now < what -> NONE : (summary >= what -> N : 0));
    do
    :: wi < N && (SEEN_BY(c, wi) >= what || IDLE_BY(c, wi)) -> wi++
    :: wi < N && !(SEEN_BY(c, wi) >= what || IDLE_BY(c, wi)) -> wi = NONE
    :: wi >= N -> break
    od;
    if
    :: wi == N && summary < what ->
        atomic { DRAINED(c) -> summary = (summary < what -> what : summary) }
    :: else
    fi
}

/* Without the memory of which stamp was found late, which only saves looks. */
inline wake_waiters(c)
{
#ifndef NO_WAKE_FENCE
    atomic { DRAINED(c) -> skip };                 /* smp_mb() */
#endif
#ifdef NMI_WAKES_NOBODY
    wj = (waiting == 0 || in_nmi[c] -> N : 0);
#else
    wj = (waiting == 0 -> N : 0);
#endif
    do
    :: wj < N ->
        ws = awaited[wj];
        if
        :: ws == 0
        :: else -> passed(c, ws);
            if
            :: wi == N -> atomic { DRAINED(c) ->   /* ATOMIC_XCHG, smp_wake() */
                ipi[wj] = ipi[wj] || awaited[wj] != 0; awaited[wj] = 0 }
            :: else
            fi
        fi;
        atomic { wj++; ws = 0; wi = 0 }
    :: else -> break
    od;
    wj = 0
}
#define LOOKER byte wi, wj, ws
#else
#define wake_waiters(c) skip
#define LOOKER skip
#endif
#ifdef PUBLISH_WAKES_NOBODY
#define WAKE_AT_PUBLISH(c) skip
#else
#define WAKE_AT_PUBLISH(c) wake_waiters(c)
#endif
#ifdef HALT_WAKES_NOBODY
#define WAKE_AT_HALT(c) skip
#else
#define WAKE_AT_HALT(c) wake_waiters(c)
#endif

/* tlb_gen_catch_up(). t, m: the caller's locals. */
inline catch_up(c)
{
    atomic {
        m = masked[c]; masked[c] = 1;              /* irq_save() */
        if
#ifndef PUBLISH_IN_SECTION
        :: readers[c] != 0 -> owed[c] = 1; masked[c] = m; t = NONE
#endif
        :: else -> owed[c] = 0; t = now            /* LOAD_ACQUIRE(tlb_gen.now) */
        fi
    };
    if
    :: t == NONE
    :: else ->
#ifdef PUBLISH_FIRST
        atomic { STORE(c, L_SEEN, t) -> my_seen[c] = t };
        atomic { DRAINED(c) -> flush(c); masked[c] = m }
#else
        atomic { DRAINED(c) -> flush(c) };         /* CR3 load */
#ifdef READ_LATE
        t = now;
#endif
#ifdef GIVES
        atomic { STORE(c, L_SEEN, t) -> my_seen[c] = t };
        WAKE_AT_PUBLISH(c);
        masked[c] = m
#else
        atomic { STORE(c, L_SEEN, t) -> my_seen[c] = t; masked[c] = m }
#endif
#endif
    fi;
    atomic { t = 0; m = 0 }
}

inline check(c) /* tlb_gen_check() */
{
    if
    :: BEHIND(c) -> catch_up(c)
    :: else
    fi
}

inline take_stamp(c) /* tlb_gen_stamp() */
{
#ifdef NO_STAMP_FENCE
    stamp = now + 1
#elif defined(STAMP_NOW)
    atomic { DRAINED(c) -> stamp = now }
#else
    atomic { DRAINED(c) -> stamp = now + 1 }
#endif
}

inline advance(c) /* tlb_gen_advance() */
{
    if
    :: now >= stamp
    :: else ->
        atomic { DRAINED(c) ->                     /* ATOMIC_CAS */
            if
            :: now == stamp - 1 -> now = stamp
            :: else
            fi
        }
    fi
}

/* tlb_gen_kick(stamp, halted_too): any interrupt is a safe point. */
inline kick(c, halted_too)
{
    i = 0;
    do
    :: i < N ->
        if
        :: i != c && seen[i] < stamp && (halted_too || !idle[i]) ->
            atomic { DRAINED(c) -> ipi[i] = 1; i++ }
        :: else -> i++
        fi
    :: else -> break
    od;
    i = 0
}

#ifdef TABLE
#ifdef TABLE_PASSED
#define SATISFIED(c, i) (SEEN_BY(c, i) >= stamp || idle[i])
#else
#define SATISFIED(c, i) (SEEN_BY(c, i) >= stamp)
#endif
#ifdef KICK_NOT_HALTED
#define KICK_HALTED 0
#else
#define KICK_HALTED 1
#endif
#else
#define SATISFIED(c, i) (SEEN_BY(c, i) >= stamp || idle[i])
#define KICK_HALTED 0
#endif

/* tlb_shootdown_all(): each CPU flushes and publishes nothing. That it ends is not shown here. */
inline shootdown(c)
{
    atomic { DRAINED(0) -> flush(0) };
    atomic { DRAINED(1) -> flush(1) }
}

/*
 * tlb_gen_sync(), with TABLE the same loop over tlb_gen_passed_all(). Instead of looking at all
 * CPUs again and again, a CPU that was found late is waited for where it was found: a look whose
 * next load comes late does that, too. The code's second kick after ten seconds is left out: no
 * wait may need it.
 */
inline sync(c)
{
    advance(c);
    kicked = 0;
    i = 0;
    if
#ifndef WAIT_IN_SECTION
    :: readers[c] != 0 -> shootdown(c); i = N
#endif
    :: else -> check(c);
        if
#ifndef TABLE
        :: summary >= stamp -> i = N               /* tlb_gen_passed(): somebody saw it pass */
#endif
        :: else
        fi
    fi;
    do
    :: i == N -> break
    :: i < N && SATISFIED(c, i) -> i++
#ifdef NO_KICK
    :: i < N && !kicked && !SATISFIED(c, i) -> kicked = 1
#else
    :: i < N && !kicked && !SATISFIED(c, i) -> kick(c, KICK_HALTED); kicked = 1
#endif
#ifndef NO_POLL
    :: i < N && kicked && POLL(c) -> catch_up(c) /* tlb_poll() */
#endif
    od;
#ifndef TABLE
    if
    :: summary < stamp && readers[c] == 0 ->
        atomic { DRAINED(c) -> summary = (summary < stamp -> stamp : summary) }
    :: else
    fi;
#endif
    atomic { i = 0; kicked = 0 }
}

/* Who looks at the flags first and at the generation afterwards; no wait in the loop. */
inline sync_looks_early(c)
{
    i = 0;
    do
    :: i < N && (i == c || SATISFIED(c, i)) -> i++
    :: i < N && i != c && !SATISFIED(c, i) -> advance(c); check(c); kick(c, 0); SATISFIED(c, i)
    :: i == N -> break
    od;
    advance(c);
    check(c);
    i = 0
}

/* tlb_gen_idle_enter(): no address is used any more, unless a handler halts over a read section. */
inline idle_enter(c)
{
    if
#ifdef IDLE_IN_SECTION
    :: atomic { STORE(c, L_IDLE, 1) -> my_idle[c] = 1; can[c] = 0 }
#else
    :: readers[c] == 0 -> atomic { STORE(c, L_IDLE, 1) -> my_idle[c] = 1; can[c] = 0 };
        WAKE_AT_HALT(c)
    :: else
#endif
    fi
}

inline idle_exit(c) /* tlb_gen_idle_exit() */
{
#ifdef EXIT_CHECK_FIRST
    check(c);
    atomic { STORE(c, L_IDLE, 0) -> my_idle[c] = 0 };
    atomic { DRAINED(c) -> skip };
#else
    atomic { STORE(c, L_IDLE, 0) -> my_idle[c] = 0 };
#ifndef NO_EXIT_FENCE
    atomic { DRAINED(c) -> skip };                 /* smp_mb() */
#endif
#ifndef NO_EXIT_CHECK
    check(c);
#endif
#endif
    atomic { can[c] = 1; judge(c) }
}

/* tlb_gen_read_begin(), table_lookup(), uses, tlb_gen_read_end(). */
inline section(c, context)
{
#ifdef LOOK_UP_EARLY
    atomic { hold[c * 3 + context] = tab; assert(tab == 0 || tab > dead) };
    readers[c]++;
#else
    readers[c]++;
    atomic { hold[c * 3 + context] = tab; assert(tab == 0 || tab > dead) };
#endif
    atomic { hold[c * 3 + context] = 0; readers[c]-- };
#ifndef OWED_IGNORED
    if
    :: context != NMI && owed[c] -> catch_up(c)
    :: else
    fi
#endif
}

/* ---- what a CPU does ---- */

/*
 * How often each CPU retires and reuses its object (ROUNDS; with interrupts off: IRQS_OFF), looks
 * something up (SECTIONS), halts (IDLES), is at a safe point (CHECKS), begins a generation
 * without waiting for it (BEGINS), spins with interrupts off until CPU 0 has retired (SPINS),
 * waits halted for the flag (WAITS), sets it and wakes CPU 1 (WAKES), halts until a generation has
 * passed without interrupting anybody (GIVES); computes for ever in the end (LAG), or does nothing
 * but polls (POLLS); is interrupted by devices (IRQS), NMIs (NMIS) and events that nobody sees but that
 * end the shadow of STI (SMIS). Decimal digits, CPU 0 last.
 */
#define DOES(what, c) ((c) == 0 -> (what) % 10 : ((c) == 1 -> (what) / 10 % 10 : (what) / 100))
#ifndef ROUNDS
#define ROUNDS 0
#endif
#ifndef SECTIONS
#define SECTIONS 0
#endif
#ifndef IDLES
#define IDLES 0
#endif
#ifndef CHECKS
#define CHECKS 0
#endif
#ifndef BEGINS
#define BEGINS 0
#endif
#ifndef SPINS
#define SPINS 0
#endif
#ifndef WAITS
#define WAITS 0
#endif
#ifndef WAKES
#define WAKES 0
#endif
#ifndef LAG
#define LAG 0
#endif
#ifndef POLLS
#define POLLS 0
#endif
#ifndef IRQS
#define IRQS 0
#endif
#ifndef NMIS
#define NMIS 0
#endif
#ifndef SMIS
#define SMIS 0
#endif
#ifndef IRQS_OFF
#define IRQS_OFF 0 /* those CPUs retire with interrupts off */
#endif

/* The entries go, a stamp is taken, and when it has passed the address is used again. */
inline retire(c)
{
    atomic { masked[c] = DOES(IRQS_OFF, c); mutex = mutex || c == 0 };
#ifdef CLEAR_LATE
    live[c] = 0;
    take_stamp(c);
    STORE(c, L_PTE + c, 0);
#else
    atomic { STORE(c, L_PTE + c, 0) -> live[c] = 0 };
    if
    :: c == 0 && SECTIONS != 0 -> STORE(c, L_TAB, 0)
    :: else
    fi;
    take_stamp(c);
#endif
#ifdef LOOK_EARLY
    sync_looks_early(c);
#else
    sync(c);
#endif
    life++;
    if
    :: c == 0 && SECTIONS != 0 ->
        atomic { judge_free(life - 1); dead = life - 1 };
        STORE(c, L_TAB, life)
    :: else
    fi;
    atomic { STORE(c, L_PTE + c, life) -> live[c] = life;
#ifdef TABLE
        judge_table(c)
#else
        judge_all()
#endif
    };
    atomic { masked[c] = 0; stamp = 0; mutex = mutex && c != 0 }
}

/* cpu_halt() without what comes after the HLT. STI holds interrupts off until then, NMIs not; where
 * there are none, it is one step. */
inline halt(c)
{
#if NMIS != 0 || SMIS != 0
    atomic { masked[c] = 0; at_hlt[c] = 1; shadow[c] = 1 };
    atomic { at_hlt[c] = 0; shadow[c] = 0; halted[c] = !skip_hlt[c]; skip_hlt[c] = 0 }
#else
    atomic { masked[c] = 0; halted[c] = 1 }
#endif
}

/* A handler that came before the HLT: its frame's RIP is there. */
#ifdef NOBODY_LEAVES_HALT
#define LEAVE_HALT(c) skip
#else
#define LEAVE_HALT(c) skip_hlt[c] = skip_hlt[c] || at_hlt[c]
#endif
#ifdef IRQ_STAYS_AT_HALT
#define IRQ_LEAVES_HALT(c) skip
#else
#define IRQ_LEAVES_HALT(c) LEAVE_HALT(c)
#endif

#ifdef GIVES
#define OTHERS_LEFT (rounds + sections + checks + begins + spins + wakes + waits + gives)
#else
#define OTHERS_LEFT (rounds + sections + checks + begins + spins + wakes + waits)
#endif

proctype cpu(byte c) provided (!in_irq[c] && !in_nmi[c])
{
    byte stamp, i, t, life = 1;
    bool m, kicked;
    byte rounds = DOES(ROUNDS, c), sections = DOES(SECTIONS, c), idles = DOES(IDLES, c);
    byte checks = DOES(CHECKS, c), begins = DOES(BEGINS, c), spins = DOES(SPINS, c);
    byte waits = DOES(WAITS, c), wakes = DOES(WAKES, c);
#ifdef GIVES
    byte gives = DOES(GIVES, c);
#endif
    LOOKER;

    do
    :: rounds > 0 -> rounds--; retire(c)
    :: sections > 0 -> sections--; section(c, TASK)
    :: checks > 0 -> checks--; check(c)
    :: begins > 0 -> begins--; take_stamp(c); advance(c); stamp = 0
    :: spins > 0 -> atomic { spins--; masked[c] = 1 };
        do                                         /* purge_wait(), and every lock: tlb_poll() */
        :: !mutex -> break
#ifndef NO_POLL
        :: mutex && POLL(c) -> catch_up(c)
#endif
        od;
        masked[c] = 0
    :: wakes > 0 -> wakes--;
        STORE(c, L_FLAG, 1);
#ifdef IPI_EARLY
        ipi[1] = 1                                 /* no MFENCE in x2apic_send() */
#else
        atomic { DRAINED(c) -> ipi[1] = 1 }
#endif
    :: waits > 0 -> waits--;                       /* smp_wait_flag() */
#ifndef WAIT_UNMASKED
        masked[c] = 1;
#endif
        do
        :: flag -> break
        :: else ->
            idle_enter(c);
            halt(c);
            atomic { !halted[c] -> masked[c] = 1 };
            idle_exit(c);
#ifdef WAIT_UNMASKED
            masked[c] = 0
#endif
        od;
        masked[c] = 0
#ifdef GIVES
    :: gives > 0 -> gives--;                       /* tlb_gen_wait(), without its time-out */
        take_stamp(c);
        advance(c);
        check(c);
        masked[c] = 1;
        atomic { DRAINED(c) -> waiting++ };
        passed(c, stamp);
        do
        :: wi == N -> break
        :: else ->
            STORE(c, L_AWAITED, stamp);
            idle_enter(c);
            halt(c);
            atomic { !halted[c] -> masked[c] = 1 };
            idle_exit(c);
            passed(c, stamp)
        od;
        STORE(c, L_AWAITED, 0);
        atomic { DRAINED(c) -> waiting--; wi = 0; stamp = 0 };
        masked[c] = 0
#endif
    :: idles > 0 || (OTHERS_LEFT == 0 && !DOES(LAG, c) && !DOES(POLLS, c)) ->
        atomic { idles = (idles > 0 -> idles - 1 : 0); masked[c] = 1 };
        idle_enter(c);                             /* cpu_idle_wait() */
        halt(c);
end_halted:
        atomic { !halted[c] -> masked[c] = 1 };    /* CLI */
        idle_exit(c);
        masked[c] = 0
    :: OTHERS_LEFT + idles == 0 && DOES(LAG, c) ->
end_computing:
        false
    :: OTHERS_LEFT + idles == 0 && DOES(POLLS, c) ->
end_polling:
        BEHIND(c);
        catch_up(c)
    od
}

/* irq_dispatch() */
proctype irq(byte c) provided (!in_nmi[c])
{
    byte t, i, stamp;
    bool m, kicked, first;
    LOOKER;
    byte device = DOES(IRQS, c);

end_irq:
    do
    :: atomic { !masked[c] && !shadow[c] && (ipi[c] || device > 0) ->
            if
            :: ipi[c] -> ipi[c] = 0
            :: device > 0 -> device--; first = 1
            fi;
            in_irq[c] = 1
        };
#ifndef IRQ_STAYS_IDLE
        if
        :: my_idle[c] -> idle_exit(c)
        :: else
        fi;
#else
        atomic { can[c] = 1; judge(c) };
#endif
#ifdef IRQ_SECTION
        section(c, IRQ);
#endif
#ifdef IRQ_SYNC /* a device's handler calls vm_unmap_aliases(), or is short of addresses */
        if
        :: first -> take_stamp(c); sync(c)
        :: else
        fi;
#endif
#ifdef IRQ_SPIN /* a device's handler wants the mutex of the purge: purge_lock() */
        if
        :: first ->
            do
            :: !mutex -> break
#ifndef WAIT_IN_SECTION
            :: mutex && readers[c] != 0 -> break   /* NOT_POSSIBLE */
#endif
            :: mutex && POLL(c) -> catch_up(c)
            od
        :: else
        fi;
#endif
#ifdef IRQ_HALT /* tlb_shootdown_all() in halt_once(): the answer may come at any moment */
        idle_enter(c);
        idle_exit(c);
#endif
        check(c);
#ifdef IRQ_STAYS_IDLE
        can[c] = !my_idle[c];
#endif
        atomic { IRQ_LEAVES_HALT(c); stamp = 0; first = 0; halted[c] = 0; in_irq[c] = 0 }
    od
}

/* nmi_dispatch(): at any moment, that between the idle flag and the flush of idle_exit() too. */
proctype nmi(byte c)
{
    byte t, n = DOES(NMIS, c);
    bool m, was_idle, could;
    LOOKER;

end_nmi:
    do
    :: atomic { n > 0 ->
            n--; in_nmi[c] = 1; was_idle = my_idle[c]; could = can[c] };
#ifdef NMI_STAYS_IDLE
        atomic { can[c] = 1; judge(c) };
#else
        if
        :: was_idle -> idle_exit(c)
        :: else ->                                 /* tlb_gen_nmi_enter() */
#ifndef NMI_WITHOUT_FENCE
            atomic { DRAINED(c) -> skip };         /* smp_mb() */
#endif
#ifndef NMI_WITHOUT_FLUSH
            if
            :: BEHIND(c) ->
#ifdef NMI_PUBLISHES
                t = now;
                atomic { DRAINED(c) -> flush(c) };
                atomic { STORE(c, L_SEEN, t) -> my_seen[c] = t; t = 0 }
#else
                atomic { DRAINED(c) -> flush(c) }
#endif
            :: else
            fi;
#endif
            atomic { can[c] = 1; judge(c) }
        fi;
#endif
#ifdef NMI_SECTION
        section(c, NMI);
#endif
#ifdef NMI_ALWAYS_IDLE
        idle_enter(c);
        can[c] = could;
#elif defined(NMI_STAYS_IDLE)
        can[c] = could;
#else
        if
        :: was_idle -> idle_enter(c)
        :: else -> can[c] = could
        fi;
#endif
        atomic { LEAVE_HALT(c); shadow[c] = 0; was_idle = 0; could = 0; halted[c] = 0; in_nmi[c] = 0 }
    od
}

/* An SMI, or a hypervisor that stops the CPU and forgets the shadow of STI. */
proctype smi(byte c)
{
    byte n = DOES(SMIS, c);

end_smi:
    do
    :: atomic { n > 0 && shadow[c] -> n--; shadow[c] = 0 }
    od
}

#ifdef MMU
proctype mmu()
{
    byte c, x;

end_mmu:
    do
    :: atomic { c < N - 1 -> c++ }
    :: atomic { c == N - 1 -> c = 0; x = (x + 1) % OBJECTS }
    :: atomic { pte[x] != 0 && (TLB(c, x) & BIT(pte[x])) == 0 ->
            TLB(c, x) = TLB(c, x) | BIT(pte[x])
        }
    od
}
#endif

init
{
    byte c;

    atomic {
        tab = 1;
        do
        :: c < OBJECTS -> live[c] = 1; pte[c] = 1; c++
        :: else -> break
        od;
        c = 0;
        do
        :: c < N ->
            can[c] = 1;
            CACHE(c, 0);
#if OBJECTS > 1
            CACHE(c, 1);
#endif
            c++
        :: else -> break
        od;
        run memory();
        c = 0;
        do
        :: c < N ->
            run cpu(c);
            run irq(c);
            if
            :: DOES(NMIS, c) > 0 -> run nmi(c)
            :: else
            fi;
            if
            :: DOES(SMIS, c) > 0 -> run smi(c)
            :: else
            fi;
            c++
        :: else -> break
        od;
#ifdef MMU
        run mmu();
#endif
        c = 0
    }
}
