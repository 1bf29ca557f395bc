// Package scratch has the folders of jobs: one [Root] for each worker, with a [Folder]
// for each job in it.
//
// scratch.go makes and removes both, leftovers.go removes the folders of dead workers,
// which it tells from living ones by the locks of lock_unix.go and lock_windows.go, and
// watch.go measures how much disk a job uses.
package scratch
