// Package metrics holds the Prometheus metrics of a worker.
//
//	worker  ──▶ Jobs, Platform ─┐
//	azure   ──▶ Storage         ├─▶ registry ──▶ /metrics
//	runtime ──▶ Go, process     ┘
//
// [Metrics.Observe] is the worker's observer.
// Every label has few values, which are known when the program starts: none is
// ever the name of a job, a blob or a VM. Series whose values are known in
// advance are there from the start, at 0, so that a rate over them is right
// from the first event on.
//
// docs/operating.md lists every metric and alert; a test of package workercmd compares it
// with the registered metrics.
package metrics
