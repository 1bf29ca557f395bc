//go:build linux

package main

import "testing"

func TestValues(t *testing.T) {
	v := values{3, 1, 2}
	if got := v.median(); got != 2 {
		t.Errorf("median of %v = %v, want 2", v, got)
	}
	if got := (values{4, 1, 2, 3}).median(); got != 2.5 {
		t.Errorf("median of four values = %v, want 2.5", got)
	}
	if got, want := v.show("%.1f"), "2.0 [1.0–3.0]"; got != want {
		t.Errorf("show = %s, want %s", got, want)
	}
	if got, want := v.over(values{2, 2, 0}).show("%.1f"), "1.0 [0.5–1.5]"; got != want {
		t.Errorf("ratios = %s, want %s: a round without a value has none", got, want)
	}
}
