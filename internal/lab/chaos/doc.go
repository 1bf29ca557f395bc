// Package chaos takes worker processes away at random for as long as wanted, and
// then says of every job what became of it.
//
//	              ┌──────── door (one per VM) ───────┐
//	worker ──────▶│ notes what took effect; cuts off │──────▶ storage
//	  ▲           └────────────────┬─────────────────┘
//	  │ SIGKILL, SIGSTOP           │
//	director                     tally ──▶ judge ──▶ report
//
// The workers are the real program, with one more kind of job ([Steps]). Each
// reaches storage through a [door] of its own, which therefore knows who did
// what, and can take effect away from a call, or its reply, or the whole network
// for a while. Storage is the emulator or anything else that speaks its
// protocol, such as Azurite.
//
// The [tally] keeps what the doors saw of each record: which write followed
// which, by their ETags, so that the order is the storage's own and not that in
// which replies happened to come by. judge derives from it whether a promise was
// broken, without a word from the workers.
//
// A run has a seed. It decides what is drawn: which incident, which victim, at
// which call. When the processes are where, the machine decides.
package chaos
