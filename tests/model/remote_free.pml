/*
 * remote_free.pml: freed slots on their way to the owner of their block, on x86-TSO: none is
 * lost, none is taken twice or before its entry is cleared, and no block is deleted that somebody
 * still holds.
 *
 * CPU 0 owns two blocks of two slots, a page and an entry each. CPUs 1 and 2 free any live slot,
 * FREES times (two digits, CPU 1 last); both may try the same one. The owner takes the steps of
 * refill() whenever they are possible, in any order, which is more than the code does. A
 * generation passes when each of the others has been outside a read section since the stamp: an
 * interrupt may come anywhere.
 *
 * mirrors mm/vmap_pcpu.h: pslot_claim_remote pblock_claim
 * mirrors mm/vmap_pcpu.c: pblock_free_remote collect_remote collect_block stamp_block recycle trim_empty
 * mirrors mm/vmap_pcpu.c: pblock_release pblock_is_queued pblock_delete
 * mirrors mm/vmap_purge.c: purge_by_generation settle
 */
#define N 3
#ifndef SB
#define SB 2
#endif
#ifndef FREES
#define FREES 11 /* of CPU 2 and CPU 1 */
#endif
#ifndef REUSES
#define REUSES 1
#endif
#define BLOCKS 2
#define SLOTS  4 /* of block b: 2 * b and 2 * b + 1 */
#define BIT(slot) (1 << ((slot) % 2))

/* ---- memory ---- */

bool kind[SLOTS];         /* pslot.kind: live */
bool pte[SLOTS];
byte remote[BLOCKS];
bool queued[BLOCKS];      /* remote_queued */
byte next[BLOCKS];        /* remote_next: block + 1, 0: none */
byte head;                /* pqueue.remote */
byte collecting;          /* of it, what the owner has taken and not yet collected */

#define L_PTE    0
#define L_KIND   4
#define L_NEXT   8
#define L_HEAD   10
#define L_REMOTE 11
#define L_QUEUED 13

inline commit(c, loc, val)
{
    if
    :: loc >= L_QUEUED -> queued[loc - L_QUEUED] = val
    :: loc >= L_REMOTE && loc < L_QUEUED -> remote[loc - L_REMOTE] = val
    :: loc == L_HEAD -> head = val
    :: loc >= L_NEXT && loc < L_HEAD -> next[loc - L_NEXT] = val
    :: loc >= L_KIND && loc < L_NEXT -> kind[loc - L_KIND] = val
    :: loc < L_KIND -> pte[loc] = val
    fi
}

#include "tso.pml"

/* ---- the owner's ---- */

byte pending[BLOCKS], waiting[BLOCKS], free[BLOCKS];

/* ---- what is judged ---- */

mtype = { LIVE, CLAIMED, FREED, TAKEN };
mtype state[SLOTS];
mtype = { NOWHERE, LAZY, STAMPED, FLUSHED };
mtype purge[BLOCKS];      /* where the purge has the block */
bool deleted[BLOCKS];
bool section[N];          /* in a read section */
byte late[BLOCKS];        /* CPUs, 1 and 2, that were in one ever since the block's stamp */
byte done;

inline read_begin(c)
{
    section[c] = 1; late[0] = late[0] & ~c; late[1] = late[1] & ~c
}

/* tlb_gen_passed() for the stamp of block b. */
#define PASSED(b) (((late[b] & 1) == 0 || !section[1]) && ((late[b] & 2) == 0 || !section[2]))

/* ---- everybody's side ---- */

/* pblock_claim(): of two frees of one mapping, one gets it. */
inline claim(c)
{
#ifdef CLAIM_PLAIN
    got = kind[slot];
    STORE(c, L_KIND + slot, 0);
#else
    atomic { DRAINED(c) -> got = kind[slot]; kind[slot] = 0 };
#endif
    if
    :: got -> atomic { assert(state[slot] == LIVE); state[slot] = CLAIMED }
    :: else
    fi;
    section[c] = 0                                 /* tlb_gen_read_end() */
}

