package durations

import (
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"90s": 90 * time.Second, "10m": 10 * time.Minute, "2h": 2 * time.Hour, "7d": 7 * day, "1d12h": 36 * time.Hour, "1.5d": 36 * time.Hour,
		"-1d": -day, "0": 0, "0s": 0, "1h30m": 90 * time.Minute, "1d1ms": day + time.Millisecond, "1500ms": 1500 * time.Millisecond,
		"36500d": 36500 * day,
	} {
		if got, err := Parse(text); err != nil || got != want {
			t.Errorf("Parse(%q) = %s, %v, want %s", text, got, err, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, text := range []string{"", "7", "d", "7 d", "7days", "1h2d", "1d-2h", "1d+2h", "1d2d",
		"1w", "9999999999d", "1e3d", "NaNd", "--1d", "1d "} {
		if got, err := Parse(text); err == nil {
			t.Errorf("Parse(%q) = %s, want an error", text, got)
		}
	}
}
