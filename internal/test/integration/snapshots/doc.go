// Package snapshots freezes unchanged programs with CRIU and continues them on another
// worker: each must have the result of an undisturbed run.
package snapshots
