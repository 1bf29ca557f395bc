// Package storage is an Azure Storage account in memory: queues and block
// blobs behind the REST protocol that the unmodified Azure SDKs and the az
// command speak. It exists so that everything in this repository can be tried
// with nothing but Go, and so that a test can make storage fail as the real service
// does.
//
// In-process and HTTP requests take the same path:
//
//	Transport (in process) ─┐
//	                        ├─ route → authenticate → OnCall → body → wait → effect → OnResult → wait → reply
//	Blob, Queue (HTTP)     ─┘
//
// OnCall sees every call before it has an effect and answers with a Fault:
// latency before and after the effect, a slow link, a refusal, a connection cut
// before the effect or between the effect and its reply. OnResult sees the
// outcome. Bodies flow at the pace of the account's Bandwidth, which all calls
// share; a request whose body did not arrive whole has no effect.
//
// Requests are signed with the account's key or, over TLS, carry a token of
// package token's issuer, whom the identity endpoint of package imds asks too.
// There are no roles: every identity may do everything. A hook can refuse a call
// by its caller, Call.Principal.
//
// The first page of a listing has one item at most, and others may be short or empty, as
// the service may send them: a reader of the first page alone fails its tests.
// SetFullPages is for tests that count calls.
//
// Only the standard clock is used, and the in-process transport starts no
// goroutine, so that the whole account works inside a testing/synctest bubble.
//
// # Where things are
//
// This package takes requests in: transports, authentication, hooks with their faults,
// limits, inspection. Packages blobs and queues hold the state and have one function for
// each operation; they know neither each other nor this package. All three speak through
// package protocol, and bodies flow through package link.
//
// # What keeps it honest
//
// The suite in internal/test/integration/conformance runs on this package and on
// Azurite. A difference is a defect here, except where Azurite is known to
// accept what Azure refuses: there this package refuses too, since a test that
// passes on a lenient emulator says nothing about Azure.
//
// # What it leaves out
//
// Page and append blobs, leases of containers and writes under a lease, snapshots,
// versions, tags, copies, access policies, shared access signatures, and service
// properties. A request for one of them is answered with 501 NotImplemented or 400
// UnsupportedQueryParameter and names the missing feature.
//
// Metadata names are kept in lower case: HTTP libraries change their case, and
// Azure compares them without it.
package storage
