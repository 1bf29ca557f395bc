package checkpoint

import (
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
)

// found is a record of our work, changed as a row says.
func found(change func(*Record)) *Record {
	r := &Record{
		ID: ours.ID, Version: Version, Status: Running, Kind: ours.Kind, PayloadHash: ours.PayloadHash,
		MessageID: ours.MessageID, Token: "theirs", Write: 7, ETag: "now", ModifiedAt: noon,
	}
	if change != nil {
		change(r)
	}
	return r
}

// The rows are the sentences of docs/DESIGN.md on the rights of a delivery by the record
// that it finds, in their order.
func TestOnDelivery(t *testing.T) {
	const long = 1000 * time.Hour
	otherKind := func(s Status) *Record { return found(func(r *Record) { r.Kind, r.Status = "other", s }) }
	otherPayload := func(s Status) *Record { return found(func(r *Record) { r.PayloadHash, r.Status = "other", s }) }
	status := func(s Status) *Record { return found(func(r *Record) { r.Status = s }) }
	anothers := func(s Status) *Record { return found(func(r *Record) { r.Status, r.MessageID = s, other.MessageID }) }
	for _, row := range []struct {
		sentence string
		found    *Record
		age      time.Duration // since the record was written, by the service's clock
		want     Ruling
	}{
		{"none: create it before working", nil, 0, Create},

		{"kind compared before the status: open", otherKind(Open), 0, Mismatch},
		{"kind compared before the status: running", otherKind(Running), long, Mismatch},
		{"kind compared before the status: done", otherKind(Done), 0, Mismatch},
		{"kind compared before the status: poison", otherKind(Poison), 0, Mismatch},
		{"kind compared before the status: cancelled", otherKind(Cancelled), 0, Mismatch},
		{"kind compared before the status: unknown", otherKind("paused"), 0, Mismatch},
		{"payload compared before the status", otherPayload(Done), 0, Mismatch},
		{"an empty kind matches everything", found(func(r *Record) { r.Kind, r.Status = "", Cancelled }), 0, Finish},
		{"an empty hash matches everything", found(func(r *Record) { r.PayloadHash, r.Status = "", Open }), 0, Acquire},
		{"an empty kind does not excuse another hash", found(func(r *Record) { r.Kind, r.PayloadHash = "", "other" }), 0, Mismatch},

		{"done: finish what is left", status(Done), 0, Finish},
		{"poison: finish what is left", status(Poison), 0, Finish},
		{"cancelled: finish what is left", status(Cancelled), 0, Finish},
		{"done by another message", anothers(Done), 0, Finish},

		{"open: claim it", status(Open), 0, Acquire},
		{"open, left by another message: claim it", anothers(Open), 0, Acquire},
		{"running and owned by this message: claim it", status(Running), 0, Acquire},

		{"running for another message: put back", anothers(Running), 0, PutBack},
		{"not written for nearly an hour: put back", anothers(Running), time.Hour - 1, PutBack},
		{"not written for an hour: take over", anothers(Running), time.Hour, Acquire},
		{"written in the reader's future: put back", anothers(Running), -time.Hour, PutBack},

		{"unknown status: touch nothing", status("paused"), long, Unreadable},
		{"no status: touch nothing", status(""), 0, Unreadable},
		{"unknown status of another message", anothers("paused"), long, Unreadable},
		{"put again since, and open: this run is over", found(func(r *Record) { r.Again, r.Status = 3, Open }), 0, Finish},
		{"put again since, as other work", found(func(r *Record) { r.Again, r.Status, r.Kind = 3, Running, "other" }), 0, Finish},
		{"newer version: touch nothing", found(func(r *Record) { r.Version = Version + 1 }), 0, Unreadable},
		{"newer version, put again since", found(func(r *Record) { r.Again, r.Version = 3, Version+1 }), 0, Unreadable},
		{"newer version of other work", found(func(r *Record) { r.Version, r.Kind = Version+1, "other" }), 0, Unreadable},
		{"no record of ours", found(func(r *Record) { r.Version = 0 }), 0, Unreadable},
	} {
		if got := OnDelivery(row.found, ours, noon.Add(row.age)); got != row.want {
			t.Errorf("%s: OnDelivery = %s, want %s", row.sentence, got, row.want)
		}
	}
}

