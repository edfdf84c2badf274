/*
 * tso.pml: x86-TSO for the models: each CPU has a FIFO buffer of stores that others do not see
 * yet.
 *
 * A plain store goes into the buffer of its CPU and becomes visible when commit() is run for it,
 * which the process `memory` does at any moment. Fences, locked operations, CR3 loads
 * (serialising) and the MFENCE before an IPI wait for an empty buffer. Loads happen in program
 * order and read memory when their statement runs; what a CPU wrote itself is kept beside it
 * wherever the code reads it back (store forwarding). Entering a handler does not empty the
 * buffer, though SDM 3A 12.10 says it does. Source: Sewell, Sarkar, Owens, Zappa Nardelli,
 * Myreen: x86-TSO, CACM 53(7), 2010; SDM 3A 9.2.
 *
 * A model defines N (CPUs), SB (entries of a buffer) and `inline commit(c, loc, val)`.
 */
chan buffer[N] = [SB] of { byte, byte };

#define STORE(c, loc, val) buffer[c]!loc,val
#define DRAINED(c)         empty(buffer[c])

proctype memory()
{
    byte loc, val;

end_memory:
    do
    :: atomic { buffer[0]?loc,val -> commit(0, loc, val); loc = 0; val = 0 }
#if N > 1
    :: atomic { buffer[1]?loc,val -> commit(1, loc, val); loc = 0; val = 0 }
#endif
#if N > 2
    :: atomic { buffer[2]?loc,val -> commit(2, loc, val); loc = 0; val = 0 }
#endif
    od
}
