// Package jobs proves the results of a worker for a job and its operator: checkpoints,
// inputs, outputs, logs, follow-up jobs, cancels and pauses, and their counts.
package jobs
