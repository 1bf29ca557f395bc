// Package push sends a worker's metrics to a remote-write endpoint of Prometheus, as Azure
// Monitor managed Prometheus has one.
//
//	every 15 s, and when a drain has ended ──▶ gather ──▶ protobuf, snappy ──▶ POST
//
// A worker that pushes needs no collector on its VM, and the figures of an eviction are
// sent before the VM goes: a scrape every minute sees the figures of every other VM at
// best. The protocol is remote write 1.0
// (https://prometheus.io/docs/specs/prw/remote_write_spec/). Nothing is kept for later: a
// push that fails is logged once, and the next one has newer values.
package push
