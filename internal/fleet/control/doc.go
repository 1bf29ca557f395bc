// Package control stores what operators ask of all workers of a deployment: one small
// blob, the control document, that operators change and every worker reads.
//
// It says whether claiming is paused, for all jobs or for some kinds, which workers are
// to drain, which VMs are quarantined, and which jobs were cancelled a moment ago:
//
//	spotctl ── Edit, If-Match ──▶ control document ◀── Read, If-None-Match ── workers, every 15 s
//
// A damaged document stops no worker: each keeps to its last version. [Store.Repair]
// replaces the document when an operator asks for that.
//
// A read that finds nothing new is a 304 without a body. A deployment without the
// document, or without its container, asks for nothing.
//
// The document asks; it decides nothing. Whether a job is cancelled is in the job's
// record (package checkpoint), which is written first. A worker that does not read the
// document in time, or is too old to know it, finds the record cancelled at its next
// write and commits nothing.
package control
