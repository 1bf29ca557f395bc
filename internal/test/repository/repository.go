// Package repository finds the files of this repository for tests.
package repository

import (
	"os"
	"path/filepath"
	"testing"
)

// Root returns the root of this module's source: the nearest folder above the calling test
// that has a go.mod.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatalf("find the repository: %v", err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("find the repository: no go.mod above the test")
		}
	}
}
