// Package chaos is `lab chaos`: it kills, freezes, evicts and cuts off workers at
// random for as long as wanted, and then judges what happened to every job.
//
//	incidents ── SIGKILL, SIGSTOP, notices, faults of calls ──▶ stage ──▶ facts ──▶ oracle ──▶ report
//
// The workers are the real program, with one more kind of job ([Steps]). Most of them also have a
// kind whose jobs are a program, which is this one again. Evictions are announced by the metadata
// service of the local Azure; faults of calls are injected by the proxies of package stage, which
// also records what happened.
//
// The seed of a run decides the incidents, their victims and the calls at which they
// happen. It does not decide where the processes are at that moment.
package chaos
