package storage_test

import (
	"testing"

	"github.com/spotworker/spotworker/internal/lab/emulator/conformance"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
)

func TestConformanceInProcess(t *testing.T) {
	s := storage.New(storage.Options{})
	s.SetFullPages() // pages are counted
	conformance.Run(t, conformance.Target{
		ConnectionString: s.ConnectionString(),
		Transport:        s.Transport(),
		Clock:            conformance.VirtualTime,
	})
}

func TestConformanceOverLoopback(t *testing.T) {
	s := storage.New(storage.Options{})
	s.SetFullPages() // pages are counted
	connectionString, err := s.Listen(storage.Addresses{})
	if err != nil {
		t.Fatalf("Listen: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	conformance.Run(t, conformance.Target{ConnectionString: connectionString})
}
