package queue

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/spotworker/spotworker/internal/jobid"
	"github.com/spotworker/spotworker/internal/test/property"
)

// anyEnvelope draws an envelope that a producer may put.
var anyEnvelope = rapid.Custom(func(t *rapid.T) Envelope {
	e := Envelope{
		ID:         rapid.StringMatching(`[A-Za-z0-9_~-]([A-Za-z0-9._~-]{0,30}[A-Za-z0-9_~-])?`).Draw(t, "id"),
		Kind:       rapid.StringMatching(`[A-Za-z0-9_-]([A-Za-z0-9._-]{0,10}[A-Za-z0-9_-])?`).Draw(t, "kind"),
		MaxRun:     time.Duration(rapid.IntRange(0, 1e9).Draw(t, "max run")) * time.Second,
		MaxSilence: time.Duration(rapid.IntRange(0, 1e9).Draw(t, "max silence")) * time.Second,
		Estimate:   time.Duration(rapid.IntRange(0, 1e9).Draw(t, "estimate")) * time.Second,
		Trace: rapid.SampledFrom([]string{"", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
			"01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x"}).Draw(t, "trace"),
		Resume: rapid.Bool().Draw(t, "resume"),

		ChosenID: rapid.Bool().Draw(t, "chosen id"),
	}
	for _, at := range []*time.Time{&e.EnqueuedAt, &e.Deadline, &e.PutBackSince} {
		if rapid.Bool().Draw(t, "time given") {
			*at = time.Unix(rapid.Int64Range(0, 253402300799).Draw(t, "second"), rapid.Int64Range(0, 999999999).Draw(t, "nanosecond")).UTC()
		}
	}
	for name := range rapid.MapOfN(rapid.StringMatching(`x_[a-zA-Z<>&]{0,8}`), rapid.Just(true), 0, 3).Draw(t, "unknown") {
		if e.unknown == nil {
			e.unknown = map[string]json.RawMessage{}
		}
		e.unknown[name] = anyJSON.Draw(t, "value")
	}
	e.Payload = anyPayload.Draw(t, "payload")
	return e
})

// anyPayload draws every form of a payload.
var anyPayload = rapid.OneOf(
	rapid.Just(Payload{}),
	rapid.Map(rapid.SliceOfN(rapid.Byte(), 1, 200), BytesPayload),
	rapid.Map(anyJSON, func(raw json.RawMessage) Payload {
		p, err := JSONPayload(raw)
		if err != nil {
			panic(err)
		}
		return p
	}),
	rapid.Map(rapid.SliceOf(rapid.Byte()), func(data []byte) Payload {
		return Payload{ref: &Ref{SHA256: hashOf(data), Size: int64(len(data))}}
	}),
)

// anyJSON draws a JSON value in its compact text.
var anyJSON = rapid.Custom(func(t *rapid.T) json.RawMessage {
	value := rapid.OneOf(
		rapid.Map(rapid.String(), func(s string) any { return s }),
		rapid.Map(rapid.Int64(), func(n int64) any { return n }),
		rapid.Map(rapid.SliceOfN(rapid.String(), 0, 4), func(s []string) any { return s }),
		rapid.Map(rapid.MapOfN(rapid.String(), rapid.Float64Range(-1e300, 1e300), 0, 4), func(m map[string]float64) any { return m }),
		rapid.Just[any](nil),
	).Draw(t, "json")
	raw, err := marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return raw
})

func TestDecodeUndoesEncode(t *testing.T) {
	property.Check(t, func(t *rapid.T) {
		sent := anyEnvelope.Draw(t, "envelope")
		text, err := sent.Encode()
		if err != nil {
			t.Fatalf("Encode: %v", err)
		}
		received, err := Decode(text)
		if diff := cmp.Diff(sent, received, exactly); err != nil || diff != "" {
			t.Fatalf("received %v (-sent +received)\n%s", err, diff)
		}
		if sent.Payload.Hash() != received.Payload.Hash() {
			t.Fatalf("hash of the payload = %s, want %s", received.Payload.Hash(), sent.Payload.Hash())
		}
	})
}

// FuzzDecode looks for texts that crash, that pass with an id or a kind that
// is none, or that cannot be put back once they were read. Inputs worth keeping
// are in testdata/fuzz/FuzzDecode.
func FuzzDecode(f *testing.F) {
	for _, row := range decodeRows() {
		f.Add(row.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > MaxText {
			return // no message has it
		}
		e, err := Decode(text)
		var invalid *InvalidError
		switch {
		case errors.Is(err, ErrForeign):
			return
		case errors.As(err, &invalid):
			if invalid.Reason == "" || invalid.ID != "" && jobid.Validate(invalid.ID) != nil {
				t.Fatalf("Decode(%q) = %+v, want a reason and no invalid id", text, invalid)
			}
			return
		case err != nil:
			t.Fatalf("Decode(%q) = %v, want ErrForeign or an InvalidError", text, err)
		}
		checkDecoded(t, e)
	})
}

// checkDecoded demands what everything behind Decode relies on.
func checkDecoded(t *testing.T, e Envelope) {
	t.Helper()
	if err := errors.Join(jobid.Validate(e.ID), jobid.ValidateKind(e.Kind)); err != nil {
		t.Fatalf("decoded %+v: %v", e, err)
	}
	e.PutBackSince = noon
	if data, inline := e.Payload.Inline(); inline { // what PutBack does when it must
		e.Payload = Payload{ref: &Ref{SHA256: hashOf(data), Size: int64(len(data))}}
	}
	text, err := e.encode(maxJSON)
	if err != nil {
		t.Fatalf("message cannot be put back: %v", err)
	}
	again, err := Decode(text)
	if err != nil || again.ID != e.ID || again.Kind != e.Kind || again.Payload.Hash() != e.Payload.Hash() || !again.PutBackSince.Equal(noon) {
		t.Fatalf("put back as %+v, comes back as %+v, %v", e, again, err)
	}
}
