// Package jobs proves what a job and its operator get from a worker: results, checkpoints,
// inputs, outputs, logs, follow-up jobs, cancels and pauses, and what is counted of it.
package jobs
