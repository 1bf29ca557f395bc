// Package isolated runs tests in processes of their own: with a small file system, with
// limits of their own, or with the rights of a deployed worker.
package isolated
