/*
 * purge_wait.pml: the mutex of the purge, whose waiters halt, on x86-TSO: no wake-up is lost, no
 * waiter is on the stack twice, and who is served by somebody else's pass is served by one that
 * began after the request.
 *
 * Each CPU unmaps something and calls vm_unmap_aliases(): REQUESTS times in task context, OFF
 * times with interrupts off, IRQS times in a handler; TRIES passes are those of
 * purge_lazy_added(), which waits for nobody. Decimal digits, CPU 0 last. What a pass flushes for
 * certain is what was unmapped, and visible, when it took its stamp; that flushes work and
 * spinning CPUs answer them is shown by tlb_gen.pml.
 *
 * mirrors mm/vmap_purge.c: purge_trylock purge_unlock purge_wait purge_lock purge_lazy_added
 * mirrors mm/vmap_purge.c: purge_pass
 * mirrors mm/vmap_purge.c: vm_unmap_aliases
 * mirrors arch/x86_64/smp.c: smp_wait_flag
 */
#ifndef N
#define N 2
#endif
#ifndef SB
#define SB 3
#endif
#ifndef REQUESTS
#define REQUESTS 0
#endif
#ifndef OFF
#define OFF 0
#endif
#ifndef IRQS
#define IRQS 0
#endif
#ifndef TRIES
#define TRIES 0
#endif
#define DOES(what, c) ((c) == 0 -> (what) % 10 : ((c) == 1 -> (what) / 10 % 10 : (what) / 100))

/* ---- memory ---- */

byte mutex;               /* CPU + 1 */
byte waiters;             /* CPU + 1 of the first, 0: none */
byte next[N];
bool woken[N];            /* read by CPU n only */
byte begun, served;       /* purge.begun, purge.done */
byte gone[N];             /* how much CPU n has unmapped so far */

#define L_BEGUN 0
#define L_DONE  1
#define L_MUTEX 2
#define L_NEXT  3
#define L_WOKEN 6
#define L_GONE  9

inline commit(c, loc, val)
{
    if
    :: loc == L_BEGUN -> begun = val
    :: loc == L_DONE -> served = val
    :: loc == L_MUTEX -> mutex = val
    :: loc >= L_NEXT && loc < L_WOKEN -> next[loc - L_NEXT] = val
    :: loc >= L_WOKEN && loc < L_GONE -> woken[loc - L_WOKEN] = val
    :: loc >= L_GONE -> gone[loc - L_GONE] = val
    fi
}

#include "tso.pml"

/* ---- one CPU's own ---- */

bool masked[N], halted[N], in_irq[N];
bool ipi[N];
bool pushed[N];
byte unmapped[N];         /* as `gone`, but counted when the store is made */

/* ---- what is judged ---- */

byte flushed[N];          /* no TLB holds anything of what CPU n had unmapped up to here */
bool stacked[N];

/* ---- vmap_purge.c ---- */

inline trylock(c) /* purge_trylock() */
{
    if
    :: mutex != 0 -> got = 0
    :: else ->
        atomic { DRAINED(c) -> got = (mutex == 0);
            if
            :: got -> mutex = c + 1
            :: else
            fi
        }
    fi
}

inline take_stack()
{
    w = waiters; waiters = 0;
    stacked[0] = 0; stacked[1] = 0;
#if N > 2
    stacked[2] = 0;
#endif
}

inline unlock(c) /* purge_unlock() */
{
#ifdef TAKE_FIRST
    atomic { DRAINED(c) -> take_stack() };
    atomic { DRAINED(c) -> mutex = 0 };
#elif defined(UNLOCK_PEEK)
    STORE(c, L_MUTEX, 0);
    if
    :: waiters != 0 -> atomic { DRAINED(c) -> take_stack() }
    :: else
    fi;
#else
    atomic { DRAINED(c) -> mutex = 0 };            /* ATOMIC_XCHG(purge.mutex, 0) */
    atomic { DRAINED(c) -> take_stack() };         /* ATOMIC_XCHG(purge.waiters, NULL) */
#endif
    do
    :: w == 0 -> break
    :: else ->
#ifndef NEXT_LATE
        after = next[w - 1];
#endif
#ifdef WAKE_FIRST
        if
        :: w - 1 != c -> atomic { DRAINED(c) -> ipi[w - 1] = 1 }
        :: else
        fi;
#endif
        if
        :: w - 1 == c -> woken[c] = 1              /* only c reads it: forwarded */
        :: else -> STORE(c, L_WOKEN + w - 1, 1)
        fi;
#ifndef WAKE_FIRST
        if
        :: w - 1 != c -> atomic { DRAINED(c) -> ipi[w - 1] = 1 } /* smp_wake() */
        :: else
        fi;
#endif
#ifdef NEXT_LATE
        after = next[w - 1];
#endif
        w = after
    od;
    after = 0
}

inline wait_woken(c) /* smp_wait_flag(&w->woken) */
{
    masked[c] = 1;
    do
    :: woken[c] -> break
    :: else ->
        atomic { masked[c] = 0; halted[c] = 1 };
        atomic { !halted[c] -> masked[c] = 1 }
    od;
    masked[c] = 0
}

