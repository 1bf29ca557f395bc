// Package rig runs workers in virtual time, on emulated storage and metadata services, for
// the tests beside it. [Run] gives a test a [Bed] in a bubble of testing/synctest, where an
// hour passes in milliseconds and every call can be made to fail:
//
//	Bed      the services, and clients with which a test fills and inspects them
//	Process  a worker with a VM and a Link of its own, which can be stopped and killed
//	Link     its connection: cut, held, slow, or with a fault for each request
//	Steps    a handler that counts what it repeats; and others
//
// It holds workers to nothing: that is the business of package recorder and of the tests.
package rig
