package sandbox

import (
	"errors"
	"strings"
	"testing"
)

func TestParseRange(t *testing.T) {
	for _, row := range []struct {
		text  string
		want  Range
		fault string
	}{
		{"", Range{}, ""},
		{"none", Range{}, ""},
		{"60578-61183", Range{60578, 61183}, ""},
		{"70000-70000", Range{70000, 70000}, ""},
		{"2147483647-2147483647", Range{2147483647, 2147483647}, ""},
		{"60578", Range{}, "FIRST-LAST"},
		{"a-b", Range{}, "FIRST-LAST"},
		{"-1-5", Range{}, "FIRST-LAST"},
		{"60578-99999999999", Range{}, "FIRST-LAST"},
		{"61183-60578", Range{}, "before it begins"},
		{"0-100", Range{}, "no person and no service"},
		{"9999-70000", Range{}, "no person and no service"},
		{"4294967290-4294967295", Range{}, "no person and no service"},
		{"60000-65534", Range{}, "nobody"},
		{"65535-70000", Range{}, "nobody"},
	} {
		got, err := ParseRange(row.text)
		if got != row.want || (err != nil) != (row.fault != "") || err != nil && !strings.Contains(err.Error(), row.fault) {
			t.Errorf("ParseRange(%q) = %v, %v, want %v, an error with %q", row.text, got, err, row.want, row.fault)
		}
	}
}

// TestParts: the workers of a VM never share an id.
func TestParts(t *testing.T) {
	r := Range{60578, 61183}
	owner := map[uint32]int{}
	for n := range 4 {
		part := r.part(n, 4)
		if part.First < r.First || part.Last > r.Last || part.size() != 151 {
			t.Errorf("part %d of %s = %s, want 151 of its ids", n, r, part)
		}
		for id := part.First; id <= part.Last; id++ {
			if other, taken := owner[id]; taken {
				t.Fatalf("id %d is in parts %d and %d", id, other, n)
			}
			owner[id] = n
		}
	}
}

// TestBarredUsers: no user is given out while there is a reason.
func TestBarredUsers(t *testing.T) {
	u := &Users{ids: Range{70001, 70003}, busy: map[uint32]bool{}, ended: map[uint32]bool{70001: true}, next: 70001}
	reason := errors.New("exposed")
	u.Bar(reason)
	if user, err := u.Take(); !errors.Is(err, reason) {
		t.Errorf("Take while barred = %v, %v, want the reason", user, err)
	}
	u.Bar(nil)
	if user, err := u.Take(); user.ID() != 70001 || err != nil {
		t.Errorf("Take afterwards = %v, %v, want a user", user, err)
	}
}

// TestTakeIsLate: an id is used again as late as possible, and never twice at once.
func TestTakeIsLate(t *testing.T) {
	u := &Users{ids: Range{70001, 70003}, busy: map[uint32]bool{}, ended: map[uint32]bool{}, next: 70001}
	take := func(want uint32) *User {
		t.Helper()
		user, _, err := u.take()
		if err != nil || user.ID() != want {
			t.Fatalf("take = %d, %v, want %d", user.ID(), err, want)
		}
		return user
	}
	first := take(70001)
	u.Put(first)
	take(70002)
	take(70003)
	take(70001)
	if user, _, err := u.take(); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("take with all in use = %v, %v, want an error", user, err)
	}
}

func TestOpenNeedsAnIDForEachSlot(t *testing.T) {
	_, err := Open(Config{Range: Range{60578, 61183}, Place: 3, Places: 4, Slots: 152})
	const want = "152 jobs at once need a user id each, and range 60578-61183 has 151 for each of the 4 workers that share it: " +
		"lower --concurrency (by default a job for each processor) to 151, or widen --program-users"
	if err == nil || err.Error() != want {
		t.Errorf("Open with 151 ids for 152 slots = %v, want %q", err, want)
	}
}

// TestNoUsers: without users of their own, programs run as the worker's.
func TestNoUsers(t *testing.T) {
	var none *Users
	user, err := none.Take()
	if user != nil || err != nil {
		t.Fatalf("Take = %v, %v, want no user", user, err)
	}
	ran := false
	if err := user.Do(func() error { ran = true; return nil }); err != nil || !ran {
		t.Errorf("Do = %v and ran: %t", err, ran)
	}
	none.Put(user)
	if err := none.End(user); err != nil || user.ID() != 0 || user.Clean() != nil || user.KillAll() != nil {
		t.Errorf("End = %v, want that nothing happens", err)
	}
}
