// Package crashpoints proves that a worker may fail at any of its storage calls: it runs
// each scenario once for every call and every fault, and other workers finish the jobs.
// Scenarios are in scenarios_test.go, the faults in crash_test.go.
package crashpoints
