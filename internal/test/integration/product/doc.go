// Package product runs the worker against real components. Its tests are built
// with the tag integration; see make integration.
package product
