// Package parts finds what integration tests need beside Go. Everything but this
// comment is built with the tag integration; see make integration.
package parts
