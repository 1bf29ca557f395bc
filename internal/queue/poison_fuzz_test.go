package queue

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// FuzzPoison looks for texts that crash a reader of the poison queue, that
// pass as a poison message and change on their way, or that lead to a blob which
// is not the message's own. The seeds are JSON, which is read as base64 of it.
func FuzzPoison(f *testing.F) {
	for _, seed := range []string{
		``, `{}`, `[]`, `null`, `{"v":1}`, `{"v":"1"}`, `{"v":2,"poisoned_at":"2026-03-09T12:00:00Z"}`,
		`{"v":1,"reason":"r","poisoned_at":"2026-03-09T12:00:00Z","worker":"w","origin":"q","message_id":"m-1","body":"eyJ2IjoxfQ=="}`,
		`{"v":1,"reason":"r","poisoned_at":"2026-03-09T12:00:00Z","message_id":"m-1","body_blob":"poison/m-1"}`,
		`{"v":1,"reason":"r","poisoned_at":"2026-03-09T12:00:00Z","message_id":"../3e2/b","body_blob":"poison/../3e2/b"}`,
		`{"v":1,"reason":"r","poisoned_at":"2026-03-09T12:00:00Z","message_id":"m/1","body_blob":"poison/m/1"}`,
		`{"v":1,"reason":"r","poisoned_at":"2026-03-09T12:00:00Z","message_id":"","body_blob":"poison/"}`,
		`{"v":1,"reason":"r","poisoned_at":"9999-12-31T23:59:59-23:59","POISONED_AT":"2026-03-09T12:00:00Z"}`,
		`{"v":1,"reason":"\ud800","poisoned_at":"2026-03-09T12:00:00Z","id":"a","id":"b"}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		if len(raw) > maxJSON {
			return // no message has it
		}
		p, err := DecodePoison(inBase64(raw))
		if err != nil {
			if !errors.Is(err, ErrNotPoison) || len(err.Error()) > 2*maxInvalid {
				t.Fatalf("DecodePoison(%q) = %v, want a short error that is ErrNotPoison", raw, err)
			}
			return
		}
		checkPoison(t, p)
	})
}

// checkPoison demands what replay and purge rely on.
func checkPoison(t *testing.T, p Poison) {
	t.Helper()
	if p.BodyBlob != "" && p.checkBlob() == nil && (p.BodyBlob != "poison/"+p.MessageID || strings.ContainsAny(p.MessageID, "/.\\%?#") ||
		p.MessageID == "") {
		t.Fatalf("%+v may name the blob %q", p, p.BodyBlob)
	}
	text, err := p.encode()
	var tooLarge *TooLargeError
	switch {
	case errors.As(err, &tooLarge):
		return // its escapes take more room when they are written again
	case err != nil && !p.PoisonedAt.Before(time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)), err != nil && p.PoisonedAt.Year() < 0:
		return // a time that RFC 3339 has no words for in another zone
	case err != nil:
		t.Fatalf("%+v cannot be written: %v", p, err)
	}
	again, err := DecodePoison(text)
	if diff := cmp.Diff(p, again); err != nil || diff != "" {
		t.Fatalf("written and read again: %v (-before +after)\n%s", err, diff)
	}
}
