//go:build !linux

package tree

// DivideTasks returns no limit: only Linux counts the threads of all programs together.
func DivideTasks(int) Tasks { return Tasks{} }

// SharedTasks returns no limit.
func SharedTasks() int { return 0 }
