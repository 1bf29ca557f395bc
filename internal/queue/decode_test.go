package queue

import (
	"errors"
	"strings"
	"testing"
)

// decodeRow is a text and its type: an envelope, another program's message, or an
// envelope that cannot be used.
type decodeRow struct {
	name, text string
	id         string // of the envelope; of the InvalidError where it is one
	reason     string // part of the InvalidError's; empty if it is none
	foreign    bool
}

// decodeRows are the rules of docs/FORMATS.md, "Which message is ours".
func decodeRows() []decodeRow {
	const good = `{"v":1,"id":"a","kind":"k"}`
	sum := strings.Repeat("a", 64)
	with := func(fields string) string { return `{"v":1,"id":"a","kind":"k",` + fields + `}` }
	return []decodeRow{
		{name: "base64 of an object with v", text: inBase64(good), id: "a"},
		{name: "plain text object with v", text: good, id: "a"},
		{name: "white space around it", text: " \r\n\t" + good + "\n", id: "a"},
		{name: "base64 in lines", text: inBase64(good)[:8] + "\r\n" + inBase64(good)[8:], id: "a"},
		{name: "byte order mark", text: "\uFEFF" + good, id: "a"},
		{name: "byte order mark in base64", text: inBase64("\uFEFF" + good), id: "a"},
		{name: "UTF-16", text: inBase64("\xff\xfe" + strings.Join(strings.Split(good, ""), "\x00") + "\x00"), id: "a"},
		{name: "unknown field", text: with(`"priority":1`), id: "a"},
		{name: "field twice: the last counts", text: `{"v":1,"id":"b","id":"a","kind":"k"}`, id: "a"},
		{name: "name in another case is unknown", text: with(`"ID":"b","Kind":7`), id: "a"},
		{name: "no payload", text: with(`"payload_base64":null,"payload_ref":null`), id: "a"},
		{name: "huge number in the payload", text: with(`"payload":1e999999`), id: "a"},
		{name: "deep payload", text: with(`"payload":` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000)), id: "a"},

		{name: "empty", text: "", foreign: true},
		{name: "words", text: "hello world", foreign: true},
		{name: "base64 of words", text: inBase64("hello world"), foreign: true},
		{name: "base64 of base64", text: inBase64(inBase64(good)), foreign: true},
		{name: "object without v", text: `{"id":"a","kind":"k"}`, foreign: true},
		{name: "object with V", text: `{"V":1,"id":"a","kind":"k"}`, foreign: true},
		{name: "array", text: `[{"v":1}]`, foreign: true},
		{name: "number", text: "17", foreign: true},
		{name: "null", text: "null", foreign: true},
		{name: "cut off", text: good[:len(good)-1], foreign: true},
		{name: "trailing garbage", text: good + "x", foreign: true},
		{name: "two objects", text: good + good, foreign: true},
		{name: "URL-safe base64", text: strings.NewReplacer("+", "-", "/", "_").Replace(inBase64(`{"v":1,"id":"a","kind":"k","x":"???>>>"}`)),
			foreign: true},
		{name: "too deep for a JSON reader", text: with(`"payload":` + strings.Repeat("[", 10001) + strings.Repeat("]", 10001)), foreign: true},

		{name: "newer version", text: `{"v":3,"id":"a"}`, id: "a", reason: "version 3"},
		{name: "version as text", text: `{"v":"1","id":"a","kind":"k"}`, id: "a", reason: `version "1"`},
		{name: "version 1.0", text: `{"v":1.0,"id":"a","kind":"k"}`, id: "a", reason: "version 1.0"},
		{name: "version null", text: `{"v":null,"id":"a","kind":"k"}`, id: "a", reason: "version null"},
		{name: "huge version", text: `{"v":1` + strings.Repeat("0", 500) + `,"id":"a"}`, id: "a", reason: "version 1000"},
		{name: "poison message", text: `{"v":1,"id":"a","kind":"k","reason":"r","poisoned_at":"2026-03-09T12:00:00Z"}`, id: "a",
			reason: "replayed"},
		{name: "no id", text: `{"v":1,"kind":"k"}`, reason: "must not be empty"},
		{name: "id in another case", text: `{"v":1,"Id":"a","kind":"k"}`, reason: "must not be empty"},
		{name: "id with a slash", text: `{"v":1,"id":"a/b","kind":"k"}`, reason: "allowed are"},
		{name: "id with a dot at its end", text: `{"v":1,"id":"a.","kind":"k"}`, reason: "dot"},
		{name: "id too long", text: `{"v":1,"id":"` + strings.Repeat("a", 129) + `","kind":"k"}`, reason: "128"},
		{name: "id is a number", text: `{"v":1,"id":7,"kind":"k"}`, reason: "field id"},
		{name: "no kind", text: `{"v":1,"id":"a"}`, id: "a", reason: "kind"},
		{name: "bad kind", text: `{"v":1,"id":"a","kind":"a b"}`, id: "a", reason: "kind"},
		{name: "two payloads", text: with(`"payload":1,"payload_base64":"AA=="`), id: "a", reason: "more than one"},
		{name: "null beside a reference", text: with(`"payload":null,"payload_ref":{"sha256":"` + sum + `","size":1}`), id: "a",
			reason: "more than one"},
		{name: "bad base64", text: with(`"payload_base64":"*"`), id: "a", reason: "field payload_base64"},
		{name: "reference without a hash", text: with(`"payload_ref":{"size":1}`), id: "a", reason: "sha256"},
		{name: "reference in another case", text: with(`"payload_ref":{"SHA256":"` + sum + `","size":1}`), id: "a", reason: "sha256"},
		{name: "reference with capitals", text: with(`"payload_ref":{"sha256":"` + strings.ToUpper(sum) + `","size":1}`), id: "a",
			reason: "sha256"},
		{name: "reference with a short hash", text: with(`"payload_ref":{"sha256":"abcd","size":1}`), id: "a", reason: "sha256"},
		{name: "reference with a negative size", text: with(`"payload_ref":{"sha256":"` + sum + `","size":-1}`), id: "a", reason: "size"},
		{name: "reference with a huge size", text: with(`"payload_ref":{"sha256":"` + sum + `","size":1e99}`), id: "a", reason: "payload_ref"},
		{name: "reference is text", text: with(`"payload_ref":"x"`), id: "a", reason: "field payload_ref"},
		{name: "no time", text: with(`"deadline":"tomorrow"`), id: "a", reason: "field deadline"},
		{name: "time that UTC cannot write", text: with(`"deadline":"9999-12-31T23:59:59-01:00"`), id: "a", reason: "year"},
		{name: "put back at a time that UTC cannot write", text: with(`"put_back_since":"9999-12-31T23:59:59-01:00"`), id: "a", reason: "year"},
		{name: "group with a space", text: with(`"group":"a b"`), id: "a", reason: "field group"},
		{name: "enqueued at a time that UTC cannot write", text: with(`"enqueued_at":"9999-12-31T23:59:59-01:00"`), id: "a", reason: "year"},
		{name: "resume is text", text: with(`"resume":"yes"`), id: "a", reason: "field resume"},
		{name: "limit with a fraction", text: with(`"max_run":1.5`), id: "a", reason: "field max_run"},
		{name: "negative limit", text: with(`"max_silence":-1`), id: "a", reason: "field max_silence"},
		{name: "limit beyond all measure", text: with(`"max_run":1000000001`), id: "a", reason: "out of range"},
		{name: "estimate beyond all measure", text: with(`"estimate":1000000001`), id: "a", reason: "out of range"},
		{name: "negative estimate", text: with(`"estimate":-1`), id: "a", reason: "field estimate"},
		{name: "deadline without a zone", text: with(`"deadline":"2026-03-09T12:00:00"`), id: "a", reason: "field deadline"},
		{name: "limit is text", text: with(`"max_run":"6h"`), id: "a", reason: "field max_run"},
		{name: "trace too long", text: with(`"trace":"` + strings.Repeat("x", 9000) + `"`), id: "a", reason: "beside the payload"},
		{name: "unknown fields too long", text: with(`"x":"` + strings.Repeat("x", 9000) + `"`), id: "a", reason: "beside the payload"},
	}
}

