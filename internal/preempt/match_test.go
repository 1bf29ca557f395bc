package preempt

import "testing"

func TestNames(t *testing.T) {
	tests := []struct {
		name      string
		resources []string
		want      bool
	}{
		// Uniform: <scale set>_<number>
		{"workers_3", []string{"workers_3"}, true},
		{"workers_3", []string{"WORKERS_3"}, true},
		{"Workers_3", []string{"workers_3"}, true},
		{"workers_3", []string{"workers_1", "workers_2", "workers_3"}, true},
		{"workers_3", []string{"workers_30"}, false},
		{"workers_30", []string{"workers_3"}, false},
		{"workers_3", []string{"workers"}, false},
		{"workers_3", []string{"other_3"}, false},
		{"workers_3", []string{"3"}, false},
		{"workers_3", []string{"workers-3"}, false},
		// Flexible: <scale set>_<8 characters>
		{"workers_1a2b3c4d", []string{"workers_1A2B3C4D"}, true},
		{"workers_1a2b3c4d", []string{"workers_1a2b3c4e"}, false},
		// single
		{"build-vm", []string{"Build-VM"}, true},
		{"build-vm", []string{"build-vm2", "a-build-vm"}, false},
		// nobody
		{"workers_3", nil, false},
		{"workers_3", []string{""}, false},
		{"", []string{""}, false},
		{"", []string{"workers_3"}, false},
	}
	for _, tt := range tests {
		e := Event{Resources: tt.resources}
		if got := e.Names(Identity{Name: tt.name, ScaleSet: "workers"}); got != tt.want {
			t.Errorf("event for %q names %q: %t, want %t", tt.resources, tt.name, got, tt.want)
		}
	}
}