inline set_bit(c) /* ATOMIC_OR(b->remote[...]) */
{
    assert(!deleted[b]);
#ifdef OR_PLAIN
    old = remote[b];
    atomic { STORE(c, L_REMOTE + b, old | BIT(slot)) -> state[slot] = FREED; old = 0 }
#else
    atomic { DRAINED(c) -> remote[b] = remote[b] | BIT(slot); state[slot] = FREED }
#endif
}

inline push(c)
{
    first = head;
#ifdef PUSH_PLAIN
    STORE(c, L_NEXT + b, first);
    STORE(c, L_HEAD, b + 1)
#else
    do
    :: atomic { STORE(c, L_NEXT + b, first) -> assert(!deleted[b]) };
        atomic { DRAINED(c) ->                     /* ATOMIC_CAS(q->remote, &first, b) */
            if
            :: head == first -> head = b + 1; break
            :: else -> first = head
            fi
        }
    od
#endif
}

inline free_remote(c) /* pblock_free_remote() */
{
#ifndef NO_SECTION
    atomic { read_begin(c) };
#endif
#ifndef QUEUED_FIRST
    set_bit(c);
#endif
    atomic { got = queued[b]; assert(!deleted[b]) };
#ifdef PUSH_ALWAYS
    got = 0;
#endif
    if
    :: !got ->
#ifdef QUEUED_PLAIN
        STORE(c, L_QUEUED + b, 1);
#else
        atomic { DRAINED(c) -> got = queued[b]; queued[b] = 1; assert(!deleted[b]) };
#endif
#ifdef PUSH_ALWAYS
        got = 0;
#endif
    :: else
    fi;
#ifdef QUEUED_FIRST
    set_bit(c);
#endif
    if
    :: !got -> push(c)
    :: else
    fi;
    section[c] = 0
}

proctype freer(byte c)
{
    byte slot, b, first, left = (c == 1 -> FREES % 10 : FREES / 10);
    byte old;
    bool got;

    do
    :: left == 0 -> break
    :: left > 0 && !(kind[0] || kind[1] || kind[2] || kind[3]) -> left--
    :: atomic { left > 0 && (kind[0] || kind[1] || kind[2] || kind[3]) ->
            if
            :: kind[0] -> slot = 0
            :: kind[1] -> slot = 1
            :: kind[2] -> slot = 2
            :: kind[3] -> slot = 3
            fi;
            left--; b = slot / 2;
            read_begin(c)
        };
        claim(c);
        if
        :: got ->
#ifdef CLEAR_LAST
            free_remote(c);
            STORE(c, L_PTE + slot, 0)
#else
            STORE(c, L_PTE + slot, 0);             /* ptmap_table_unmap() */
            free_remote(c)
#endif
        :: else
        fi;
        atomic { got = 0; first = 0; slot = 0; b = 0 }
    od;
    atomic { DRAINED(c) -> done++ }
}

/* ---- the owner's side ---- */

inline note_free(s) /* pblock_note_free() */
{
    if
    :: (bits & BIT(s)) != 0 ->
        assert(state[s] == FREED && !pte[s]);
        state[s] = TAKEN;
        pending[b] = pending[b] | BIT(s)
    :: else
    fi
}

/* The list as it is becomes what the owner collects, a block at a time; other steps come between. */
inline take_list()
{
#ifdef QUEUED_AT_ONCE
    atomic {
        DRAINED(0) -> collecting = head; head = 0; list = collecting;
        do
        :: list == 0 -> break
        :: else -> queued[list - 1] = 0; list = next[list - 1]
        od
    }
#else
    atomic { DRAINED(0) -> collecting = head; head = 0 }
#endif
}

