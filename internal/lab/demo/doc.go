// Package demo is `lab demo`: real worker processes hash files on a local Azure
// while their VMs are killed, frozen and evicted, and a table compares promises with
// measurements.
//
//	files ──▶ queue    ──▶ stage: storage, workers on VMs, metadata service
//	                         │ facts, log lines       ▲
//	                         ▼                        │ kill, freeze, evict
//	                      history ──────────────▶ controller
//	                         │
//	              oracle, findings ──▶ report
//
// The history has the facts of package stage, and digests from the lab's own hashing. It takes from
// the workers' logs only when they started, hashed, stopped or released something. The findings
// are a pure function of the history, so each promise is tested with a history that breaks it.
package demo
