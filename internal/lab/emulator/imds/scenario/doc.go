// Package scenario plays scripted events on the metadata emulator, so that people can try
// the behaviour of their software when a VM is evicted, rebooted or frozen, or when the
// metadata service fails.
//
//	file ──▶ Parse ──▶ Scenario ──▶ Player ──▶ imds.Server ◀── clients
//	           │                      │             │
//	           └─ refuses what        └──── lines ◀─┘ what was asked, shown
//	              cannot happen                       and acknowledged
//
// [Parse] is strict: an unknown field, and a step that is not possible on Azure, are
// refused with file, line, column and reason. It validates the steps on a model of the
// VMs and events (validate.go).
// format.md describes the format; [Ready] holds scenarios that can be used as
// they are.
//
// A [Player] is one loop that applies the steps when they are due, and a narrator
// that sees every answer. Both print lines for people. Nothing in it
// reads the wall clock but through package time, so a scenario of hours runs in
// a testing/synctest bubble in no time.
package scenario
