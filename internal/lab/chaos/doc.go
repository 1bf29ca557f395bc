// Package chaos is `lab chaos`: it kills, freezes, evicts and cuts off workers at
// random for as long as wanted, and then judges what happened to every job.
//
//	              ┌─────── proxy (one per VM) ───────┐
//	worker ──────▶│ records effects, injects faults  │──────▶ storage
//	  ▲           └────────────────┬─────────────────┘
//	  │ SIGKILL, SIGSTOP           ▼
//	incidents                  recorder ──▶ oracle ──▶ report
//
// The workers are the real program, with one more kind of job ([Steps]). Most of
// them also have a kind whose jobs are a program, which is this one again. Each
// reaches storage through a proxy of its own, which therefore knows who did what,
// and can reset, swallow or delay calls, or cut the VM off. Evictions are
// announced by the metadata service of the local Azure. Storage is the emulator or
// another implementation of its protocol, such as Azurite.
//
// The recorder keeps the history of each record and who held which message when.
// Package oracle judges it, without a word from the workers.
//
// The seed of a run decides the incidents, their victims and the calls at which they
// happen. It does not decide where the processes are at that moment.
package chaos
