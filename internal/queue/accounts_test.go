package queue

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
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
		few := placement(spread, "a", "b")
		q, err := few.Place(id, true)
		if at := AccountOf(id, 3); at == 2 != errors.Is(err, ErrAccounts) || at < 2 && q != few.shards[at].Main() {
			t.Fatalf("a program without the third account: Place(%s) = %v, %v; it belongs in account %d", id, q, err, at)
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
			a.shards[0].readErr.Store(&row.err)
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
