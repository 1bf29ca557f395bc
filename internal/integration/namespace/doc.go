// Package namespace runs a test in a network of its own, in which the fixed
// address of Azure's metadata service is this machine's and from which nothing
// can leave. It is the only place where the worker's real default address is
// tested. Linux only; everything but this comment is built with the tag
// integration.
package namespace
