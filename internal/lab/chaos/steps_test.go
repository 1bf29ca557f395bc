package chaos

import (
	"encoding/json"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/job"
	"github.com/spotworker/spotworker/job/jobtest"
)

// TestStepsSurviveEvictions: the kind can be interrupted anywhere and has the
// result that the lab expects.
func TestStepsSurviveEvictions(t *testing.T) {
	proof.Only(t, "it runs real workers for half a minute")
	for _, test := range []struct {
		p    payload
		runs int
	}{
		{payload{Seed: "a", Steps: 6, Each: 1}, proof.Times(40, 300)},
		{payload{Seed: "a", Steps: 2, Each: 1, Stream: true}, proof.Times(8, 300)},
	} {
		t.Run(fmt.Sprintf("stream %t", test.p.Stream), func(t *testing.T) {
			p := test.p
			raw, err := json.Marshal(p)
			if err != nil {
				t.Fatal(err)
			}
			jobtest.Run(t, func() job.Handler { return job.HandlerFunc(Steps) }, jobtest.Case{Payload: raw, Runs: test.runs, Grace: time.Minute})
			got, err := Steps(t.Context(), job.New(job.Spec{Payload: raw}, nil))
			if err != nil || string(got) != string(p.result()) {
				t.Errorf("Steps = %s, %v, want %s", got, err, p.result())
			}
		})
	}
}

// A state with blocks of two saves is detected.
func TestMixedStates(t *testing.T) {
	p := payload{Seed: "a", Steps: 6, Stream: true}
	third, fourth := p.start().next().next().next(), p.start().next().next().next().next()
	state := func(at position) []byte {
		raw, err := io.ReadAll(p.encodeStream(at))
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	if got, err := p.decodeStream(state(fourth)); err != nil || got.Step != 4 {
		t.Fatalf("decodeStream = %+v, %v, want step 4", got, err)
	}
	for part := range parts + 1 {
		mixed := state(fourth)
		copy(mixed[part*partSize:(part+1)*partSize], state(third)[part*partSize:])
		if string(mixed) == string(state(fourth)) {
			continue // this part did not change in that step
		}
		if _, err := p.decodeStream(mixed); !job.IsPermanent(err) {
			t.Errorf("a state with part %d of another = %v, want a permanent error", part, err)
		}
	}
}
