// Package fleets proves the throughput and the cost of workers: many jobs on one worker,
// many workers at the limits of queues and accounts, how soon idle ones pick a job up,
// how much memory and how many log lines they take. Figures that docs state are measured
// here:
//
//	go test ./internal/test/worker/fleets -run TestNoticeTo -figures
package fleets
