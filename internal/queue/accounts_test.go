package queue

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage/queues"
)

// placement returns accounts of those names. The first says over which of them jobs are
// spread; nil if nothing was read.
func placement(s *Spread, names ...string) *Accounts {
	var shards []*Shards
	for i, name := range names {
		if i == 0 {
			name = ""
		}
		shards = append(shards, NewShardsIn(name, "jobs", func(string) *azqueue.QueueClient { return nil }))
	}
	shards[0].spread.Store(s)
	return NewAccounts(names, shards)
}

// TestPlace: a chosen id stays in its account when accounts are added, in every program,
// and a program that does not know its account refuses it.
func TestPlace(t *testing.T) {
	one := &Spread{IDs: 1}
	grown := &Spread{Names: []string{"a", "b", "c"}, IDs: 1}
	spread := &Spread{Names: []string{"a", "b", "c"}, IDs: 3}
	otherOrder := &Spread{Names: []string{"a", "c", "b"}, IDs: 3}
	byAccount := map[string]int{}
	for i := range 300 {
		id := fmt.Sprintf("job-%d", i)
		for _, tt := range []struct {
			name    string
			from    *Accounts
			chosen  bool
			account int // where the job belongs; -1 where it is refused
		}{
			{"one account, nothing read", placement(nil, "a"), true, 0},
			{"one account", placement(one, "a"), true, 0},
			{"several, nothing read", placement(nil, "a", "b"), true, -1},
			{"several, nothing recorded", placement(one, "a", "b"), true, -1},
			{"several, nothing recorded, a new id", placement(one, "a", "b"), false, 0},
			{"chosen ids stay", placement(grown, "a", "b", "c"), true, 0},
			{"new ids spread", placement(grown, "a", "b", "c"), false, AccountOf(id, 3)},
			{"chosen ids spread", placement(spread, "a", "b", "c"), true, AccountOf(id, 3)},
			{"new ids go where a program may put them", placement(spread, "a", "b"), false, AccountOf(id, 2)},
			{"another order", placement(otherOrder, "a", "b", "c"), true, -1},
			{"another order, a new id", placement(otherOrder, "a", "b", "c"), false, -1},
			{"another order of two", placement(&Spread{Names: []string{"b", "a"}, IDs: 2}, "a", "b"), true, -1},
			{"one account of another name", placement(&Spread{Names: []string{"x"}, IDs: 1}, "a"), true, 0},
		} {
			q, err := tt.from.Place(id, tt.chosen)
			switch {
			case tt.account < 0:
				if !errors.Is(err, ErrAccounts) {
					t.Fatalf("%s: Place(%s) = %v, %v; want ErrAccounts", tt.name, id, q, err)
				}
			case err != nil || q != tt.from.shards[tt.account].Main():
				t.Fatalf("%s: Place(%s) = %v, %v; want account %d", tt.name, id, q, err, tt.account)
			}
		}
		for _, few := range []*Accounts{placement(spread, "a", "b"), placement(spread, "a")} {
			q, err := few.Place(id, true)
			at := AccountOf(id, 3)
			if known := at < few.Len(); known == errors.Is(err, ErrAccounts) || known && q != few.shards[at].Main() {
				t.Fatalf("a program with %d accounts: Place(%s) = %v, %v; it belongs in account %d", few.Len(), id, q, err, at)
			}
		}
		byAccount[fmt.Sprint(AccountOf(id, 3))]++
	}
	for account, n := range byAccount {
		if n < 60 {
			t.Errorf("account %s has %d of 300 jobs, want about 100", account, n)
		}
	}
}

