// Package histories proves the promises under many faults at once: random histories of a
// fleet. Each history depends on its seed alone. A plan (plan_test.go and the files
// named after their additions) says which jobs, workers, operators and faults there are;
// run_test.go runs it and judges the end; package recorder judges every call.
//
//	go test ./internal/test/worker/histories -run TestHistories -histories 1 -seed N
package histories