inline collect_one()
{
    b = collecting - 1;
    assert(!deleted[b]);
#ifndef NEXT_LATE
    collecting = next[b];
#endif
#if !defined(QUEUED_LATE) && !defined(QUEUED_AT_ONCE)
    atomic { DRAINED(0) -> queued[b] = 0 };        /* ATOMIC_XCHG(b->remote_queued, 0) */
#endif
    assert(!deleted[b]);
    if
    :: remote[b] != 0 ->
#ifdef TAKE_PLAIN
        bits = remote[b];
        STORE(0, L_REMOTE + b, 0)
#else
        atomic { DRAINED(0) -> bits = remote[b]; remote[b] = 0 }
#endif
    :: else
    fi;
    atomic { note_free(2 * b); note_free(2 * b + 1); bits = 0 };
#ifdef QUEUED_LATE
    atomic { DRAINED(0) -> queued[b] = 0 };
#endif
#ifdef NEXT_LATE
    collecting = next[b];
#endif
    b = 0
}

#ifdef REST_FORGOTTEN
#define MAY_TAKE (head != 0)
#else
#define MAY_TAKE (collecting == 0 && head != 0)
#endif

#ifdef TRIM_QUEUED
#define TRIM_ALLOWED(b) true
#else
#define TRIM_ALLOWED(b) (!queued[b])
#endif

inline block_steps(x)
{
    if
    :: pending[x] != 0 && waiting[x] == 0 ->       /* stamp_block() */
        waiting[x] = pending[x]; pending[x] = 0; late[x] = 3
    :: waiting[x] != 0 && PASSED(x) ->             /* recycle() */
        free[x] = free[x] | waiting[x]; waiting[x] = 0; late[x] = 0
#ifdef TRIM
    :: free[x] == 3 && TRIM_ALLOWED(x) ->          /* trim_empty(), pblock_release() */
        free[x] = 0; purge[x] = LAZY
#endif
    fi
}

/* A free slot is mapped again: pblock_take(). */
inline reuse(s)
{
    atomic { free[s / 2] = free[s / 2] & ~BIT(s); assert(!pte[s] && state[s] == TAKEN) };
    STORE(0, L_PTE + s, 1);
    atomic { STORE(0, L_KIND + s, 1) -> state[s] = LIVE }
}

proctype owner()
{
    byte list, b, bits, reuses = REUSES;
    bool last;

    do
    :: MAY_TAKE -> take_list()
    :: collecting != 0 -> collect_one()
    :: atomic { block_steps(0) }
    :: atomic { block_steps(1) }
    :: reuses > 0 && (free[0] & 1) != 0 -> reuses--; reuse(0)
    :: reuses > 0 && (free[1] & 1) != 0 -> reuses--; reuse(2)
    :: done == 2 && head == 0 && collecting == 0 -> break
    od;
    /* All frees have returned and all is collected. */
    assert(state[0] == LIVE || state[0] == TAKEN);
    assert(state[1] == LIVE || state[1] == TAKEN);
    assert(state[2] == LIVE || state[2] == TAKEN);
    assert(state[3] == LIVE || state[3] == TAKEN)
}

#ifdef TRIM
#ifdef NO_SETTLE_CHECK
#define IS_QUEUED(x) false
#else
#define IS_QUEUED(x) (queued[x])
#endif

inline purge_steps(x)
{
    if
    :: purge[x] == LAZY -> purge[x] = STAMPED; late[x] = 3
    :: purge[x] == STAMPED && PASSED(x) -> purge[x] = FLUSHED; late[x] = 0
    :: purge[x] == FLUSHED -> purge[x] = (IS_QUEUED(x) -> LAZY : NOWHERE);
        deleted[x] = purge[x] == NOWHERE
    fi
}

/* purge_by_generation() and settle(), on any CPU: of the block they touch remote_queued only. */
proctype purger()
{
end_purger:
    do
    :: atomic { purge_steps(0) }
    :: atomic { purge_steps(1) }
    od
}
#endif

init
{
    byte s;

    atomic {
        do
        :: s < SLOTS -> kind[s] = 1; pte[s] = 1; state[s] = LIVE; s++
        :: else -> break
        od;
        purge[0] = NOWHERE; purge[1] = NOWHERE;
        run memory();
#ifdef TRIM
        run purger();
#endif
        run owner();
        run freer(1);
        run freer(2);
        s = 0
    }
}