// TestPlaceWhileTheFirstAccountIsSilent: only an outage of the first account sends new ids
// to the others, and no chosen id.
func TestPlaceWhileTheFirstAccountIsSilent(t *testing.T) {
	answer := func(status int) error {
		return fmt.Errorf("read: %w", &azcore.ResponseError{StatusCode: status})
	}
	for name, row := range map[string]struct {
		err    error
		silent bool
	}{
		"nothing was read":         {nil, false},
		"no answer":                {context.DeadlineExceeded, true},
		"no name":                  {&net.DNSError{IsNotFound: true}, true},
		"an error of the service":  {answer(500), true},
		"throttled":                {answer(429), true},
		"refused":                  {answer(403), false},
		"no such queue":            {answer(404), false},
		"metadata makes no sense":  {fmt.Errorf("%w: x", ErrAccounts), false},
		"numbers make no sense":    {fmt.Errorf("%w: x", ErrShards), false},
		"the producer was stopped": {context.Canceled, false},
	} {
		for i := range 100 {
			id := fmt.Sprintf("job-%d", i)
			a := placement(nil, "a", "b", "c")
			if row.err != nil {
				a.shards[0].readErr.Store(&row.err)
			}
			if q, err := a.Place(id, true); !errors.Is(err, ErrAccounts) {
				t.Fatalf("%s: Place of a chosen id = %v, %v, want ErrAccounts", name, q, err)
			}
			q, err := a.Place(id, false)
			isOther := err == nil && (q == a.shards[1].Main() || q == a.shards[2].Main())
			if isOther != row.silent || !row.silent && !errors.Is(err, ErrAccounts) {
				t.Fatalf("%s: Place of a new id = %v, %v, want another account: %t", name, q, err, row.silent)
			}
		}
	}
}

// TestPlaceKnowsTheSpread: an outage of the first account after its spread was read changes
// nothing: a program with other accounts puts no job.
func TestPlaceKnowsTheSpread(t *testing.T) {
	a := placement(&Spread{Names: []string{"a", "c", "b"}, IDs: 3}, "a", "b", "c")
	silent := context.DeadlineExceeded
	a.shards[0].readErr.Store(&silent)
	if q, err := a.Place("job-1", false); !errors.Is(err, ErrAccounts) {
		t.Errorf("Place = %v, %v, want ErrAccounts", q, err)
	}
}

// TestReadToPutReadsAccountsTogether: accounts are read at one time, and all were read when the
// call returns.
func TestReadToPutReadsAccountsTogether(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		a := NewAccounts([]string{"a", "b"}, []*Shards{b.shards(t), b.shards(t)})
		b.OnCall(func(storage.Call) storage.Fault { return storage.Fault{Before: time.Second} })
		begun := time.Now()
		a.ReadToPut(t.Context())
		if took := time.Since(begun); took != time.Second {
			t.Errorf("reading two accounts took %s, want the second of one call", took)
		}
		time.Sleep(putAge)
		a.shards[0].readAt.Store(new(time.Now())) // the first needs no call
		a.ReadToPut(t.Context())
		if at := a.shards[1].readAt.Load(); time.Since(*at) != 0 {
			t.Errorf("the second account was read %s ago, want just now", time.Since(*at))
		}
	})
}

// TestReadToPutFails: a read that fails is the reason why accounts are not known, and is not
// repeated for a minute; a read that its caller cancelled is.
func TestReadToPutFails(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		a := NewAccounts([]string{"a"}, []*Shards{b.shards(t)})
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		b.OnCall(func(storage.Call) storage.Fault { return storage.Fault{Before: time.Second} })
		a.ReadToPut(cancelled)
		b.OnCall(func(storage.Call) storage.Fault {
			return storage.Fault{Refuse: &storage.Error{Status: 403, Code: "AuthorizationPermissionMismatch"}}
		})
		b.ResetCounts()
		for range 3 {
			a.ReadToPut(t.Context())
		}
		if n := b.Counts()[storage.OpGetQueueMetadata]; n != 1 {
			t.Errorf("calls of three reads after a cancelled one = %d, want 1", n)
		}
		if _, err := a.Known(); !errors.Is(err, ErrAccounts) || !strings.Contains(err.Error(), "AuthorizationPermissionMismatch") {
			t.Errorf("Known = %v, want ErrAccounts with the refusal", err)
		}
	})
}

// TestParseSpread: metadata that makes no sense is refused, in names of any case.
func TestParseSpread(t *testing.T) {
	for _, tt := range []struct {
		accounts, ids string
		want          string
	}{
		{"", "", "[] 1"}, {"a", "", "[a] 1"}, {"a,b", "", "[a b] 2"}, {"a,b", "1", "[a b] 1"},
		{"a,b", "3", ""}, {"a,,b", "", ""}, {"a", "x", ""}, {"a,b", "-1", ""},
	} {
		metadata := map[string]*string{}
		if tt.accounts != "" {
			metadata["Accounts"] = &tt.accounts
		}
		if tt.ids != "" {
			metadata["accountIDs"] = &tt.ids
		}
		s, err := parseSpread(metadata)
		if got := fmt.Sprint(s.Names, " ", s.IDs); (err != nil) != (tt.want == "") || err == nil && got != tt.want {
			t.Errorf("parseSpread(%q, %q) = %s, %v; want %q", tt.accounts, tt.ids, got, err, tt.want)
		}
	}
}

