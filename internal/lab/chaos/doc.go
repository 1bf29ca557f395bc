// Package chaos takes worker processes away at random for as long as wanted, and
// then says of every job what became of it.
//
//	              ┌──────── door (one per VM) ───────┐
//	worker ──────▶│ notes what took effect; cuts off │──────▶ storage
//	  ▲           └────────────────┬─────────────────┘
//	  │ SIGKILL, SIGSTOP           │
//	director                     tally ──▶ judge ──▶ report
//
// The workers are the real program, with one more kind of job ([Steps]). Most of
// them also have a kind whose jobs are a program, which is this one again. Each
// reaches storage through a [door] of its own: a proxy that therefore knows who
// did what, and can reset, swallow or delay calls, or cut the VM off for a while.
// Evictions are announced by the metadata service of the local Azure. Storage is
// the emulator or anything else that speaks its protocol, such as Azurite.
//
// The [tally] keeps what the doors saw of each record: which write followed
// which, by their ETags, so that the order is the storage's own and not that in
// which replies happened to come by. judge derives from it whether a promise was
// broken, without a word from the workers. worstIdle derives from who held which
// message how long a job waited beside a worker that could have taken it.
//
// A run has a seed. It decides what is drawn: which incident, which victim, at
// which call. When the processes are where, the machine decides.
package chaos
