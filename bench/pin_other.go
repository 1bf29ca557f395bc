//go:build !linux

package main

import (
	"errors"
	"time"
)

// pinCommand exists on Linux.
type pinCommand struct{}

// Run fails.
func (c *pinCommand) Run() error { return errors.New("processes are bound to cores on Linux only") }

// waited is not known here.
func waited(int) time.Duration { return 0 }

// residentBytes and connectionsOf are not known here.
func residentBytes(int) (all, ofFiles int64) { return 0, 0 }
func connectionsOf(int) int                  { return 0 }

// cores returns none: processes are not bound to cores here.
func cores() []int { return nil }
