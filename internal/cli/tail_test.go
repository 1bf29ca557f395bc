package cli

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// TestTail: a log's last whole lines are kept, in order, whatever came before.
func TestTail(t *testing.T) {
	tail := &Tail{}
	log, closeLog := (&Log{LogLevel: "info", LogFormat: "json"}).OpenLog(&bytes.Buffer{}, tail)
	log.Info("first")
	if got := tail.String(); !strings.Contains(got, `"first"`) || strings.Count(got, "\n") != 1 {
		t.Errorf("the end of a short log is %q", got)
	}
	const lines = 5000
	for i := range lines {
		log.Info("line", "n", i)
		if got := tail.String(); !strings.HasPrefix(got, `{"time"`) {
			t.Fatalf("after %d lines the end begins with %.40q", i, got)
		}
	}
	closeLog()
	got := tail.String()
	last := fmt.Sprintf(`"n":%d}`+"\n", lines-1)
	if len(got) > TailSize || len(got) < TailSize-200 || !strings.HasPrefix(got, `{"time"`) || !strings.HasSuffix(got, last) {
		t.Errorf("the end has %d bytes, from %.40q to %q", len(got), got, got[max(0, len(got)-40):])
	}
	if none := (*Tail)(nil).String(); none != "" {
		t.Errorf("no tail has %q", none)
	}
}
