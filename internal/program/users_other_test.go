//go:build !linux

package program

import (
	"testing"

	"github.com/spotworker/spotworker/internal/host/sandbox"
)

func testUsers(*testing.T) *sandbox.Users { return nil }

func scratchParent(t *testing.T) string { return t.TempDir() }

func writableForAll(t *testing.T) string { return t.TempDir() }