inline wait_halted(c) /* purge_wait() in task context with interrupts on */
{
#ifndef PUSH_AT_ONCE
    if
    :: pushed[c] -> wait_woken(c)
    :: else -> pushed[c] = 1
    fi;
#endif
#ifndef WOKEN_LATE
    STORE(c, L_WOKEN + c, 0);
#endif
#ifdef CHECK_FIRST
    if
    :: mutex == 0 -> got = 1
    :: else -> got = 0
    fi;
#endif
    first = waiters;
    do
    :: STORE(c, L_NEXT + c, first);
        atomic { DRAINED(c) ->
            if
            :: waiters == first -> assert(!stacked[c]);
                waiters = c + 1; stacked[c] = 1; first = 0; break
            :: else -> first = waiters
            fi
        }
    od;
#ifdef WOKEN_LATE
    STORE(c, L_WOKEN + c, 0);
#endif
#ifdef CHECK_FIRST
    if
    :: got -> trylock(c)
    :: else
    fi;
    if
    :: got -> unlock(c); got = 0
    :: else
    fi;
#elif !defined(NO_RECHECK)
    if
    :: mutex == 0 -> trylock(c)
    :: else
    fi;
#ifdef GIVE_BACK
    if
    :: got -> unlock(c); got = 0
    :: else
    fi;
#endif
#endif
    if
    :: got                                         /* the node stays where it is */
    :: else -> wait_woken(c)
    fi
}

#ifdef BEGUN_INCLUDED
#define SERVES(b) (served >= (b))
#else
#define SERVES(b) (served > (b))
#endif

/* purge_lock(): result in `how`. A spinning waiter is woken by what it looks at. */
#define LOCKED       1
#define SERVED       2
#define NOT_POSSIBLE 3

#ifdef WAITS_FOR_ITSELF
#define OVER_OWN_PASS(c, context) false
#else
#define OVER_OWN_PASS(c, context) ((context) == IRQ && mutex == c + 1)
#endif

#define TASK     0
#define TASK_OFF 1
#define IRQ      2

/* The end of a spin loop's turns that change nothing. */
#define SPIN_TURN (mutex == 0 || SERVES(before))

inline lock(c, context)
{
#ifdef NO_REQUEST_FENCE
    before = begun;
#else
    atomic { DRAINED(c) -> before = begun };       /* behind the smp_mb() */
#endif
    do
    :: trylock(c);
        if
        :: got -> how = LOCKED; break
        :: !got && OVER_OWN_PASS(c, context) -> how = NOT_POSSIBLE; break
        :: !got && !OVER_OWN_PASS(c, context) && (context) == TASK -> wait_halted(c)
        :: !got && !OVER_OWN_PASS(c, context) && (context) != TASK -> SPIN_TURN
        fi;
        if
        :: got -> how = LOCKED; break
        :: !got && SERVES(before) -> how = SERVED; break
        :: else
        fi
    od;
    atomic { before = 0; got = 0 }
}

/* The stamp, and the flush for it: everything that was visible then is gone when it has passed. */
inline flush(c)
{
    atomic { DRAINED(c) -> snap[0] = gone[0]; snap[1] = gone[1];
#if N > 2
        snap[2] = gone[2];
#endif
    };
    atomic {
        flushed[0] = (snap[0] > flushed[0] -> snap[0] : flushed[0]);
        flushed[1] = (snap[1] > flushed[1] -> snap[1] : flushed[1]);
#if N > 2
        flushed[2] = (snap[2] > flushed[2] -> snap[2] : flushed[2]); snap[2] = 0;
#endif
        snap[0] = 0; snap[1] = 0
    }
}

inline pass(c) /* purge_pass() */
{
#ifdef BEGUN_LATE
    flush(c);
    number = begun + 1;
    STORE(c, L_BEGUN, number);
#else
    number = begun + 1;
    STORE(c, L_BEGUN, number);
    flush(c);                                      /* the smp_mb() before it is its stamp's fence */
#endif
    atomic { STORE(c, L_DONE, number) -> number = 0 }
}

inline unmap(c) /* plain stores */
{
    atomic { STORE(c, L_GONE + c, unmapped[c] + 1) -> unmapped[c]++; mine = unmapped[c] }
}

inline finish(c) /* vm_unmap_aliases() behind purge_lock() */
{
    if
    :: how == LOCKED -> pass(c); unlock(c)
    :: how == SERVED
    :: how == NOT_POSSIBLE -> flush(c)             /* tlb_gen_sync(tlb_gen_stamp()) */
    fi;
    atomic { assert(flushed[c] >= mine); how = 0; mine = 0 }
}

proctype cpu(byte c) provided (!in_irq[c])
{
    byte requests = DOES(REQUESTS, c), off = DOES(OFF, c), tries = DOES(TRIES, c);
    byte w, after, first, before, how, mine, number, snap[N];
    bool got;

    do
    :: requests > 0 -> requests--;
        unmap(c);
        lock(c, TASK);
        finish(c)
    :: off > 0 -> atomic { off--; masked[c] = 1 };
        unmap(c);
        lock(c, TASK_OFF);
        finish(c);
        masked[c] = 0
    :: tries > 0 -> tries--;                       /* purge_lazy_added() */
        trylock(c);
        if
        :: got -> flush(c); unlock(c); got = 0
        :: else
        fi
    :: requests + off + tries == 0 ->
end_done:
        false
    od
}

proctype irq(byte c)
{
    byte device = DOES(IRQS, c);
    byte w, after, first, before, how, mine, number, snap[N];
    bool got;

end_irq:
    do
    :: atomic { !masked[c] && ipi[c] -> ipi[c] = 0; halted[c] = 0 }
    :: atomic { !masked[c] && device > 0 -> device--; in_irq[c] = 1 };
        unmap(c);
        lock(c, IRQ);
        finish(c);
        atomic { halted[c] = 0; in_irq[c] = 0 }
    od
}

init
{
    byte c;

    atomic {
        run memory();
        do
        :: c < N -> run cpu(c); run irq(c); c++
        :: else -> break
        od;
        c = 0
    }
}
