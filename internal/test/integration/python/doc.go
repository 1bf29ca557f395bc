// Package python runs the tests of the Python client against a deployment with a worker, on the
// embedded storage and on Azurite, and reads with Go what Python has put. Its tests are built
// with the tag integration.
package python
