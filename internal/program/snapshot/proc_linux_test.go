package snapshot

import (
	"slices"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/program/tree"
)

func TestParseMaps(t *testing.T) {
	const maps = `55e0 r--p 00000000 fe:00 12 /usr/bin/python3.11
55e1 r-xp 00001000 fe:00 12 /usr/bin/python3.11
7f00 rw-p 00000000 00:00 0
7f01 r--p 00000000 fe:00 13 /usr/lib/a lib.so
7f02 rw-s 00000000 00:01 14 /dev/zero (deleted)
7f03 rw-s 00000000 00:01 14 /memfd:x (deleted)
7f04 r--p 00000000 fe:00 15 /media/spotworker/work/data
7f05 rw-p 00000000 00:00 0 [stack]
`
	if got, want := parseMaps(maps), []string{"/usr/bin/python3.11", "/usr/lib/a lib.so"}; !slices.Equal(got, want) {
		t.Errorf("parseMaps = %q, want %q", got, want)
	}
}

// TestHostileInit bounds what an init that was taken over can send.
func TestHostileInit(t *testing.T) {
	s, err := NewSession(Config{}, tree.NewCommand([]string{"/bin/true"}, tree.Limits{}))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	sent := make(chan int, 1)
	go func() {
		n, part := 0, []byte(strings.Repeat("x", 64<<10))
		written, err := s.theirs.WriteString(`{"error":"`)
		for ; err == nil; written, err = s.theirs.Write(part) {
			n += written
		}
		sent <- n
	}()
	if _, err := s.Take(t.Context(), "snapshot-1", false); err == nil {
		t.Error("Take with an endless reply = nil")
	}
	s.Close()
	if n := <-sent; n > 8*maxReply {
		t.Errorf("%d bytes were read or kept of an endless reply", n)
	}
}

// TestSystemCallFilter refuses a worker whose programs inherit a filter.
func TestSystemCallFilter(t *testing.T) {
	for status, want := range map[string]bool{
		"Name:\tworker\nSeccomp:\t2\nSeccomp_filters:\t9\n": true, "Seccomp:\t0\nSeccomp_filters:\t0\n": false, "Name:\tworker\n": false,
	} {
		if got := isFiltered([]byte(status)); got != want {
			t.Errorf("isFiltered(%q) = %t, want %t", status, got, want)
		}
	}
}
