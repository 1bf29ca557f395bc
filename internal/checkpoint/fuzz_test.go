package checkpoint

import (
	"errors"
	"maps"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// FuzzRecord gives a record any metadata that the service can hold: it is either left
// unchanged, or read, ruled on by the rules of docs/FORMATS.md, claimed and
// written in a form that can be read again, with its unknown keys. The input has
// a key and a value on each line, with a colon between them.
func FuzzRecord(f *testing.F) {
	for _, r := range goldenRecords() {
		f.Add(linesOf(plain(r.metadata())))
	}
	for _, seed := range []string{
		"", "v:1", "v:2\nstatus:done", "v:1\nstatus:done", "V:1\nStatus:running\nMessageId:m-1", "v:1\nstatus:paused",
		"v:1\ngeneration:9223372036854775807\nsilentends:9007199254740992", "v:1\npaid:9223372036854", "v:1\nstatesize:-1",
		"v:1\ncreatedat:0000-01-01T00:00:00+23:59", "v:1\nendedat:9999-12-31T23:59:59.999-00:01", "v:1\nreason:%ff%00%E2%80%A6",
		"v:1\nprogress:NaN", "v:1\nprogress:1e400", "v:01", "v:+1", "v:1\npriority:7\nx:~",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		metadata := metadataOf(text)
		if metadata == nil {
			return // the service would not hold it
		}
		r, err := parse(ours.ID, pointers(metadata))
		if err != nil {
			checkUnreadable(t, r, err)
			return
		}
		checkRuling(t, &r)
		checkWrites(t, r)
	})
}

// checkUnreadable demands that no claim changes a record which cannot be read.
func checkUnreadable(t *testing.T, r Record, err error) {
	t.Helper()
	r.ModifiedAt = noon.Add(-100 * time.Hour)
	if !errors.Is(err, errUnreadable) || r.Version != 0 {
		t.Fatalf("parse = version %d, %v, want version 0 and errUnreadable", r.Version, err)
	}
	if got := OnDelivery(&r, ours, noon); got != Unreadable {
		t.Fatalf("OnDelivery = %s, want unreadable", got)
	}
	if got := OnConflict(&r, ours, Attempt{Token: r.Token, Write: r.Write}); got != Unreadable {
		t.Fatalf("OnConflict = %s, want unreadable", got)
	}
}

// checkRuling demands that a job counts as ended only if its record is of the same
// work and final, or of a later run, and is acquired only if it is open, the message's own or stale.
func checkRuling(t *testing.T, r *Record) {
	t.Helper()
	same := (r.Kind == "" || r.Kind == ours.Kind) && (r.PayloadHash == "" || r.PayloadHash == ours.PayloadHash)
	final := r.Status == "done" || r.Status == "poison" || r.Status == "cancelled"
	for _, age := range []time.Duration{0, time.Minute, 2 * time.Hour} {
		r.ModifiedAt = noon.Add(-age)
		free := r.Status == "open" || r.Status == "running" && (r.MessageID == ours.MessageID || age > time.Hour)
		switch got := OnDelivery(r, ours, noon); {
		case r.Again > 0 && got == Finish: // ours is of the first run
		case r.Again > 0, got == Finish && !(same && final), got == Acquire && !(same && free), got == Create, (got == Mismatch) == same:
			t.Fatalf("OnDelivery = %s for %+v, %s after its last write", got, r, age)
		}
	}
	r.ModifiedAt = time.Time{}
}

// checkWrites demands that the record can be written again as it stands, and
// after everything that a claim may count.
func checkWrites(t *testing.T, r Record) {
	t.Helper()
	again, err := parse(ours.ID, headers(t, r))
	if diff := cmp.Diff(canonical(r), canonical(again), exactly); err != nil || diff != "" {
		t.Fatalf("written and read again: %v (-read +again)\n%s", err, diff)
	}
	for range 3 {
		r.ChargedExits, _ = UncleanExits(Record{Status: Running, MessageID: ours.MessageID, ChargedExits: r.ChargedExits, Charge: true}, ours)
		_, r.EarlyExits = UncleanExits(Record{Status: Running, MessageID: ours.MessageID, EarlyExits: r.EarlyExits}, ours)
		r.Generation, r.Write, r.Failures, r.Interruptions = r.Generation+1, r.Write+1, r.Failures+1, r.Interruptions+1
		r.RunTime += 1000 * time.Hour
		claimed, err := parse(ours.ID, headers(t, r))
		if err != nil || claimed.Generation <= 0 || claimed.ChargedExits <= 0 || claimed.EarlyExits <= 0 || claimed.Failures <= 0 ||
			claimed.RunTime <= 0 {
			t.Fatalf("claimed: %+v, %v, want a record that can be read, with counts above 0", claimed, err)
		}
		if !maps.Equal(claimed.unknown, r.unknown) {
			t.Fatalf("unknown keys became %v, want %v", claimed.unknown, r.unknown)
		}
		r = claimed
	}
}

// headers returns a record's metadata, whose values must be fit for headers.
func headers(t *testing.T, r Record) map[string]*string {
	t.Helper()
	metadata := r.metadata()
	checkHeaders(t, metadata)
	return metadata
}

// canonical is a record as it is after a rewrite: times and fractions rounded as
// they are written, free text cut.
func canonical(r Record) Record {
	for _, at := range []*time.Time{&r.CreatedAt, &r.ClaimedAt, &r.EndedAt} {
		*at = at.UTC().Truncate(time.Millisecond)
	}
	r.Fraction = math.Round(r.Fraction*1e4) / 1e4
	for text, limit := range map[*string]int{&r.Text: maxText, &r.Owner: maxOwner, &r.Reason: maxReason} {
		*text, _ = unescape(escape(*text, limit))
	}
	return r
}

// metadataOf reads the input of a fuzz target. It returns nil for metadata that the
// service does not hold: keys that are no identifiers, values that are empty or not
// printable ASCII, more than 8 KiB.
func metadataOf(text string) map[string]string {
	if len(text) > 8<<10 {
		return nil
	}
	metadata := map[string]string{}
	for line := range strings.SplitSeq(text, "\n") {
		key, value, _ := strings.Cut(line, ":")
		value = strings.Trim(value, " ")
		if key == "" && value == "" {
			continue
		}
		if !identifier(key) || value == "" || strings.ContainsFunc(value, func(c rune) bool { return c < ' ' || c > '~' }) {
			return nil
		}
		metadata[strings.ToLower(key)] = value
	}
	return metadata
}

func identifier(s string) bool {
	for i, c := range s {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

func linesOf(metadata map[string]string) string {
	var lines []string
	for key, value := range metadata {
		lines = append(lines, key+":"+value)
	}
	return strings.Join(lines, "\n")
}
