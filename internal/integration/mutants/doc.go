// Package mutants breaks the worker on purpose, one rule at a time, and demands
// that the tests of package worker notice, each for the right reason: a suite that
// cannot fail proves nothing. table_test.go has the mutations. Nothing in the tree
// is touched: go test takes the changed file from elsewhere (-overlay).
//
// The most important ones are part of make integration; make mutants tries all of
// them. make test checks that each mutation still applies (apply_test.go), without
// running it. docs/proof.md has the table.
package mutants