// TestSpreadLimits: a spread has at most [MaxAccounts] accounts, and chosen ids one at least.
func TestSpreadLimits(t *testing.T) {
	names := strings.Split(strings.Repeat("a,", MaxAccounts-1)+"a", ",")
	for _, tt := range []struct {
		names []string
		ids   string
		valid bool
	}{
		{names, "1", true}, {names, "16", true}, {names, "17", false}, {names, "0", true}, {append(names, "a"), "1", false},
	} {
		s, err := parseSpread(map[string]*string{accountsKey: new(strings.Join(tt.names, ",")), accountIDsKey: &tt.ids})
		if (err == nil) != tt.valid {
			t.Errorf("%d accounts, %s of them for chosen ids: %+v, %v, want valid %t", len(tt.names), tt.ids, s, err, tt.valid)
		}
	}
	if AccountOf("b", 2) == AccountOf("a", 2) && AccountOf("c", 2) == AccountOf("a", 2) && AccountOf("d", 2) == AccountOf("a", 2) {
		t.Error("four jobs are all in one of two accounts")
	}
}

// TestWriteSpread: the spread is written to the first queue and read from there; ids are
// written only if they are fewer than the accounts.
func TestWriteSpread(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		a := NewAccounts([]string{"a", "b"}, []*Shards{b.shards(t), b.shards(t)})
		if a.Name(1) != "b" || a.Name(2) != "" {
			t.Errorf("names %q and %q, want b and none", a.Name(1), a.Name(2))
		}
		for _, want := range []Spread{{Names: []string{"a", "b"}, IDs: 1}, {Names: []string{"a", "b"}, IDs: 2}} {
			if err := a.Write(t.Context(), want); err != nil {
				t.Fatal(err)
			}
			other := NewAccounts([]string{"a", "b"}, []*Shards{b.shards(t), b.shards(t)})
			other.ReadToPut(t.Context())
			for _, from := range []*Accounts{a, other} {
				if got, err := from.Known(); err != nil || !cmp.Equal(got, want) {
					t.Errorf("the spread = %+v, %v, want %+v", got, err, want)
				}
			}
			metadata, err := b.jobs.properties(t.Context())
			if _, written := metadata.Metadata["Accountids"]; err != nil || written != (want.IDs == 1) {
				t.Errorf("ids are written: %t, %v in %v", written, err, slices.Collect(maps.Keys(metadata.Metadata)))
			}
			if other.shards[1].readAt.Load() == nil {
				t.Error("the second account was not read")
			}
		}
		b.OnCall(func(c storage.Call) storage.Fault {
			return storage.Fault{DropRequest: c.Operation != storage.OpGetQueueMetadata}
		})
		if err := a.Write(t.Context(), Spread{Names: []string{"a", "b", "c"}, IDs: 1}); err == nil {
			t.Error("Write without a network = <nil>, want an error")
		}
		b.OnCall(func(c storage.Call) storage.Fault {
			return storage.Fault{DropRequest: c.Operation == storage.OpGetQueueMetadata}
		})
		b.ResetCounts()
		if err := a.Write(t.Context(), Spread{Names: []string{"a"}, IDs: 1}); err == nil || b.Counts()[queues.OpSetQueueMetadata] != 0 {
			t.Errorf("Write over unread metadata = %v, want an error and no write", err)
		}
		if got, err := a.Known(); err != nil || got.Accounts() != 2 {
			t.Errorf("after a failed write the spread = %+v, %v, want the last one", got, err)
		}
		if err := a.shards[0].Write(t.Context(), ShardCounts{4, 4}); err == nil || a.shards[0].Counts().Put != 1 {
			t.Errorf("Write of shards without a network = %v, %+v, want an error and one queue", err, a.shards[0].Counts())
		}
	})
}