func TestDecode(t *testing.T) {
	for _, row := range decodeRows() {
		t.Run(row.name, func(t *testing.T) {
			e, err := Decode(row.text)
			var invalid *InvalidError
			switch {
			case row.foreign:
				if !errors.Is(err, ErrForeign) {
					t.Errorf("Decode = id %q, %v, want ErrForeign", e.ID, err)
				}
			case row.reason != "":
				if !errors.As(err, &invalid) {
					t.Fatalf("Decode = id %q, %v, want an InvalidError", e.ID, err)
				}
				if invalid.ID != row.id || !strings.Contains(invalid.Reason, row.reason) {
					t.Errorf("Decode = id %q, reason %q, want id %q and a reason with %q", invalid.ID, invalid.Reason, row.id, row.reason)
				}
			case err != nil || e.ID != row.id || e.Kind != "k":
				t.Errorf("Decode = id %q, kind %q, %v, want id %q, kind k", e.ID, e.Kind, err, row.id)
			}
		})
	}
}

// The text of another program's message is the payload as it was delivered, never
// decoded further.
func TestForeign(t *testing.T) {
	for _, text := range []string{"", "hello", inBase64("hello"), `{"a":1}`} {
		e := Foreign(text, "0195f6a0-1111-7000-8000-000000000001", "k", noon)
		got, inline := e.Payload.Inline()
		if string(got) != text || !inline || e.ID != "0195f6a0-1111-7000-8000-000000000001" || e.Kind != "k" || !e.EnqueuedAt.Equal(noon) {
			t.Errorf("Foreign(%q) = %+v, want the text as its payload and the message's id", text, e)
		}
		again := decode(t, encode(t, e))
		if again.Payload.Hash() != e.Payload.Hash() {
			t.Errorf("Foreign(%q) has another hash once it was put back", text)
		}
	}
}
