package queue

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDecodePlain checks which messages are read without encoding/json.
func TestDecodePlain(t *testing.T) {
	for raw, want := range map[string]bool{
		`{"v":1,"id":"a","kind":"k","payload":{"a":[1,"} ,\""]},"enqueued_at":"2026-03-10T12:00:00.5Z","chosen_id":true}`: true,
		`{"v":1,"id":"a","kind":"k","resume":true}`:                             true,
		`{"v":1,"id":"a","kind":"k"}`:                                           true,
		`{"v":1,"id":"a"}`:                                                      false, // no kind
		`{"v":2,"id":"a","kind":"k"}`:                                           false, // another version
		`{"v":1,"id":"a","kind":"k","new":1}`:                                   false, // unknown field
		`{"v":1,"id":"a","kind":"k","max_run":1}`:                               false, // rare field
		`{"v":1,"id":"a","kind":"k","kind":"l"}`:                                false, // twice
		`{"v":1,"id":"a","kind":"k","payload":[1, 2]}`:                          false, // not compact
		`{"v":1,"id":"a\u0062","kind":"k"}`:                                     false, // escape
		`{"v":1,"i\u0064":"a","kind":"k"}`:                                      false, // escape in a name
		`{"v":1,"id":".a","kind":"k"}`:                                          false, // no valid id
		`{"v":1,"id":"a","kind":"k","resume":false}`:                            false,
		`{"v":1,"id":"a","kind":"k","enqueued_at":"2026-03-10T12:00:00+01:00"}`: false,
		`{"v":1,"id":"a","kind":"k","payload":"` + "\x00" + `"}`:                false, // no JSON
		`{"v":1,"id":"a","kind":"k","chosen_id":false}`:                         false,
		`{"v":1,"id":"a","kind":"k"` + `,"payload":"` + long(maxBeside) + `"}`:  true,
		`{"v":1,"id":"` + long(maxBeside) + `","kind":"k"}`:                     false, // too long
		`{"v":1,"id":"a","kind":"k","payload":1}` + "\n":                        false, // white space after the last value
		`{"v":1,"id":"a","kind":"k","payload" :1}`:                              false, // and before a value
		`{"v":1,"id":"é","kind":"k"}`:                                           false, // not ASCII
		`{"v":1,"id":12,"kind":"k"}`:                                            false, // no string
		`{"v":1,"id":"a","kind":"k"}` + "\n":                                    false, // white space, here and below
		"\n" + `{"v":1,"id":"a","kind":"k"}`:                                    false,
		`{"v":1 ,"id":"a","kind":"k"}`:                                          false,
		`{"v" :1,"id":"a","kind":"k"}`:                                          false,
		`{"v":1,"id":"a", "kind":"k"}`:                                          false,
		`{"v":1,"id":"a","kind":"k","\"":1}`:                                    false, // escaped quote in a name
		`{"v":1,"id":"a","kind":"k","":1}`:                                      false, // no name
		`{ }`:                                                                   false,
		`{}`:                                                                    false,
		`[1]`:                                                                   false,
		``:                                                                      false,
	} {
		if _, got := decodePlain([]byte(raw)); got != want {
			t.Errorf("decodePlain(%s) = %t, want %t", raw, got, want)
		}
	}
}

func long(n int) string { return strings.Repeat("x", n) }

// TestDecodePlainFields: a plain envelope has all its fields.
func TestDecodePlainFields(t *testing.T) {
	const raw = `{"v":1,"id":"a","kind":"k","enqueued_at":"2026-03-09T12:00:00Z","chosen_id":true,"resume":true` +
		`,"payload":"{\\\""}`
	got, ok := decodePlain([]byte(raw))
	want := Envelope{ID: "a", Kind: "k", EnqueuedAt: noon, ChosenID: true, Resume: true,
		Payload: Payload{data: []byte(`"{\\\""`), isJSON: true}}
	if diff := cmp.Diff(want, got, exactly); !ok || diff != "" {
		t.Errorf("decodePlain(%s): %t (-want +got)\n%s", raw, ok, diff)
	}
}

// FuzzDecodePlain: an envelope that is read without encoding/json is the same that
// encoding/json would have read.
func FuzzDecodePlain(f *testing.F) {
	for _, row := range decodeRows() {
		f.Add(rawEnvelope(row.text))
	}
	f.Add([]byte(`{"v":1,"id":"a","kind":"k","payload":{"a":[1,"} ,\""]},"enqueued_at":"2026-03-10T12:00:00.5Z","chosen_id":true}`))
	f.Add([]byte(`{"v":1,"id":"a","kind":"k","payload":null,"resume":true}`))
	f.Add([]byte(`{"v":1,"id":"a","kind":"k","payload":1}` + "\n"))
	f.Add([]byte(`{"v":1,"id":"a","kind":"k","payload" :1}`))
	f.Add([]byte(`{"v":1,"id":"a\"","kind":"\u006b","payload":1,"a\"":1}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, ok := decodePlain(raw)
		if !ok {
			return
		}
		want, err := decodeAny(raw)
		if diff := cmp.Diff(want, got, exactly); err != nil || diff != "" {
			t.Fatalf("decodePlain(%q): %v (-want +got)\n%s", raw, err, diff)
		}
	})
}
