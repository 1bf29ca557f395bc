// Package conformance is a suite of facts about Azure Storage, written against
// the SDKs alone, that everything else in this repository relies on: receipts
// and their staleness, conditional writes, block lists, metadata, paging.
//
// It runs on this repository's own emulator, in process and over loopback, and
// on Azurite, Microsoft's emulator. The two must agree. Where Azurite is known
// to accept a request that Azure refuses, a laxity names the difference and its reason.
// The case demands the strict behaviour of every target that does not list it, and the
// lax behaviour of every target that does, so that the list cannot outlive its reasons.
//
// Each case is named after the fact that it checks, has a queue or container
// of its own, and keeps to a few hundred messages, since Azurite slows down
// with the depth of a queue.
package conformance
