// Package mutation tests tests: it makes small mistakes in the code of a package, one at a
// time, and counts how many of them the tests notice. Each mistake is a mutant.
//
// All mutants of a package are compiled once, each behind a switch:
//
//	if mutOn(17) && (n <= limit) || !mutOn(17) && (n < limit) {
//
// An environment variable turns one of them on. So a mutant costs the time of the tests that
// reach it, and no build. The sources of the repository stay as they are: the go command takes
// the changed files from elsewhere (-overlay).
//
//	Load      parses packages, makes mutants, drops those that do not compile
//	Judge     builds the tests, runs each test once to see which mutants it reaches,
//	          then runs for each mutant these tests: first tests that noticed another mutant
//	          of the same file, then tests of its own package, then the others, the shortest first
//	Baseline  is the share of noticed mutants by package, which may only rise
//
// A mutant that the tests notice by a failure, a panic or a loop is noticed. For a survivor a
// test is missing, or its code is not needed, or it changes nothing.
package mutation
