package control

import "testing"

func TestIsOn(t *testing.T) {
	for _, row := range []struct {
		worker, name string
		want         bool
	}{
		{"vmss_000001-0123abcd-0", "vmss_000001-0123abcd-0", true},
		{"vmss_000001-0123abcd-0", "VMSS_000001", true},
		{"vm-1-2-0123abcd-0", "vm-1", false},
		{"vm-1-2-0123abcd-0", "vm-1-2", true},
		{"vm-10-0123abcd-0", "vm-1", false},
		{"laptop-0", "laptop", true},
		{"laptop", "laptop", true},
	} {
		if got := IsOn(row.worker, row.name); got != row.want {
			t.Errorf("IsOn(%q, %q) = %t, want %t", row.worker, row.name, got, row.want)
		}
	}
	if IsOn("vm-1-0123abcd-0", "") {
		t.Error("a worker answers to no name")
	}
}
