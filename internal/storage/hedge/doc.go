// Package hedge limits how long one try of a small storage call may take when time
// is short, as in a drain.
//
// A connection may die silently: the peer is gone, or a NAT dropped its entry, and
// no reply ever arrives. A request on it would wait for all the time that its caller
// has. So a try that is not answered within a second is cut off, which closes its
// connection; the idle connections are closed too, and the SDK's retry uses a fresh
// one:
//
//	try ── 1 s ──▶ cut ── 200 ms ──▶ retry on a fresh connection
//
// No later try of the same caller is cut off: if the retry is not answered either, the
// service is slow, and cutting off its calls would only make it slower.
//
// Repeating is safe. Records are written under a condition, so that the retry of
// a write that took effect is refused, and one read of the record then shows that
// it did. Deleting or releasing a message twice is harmless.
package hedge
