package chaos

import (
	"encoding/json"
	"fmt"
	"io"
	"testing"

	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/job"
	"github.com/spotworker/spotworker/job/jobtest"
)

func payloadOf(stream bool) payload {
	p := payload{Seed: "a", Steps: 6, Each: 1, Stream: stream}
	if stream {
		p.Steps = 2
	}
	return p
}

// TestStepsSurviveEvictions: the kind can be interrupted anywhere and has the
// result that the lab expects.
func TestStepsSurviveEvictions(t *testing.T) {
	for _, stream := range []bool{false, true} {
		t.Run(fmt.Sprintf("stream %t", stream), func(t *testing.T) {
			p := payloadOf(stream)
			raw, err := json.Marshal(p)
			if err != nil {
				t.Fatal(err)
			}
			jobtest.Run(t, func() job.Handler { return job.HandlerFunc(Steps) }, jobtest.Case{Payload: raw, Runs: proof.Times(40, 300)})
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
