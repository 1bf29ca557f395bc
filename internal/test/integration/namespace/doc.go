// Package namespace runs a test in a network namespace of its own, in which the fixed
// address of Azure's metadata service is on the loopback interface and which has no
// route out. It is the only place where the worker's real default address is
// tested. Linux only; everything but this comment is built with the tag
// integration.
package namespace
