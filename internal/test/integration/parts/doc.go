// Package parts finds what integration tests need beside Go; see make
// integration-tools.
package parts
