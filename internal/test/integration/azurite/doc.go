// Package azurite runs Azurite, Microsoft's storage emulator, for integration
// tests. Everything in it but this comment has the build tag integration.
//
// Azurite gets slower with the depth of a queue, so tests on it keep to a few
// hundred messages and measure nothing.
package azurite