// The rows are the sentences on the one read after a conflict or a doubt.
func TestOnConflict(t *testing.T) {
	const token, number = "our token", 5
	by := func(token string, write int, s Status) *Record {
		return found(func(r *Record) { r.Token, r.Write, r.Status = token, write, s })
	}
	anothers := func(s Status) *Record {
		return found(func(r *Record) { r.Status, r.MessageID = s, other.MessageID })
	}
	for _, row := range []struct {
		sentence string
		found    *Record
		under    azcore.ETag
		want     Ruling
	}{
		{"our token and this number: it took effect", by(token, 5, Running), "old", Effective},
		{"so did a commit", by(token, 5, Done), "old", Effective},
		{"so did a release", by(token, 5, Open), "old", Effective},
		{"so did a create", by(token, 5, Running), "", Effective},
		{"our token, an older number, running: repeat", by(token, 4, Running), "old", Repeat},
		{"our token on a record that a late create made", by(token, 1, Running), "", Repeat},
		{"our token, an older number, but open: it ended the claim", by(token, 4, Open), "old", PutBack},
		{"our token, an older number, but done", by(token, 4, Done), "old", Finish},
		{"our token, an older number, but poison", by(token, 4, Poison), "old", Finish},
		{"our token and a newer number: not ours to repeat", by(token, 6, Running), "old", Fenced},
		{"another's token and this number prove nothing", by("theirs", 5, Running), "old", Fenced},
		{"nothing was written since the read: acquire again", by("theirs", 9, Open), "now", Repeat},
		{"nothing was written to the record of an unclean exit", by("theirs", 9, Running), "now", Repeat},
		{"a create has no ETag to compare", found(func(r *Record) { r.ETag = "" }), "", Fenced},

		{"no record: repeat the create", nil, "", Create},
		{"no record any more: repeat as a create", nil, "old", Create},

		{"done: finish", by("theirs", 5, Done), "old", Finish},
		{"poison: finish", by("theirs", 5, Poison), "old", Finish},
		{"cancelled: finish", by("theirs", 5, Cancelled), "old", Finish},
		{"open: put ours back", by("theirs", 5, Open), "old", PutBack},
		{"another message's: put ours back", anothers(Running), "old", PutBack},
		{"another message's, left open: put ours back", anothers(Open), "", PutBack},
		{"our message's, acquired again: touch nothing", by("theirs", 5, Running), "old", Fenced},

		{"put again since: this run is over", found(func(r *Record) { r.Again, r.Status, r.Token = 3, Open, "operator" }), "old", Finish},
		{"other kind, before the status", found(func(r *Record) { r.Kind, r.Status = "other", Done }), "old", Mismatch},
		{"other kind, before our token", found(func(r *Record) { r.Kind, r.Token, r.Write = "other", token, 5 }), "old", Mismatch},
		{"other payload", found(func(r *Record) { r.PayloadHash = "other" }), "", Mismatch},
		{"cancelled before any claim", found(func(r *Record) { r.Kind, r.PayloadHash, r.Status = "", "", Cancelled }), "", Finish},

		{"unknown status: touch nothing", by("theirs", 5, "paused"), "old", Unreadable},
		{"newer version: touch nothing", found(func(r *Record) { r.Version, r.Token, r.Write = Version+1, token, 5 }), "old", Unreadable},
	} {
		attempt := Attempt{Token: token, Write: number, Under: row.under}
		if got := OnConflict(row.found, ours, attempt); got != row.want {
			t.Errorf("%s: OnConflict = %s, want %s", row.sentence, got, row.want)
		}
	}
}
