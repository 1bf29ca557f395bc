package resource

import "testing"

// The count of a control group is the worker's own. The count of a machine is not: there the
// programs of the worker count.
func TestMemoryKills(t *testing.T) {
	counter := func(kills int64, ok bool) func() (int64, bool) { return func() (int64, bool) { return kills, ok } }
	var m MemoryKills
	m.Add()
	m.Add()
	for name, test := range map[string]struct {
		group, machine func() (int64, bool)
		kills          int64
		ok             bool
	}{
		"a control group":   {counter(7, true), counter(9, true), 7, true},
		"a machine":         {counter(0, false), counter(9, true), 2, true},
		"nothing is known":  {counter(0, false), counter(0, false), 2, false},
		"a group in memory": {counter(0, true), counter(9, true), 0, true},
	} {
		if kills, ok := m.total(test.group, test.machine); ok != test.ok || ok && kills != test.kills {
			t.Errorf("%s: %d, %t, want %d, %t", name, kills, ok, test.kills, test.ok)
		}
	}
	(*MemoryKills)(nil).Add() // a handler without a worker
}
