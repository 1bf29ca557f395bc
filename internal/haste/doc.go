// Package haste bounds how long one try of a small storage call waits for its
// answer once time is short, as in a drain.
//
// A connection may die without a sign: the peer is gone, a NAT forgot it, and
// nothing ever comes back. A request on it would wait for all the time that its
// caller has. So a first try that takes far longer than answers usually do is cut
// off, which closes its connection, the idle connections are closed too, and the
// SDK's retry goes out on a fresh one:
//
//	try ── 4 × the usual time, at least 500 ms ──▶ cut ── 200 ms ──▶ retry on a fresh connection
//
// The retry has far more time: where it is not answered either, the service is
// slow, and cutting its calls off would only make it slower.
//
// Repeating is safe. Records are written under a condition, so that the retry of
// a write that did take effect is refused, and one read of the record then shows
// that it did; a message that is deleted or released twice is gone all the same.
package haste
