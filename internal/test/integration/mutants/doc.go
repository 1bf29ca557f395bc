// Package mutants runs mutation tests: it breaks one rule of the worker at a time, and
// demands that the tests fail, each for the right reason. A suite that cannot fail
// proves nothing. table_test.go has the mutations. The tree stays as it is: go test
// takes the changed file from elsewhere (-overlay).
//
// The most important ones are part of make integration; make mutants tries all of
// them. make test checks that each mutation still applies (apply_test.go), without
// running it. table.md lists them for people.
package mutants
