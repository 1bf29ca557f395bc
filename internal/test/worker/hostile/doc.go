// Package hostile proves that bad input and bad jobs harm themselves alone: messages,
// records, payloads and heartbeats that somebody forged or another version wrote, kinds that
// a worker lacks, jobs that kill or hang their worker, machines on which nothing works.
package hostile
