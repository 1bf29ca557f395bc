package job

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

type rangePayload struct{ From, To int }

func (p *rangePayload) Validate() error {
	if p.From > p.To {
		return fmt.Errorf("from %d is above to %d", p.From, p.To)
	}
	return nil
}

// sumState is version 2; version 1 was the sum alone, and had no next number.
type sumState struct{ Next, Sum int }

func (s *sumState) Upgrade(version int, state []byte) error {
	if version != 1 {
		return &VersionError{Version: version, Known: []int{1, 2}}
	}
	return json.Unmarshal(state, &s.Sum)
}

// sum adds the numbers of a range, one a report, and with stop fails after two.
func sum(stop bool) Handler {
	return Typed(2, func(ctx context.Context, j *TypedJob[rangePayload, sumState]) (any, error) {
		if !j.Resumed {
			j.State.Next = j.Payload.From
		}
		for n := 0; j.State.Next < j.Payload.To; n++ {
			if stop && n == 2 {
				return nil, errors.New("stopped")
			}
			j.State.Sum += j.State.Next
			j.State.Next++
			if err := j.ReportState(float64(j.State.Next)/float64(j.Payload.To), "summing"); err != nil {
				return nil, err
			}
		}
		return map[string]int{"sum": j.State.Sum}, nil
	})
}

func TestTyped(t *testing.T) {
	spec := Spec{ID: "a", Kind: "sum", Payload: []byte(`{"From":1,"To":5}`)}
	first := New(spec, nil)
	if _, err := sum(true).Run(t.Context(), first); err == nil || string(ControlOf(first).Latest().State) != `{"Next":3,"Sum":3}` ||
		ControlOf(first).Latest().Text != "summing" {
		t.Fatalf("first run = %v, reported %+v", err, ControlOf(first).Latest())
	}
	result, err := sum(false).Run(t.Context(), New(spec, ControlOf(first).Latest()))
	if err != nil || string(result) != `{"sum":10}` {
		t.Errorf("second run = %s, %v, want the rest only", result, err)
	}
}

// TestTypedRefuses: an error that no retry can fix is permanent, and an unknown version
// is not.
func TestTypedRefuses(t *testing.T) {
	good := `{"From":1,"To":5}`
	for name, row := range map[string]struct {
		payload   string
		saved     *Progress
		want      string
		permanent bool
	}{
		"payload":          {"[]", nil, "the payload is not that of the kind sum", true},
		"no payload":       {"", nil, "the payload is not that of the kind sum", true},
		"invalid payload":  {`{"From":2,"To":1}`, nil, "from 2 is above to 1", true},
		"broken state":     {good, &Progress{State: []byte("{"), Version: 2}, "the recorded state cannot be read", true},
		"newer state":      {good, &Progress{State: []byte("{}"), Version: 3}, "has version 3; this program reads 2", false},
		"unreadable older": {good, &Progress{State: []byte("{"), Version: 1}, "the recorded state cannot be read", true},
	} {
		_, err := sum(false).Run(t.Context(), New(Spec{Kind: "sum", Payload: []byte(row.payload)}, row.saved))
		if err == nil || !strings.Contains(err.Error(), row.want) || IsPermanent(err) != row.permanent {
			t.Errorf("%s: Run = %v, permanent %t, want %q, %t", name, err, IsPermanent(err), row.want, row.permanent)
		}
	}
	upgraded, err := sum(false).Run(t.Context(), New(Spec{Kind: "sum", Payload: []byte(good)}, &Progress{State: []byte("100"), Version: 1}))
	if err != nil || string(upgraded) != `{"sum":110}` {
		t.Errorf("run from a state of version 1 = %s, %v, want it upgraded", upgraded, err)
	}
}

func TestTypedResults(t *testing.T) {
	for want, result := range map[string]any{"": nil, "text": []byte("text"), `"text"`: "text", "[1]": []int{1}} {
		h := Typed(1, func(context.Context, *TypedJob[int, struct{}]) (any, error) { return result, nil })
		got, err := h.Run(t.Context(), New(Spec{Payload: []byte("1")}, nil))
		if string(got) != want || (got == nil) != (result == nil) || err != nil {
			t.Errorf("result of %#v = %q, %v, want %q", result, got, err, want)
		}
	}
	h := Typed(1, func(context.Context, *TypedJob[int, struct{}]) (any, error) { return make(chan int), nil })
	if _, err := h.Run(t.Context(), New(Spec{Payload: []byte("1")}, nil)); !IsPermanent(err) {
		t.Errorf("a result that is not JSON = %v, want a permanent error", err)
	}
}

// TestTypedResultOfAType: a result has a type. A zero value that is returned after a stop is no
// proof that the job is finished, unless everything was reported as done.
func TestTypedResultOfAType(t *testing.T) {
	stopped, stop := context.WithCancel(t.Context())
	stop()
	for name, row := range map[string]struct {
		ctx      context.Context
		fraction float64
		result   int
		want     string
	}{
		"zero":                     {t.Context(), 0.5, 0, "0"},
		"stopped":                  {stopped, 0.5, 0, ""},
		"stopped with a result":    {stopped, 0.5, 7, "7"},
		"stopped when it was done": {stopped, 1, 0, "0"},
	} {
		h := Typed(1, func(_ context.Context, j *TypedJob[int, struct{}]) (int, error) {
			return row.result, j.ReportState(row.fraction, "")
		})
		got, err := h.Run(row.ctx, New(Spec{Payload: []byte("1")}, nil))
		if string(got) != row.want || (got == nil) != (row.want == "") || err != nil {
			t.Errorf("%s: result = %q, %v, want %q", name, got, err, row.want)
		}
	}
}

// TestPutFollowUp: a repeated run puts the same ids.
func TestPutFollowUp(t *testing.T) {
	put := map[string]string{}
	run := func(name string, payload any) (string, error) {
		j := New(Spec{ID: "parent"}, nil)
		ControlOf(j).OnPut(func(_ context.Context, id string, f FollowUp) error {
			switch data := f.Payload.(type) {
			case []byte:
				put[id] = "bytes " + string(data)
			case json.RawMessage:
				put[id] = "json " + string(data)
			}
			return nil
		})
		return j.Put(t.Context(), FollowUp{Name: name, Kind: "k", Payload: payload})
	}
	for range 2 {
		for name, payload := range map[string]any{"json 1": 1, "bytes a": []byte("a"), "bytes ": nil, `json "a"`: "a"} {
			id, err := run(name, payload)
			if want := New(Spec{ID: "parent"}, nil).Key(name); id != want || err != nil || put[id] != name {
				t.Errorf("Put %q = %q, %v with payload %q, want the key %q", name, id, err, put[id], want)
			}
		}
	}
	if len(put) != 4 {
		t.Errorf("%d jobs put, want 4", len(put))
	}
	if _, err := run("x", make(chan int)); !IsPermanent(err) {
		t.Errorf("Put of a payload that is not JSON = %v, want a permanent error", err)
	}
	if _, err := New(Spec{}, nil).Put(t.Context(), FollowUp{}); err == nil {
		t.Error("Put without a worker gives no error")
	}
}

func TestLogger(t *testing.T) {
	if Logger(t.Context()) != slog.Default() {
		t.Error("Logger without a worker is not the default")
	}
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil)).With("job_id", "a")
	Logger(WithLogger(t.Context(), log)).Info("frame rendered", "frame", 7)
	if !strings.Contains(out.String(), `msg="frame rendered" job_id=a frame=7`) {
		t.Errorf("logged %q, want the job's fields", out.String())
	}
}
