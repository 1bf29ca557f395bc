package events

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/internal/preempt"
	"github.com/spotworker/spotworker/internal/telemetry/observe"
)

// blindWorker records the reports of a Responder about the metadata service.
type blindWorker struct {
	Worker
	since []time.Time
}

func (w *blindWorker) Blind(since time.Time)      { w.since = append(w.since, since) }
func (*blindWorker) Position() lifecycle.Position { return lifecycle.Position{} }
func (*blindWorker) RecordEvent(presence.Event)   {}
func (*blindWorker) Withdraw()                    {}

// TestBlindnessIsLogged: the begin and the end of blindness are logged once each,
// whether or not the observation brings a changed document too.
func TestBlindnessIsLogged(t *testing.T) {
	const lost, back = "metadata service is unavailable; an eviction would come without notice", "metadata service answers again"
	begun := time.Now()
	blind := preempt.Observation{At: begun.Add(5 * time.Second), BlindSince: begun}
	seen := preempt.Observation{At: begun.Add(20 * time.Second)}
	changed := func(o preempt.Observation) preempt.Observation { o.Changed = true; return o }
	for _, tt := range []struct {
		name     string
		observed []preempt.Observation
		want     []string
	}{
		{"a first document", []preempt.Observation{changed(seen)}, nil},
		{"the same document after blindness", []preempt.Observation{blind, seen}, []string{lost, back}},
		{"a changed document after blindness", []preempt.Observation{blind, changed(seen)}, []string{lost, back}},
		{"a changed document with the begin of blindness", []preempt.Observation{changed(blind), changed(blind), changed(seen), changed(seen)},
			[]string{lost, back}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var log bytes.Buffer
			r := New(ResponderConfig{Worker: &blindWorker{}, Observe: observe.Nothing, Log: slog.New(slog.NewJSONHandler(&log, nil))})
			for _, o := range tt.observed {
				r.observe(o)
			}
			var got []string
			for line := range strings.Lines(log.String()) {
				for _, text := range []string{lost, back} {
					if strings.Contains(line, `"msg":"`+text+`"`) {
						got = append(got, text)
					}
				}
				if strings.Contains(line, lost) && !strings.Contains(line, `"error":"the polls are sent and not answered"`) {
					t.Errorf("line = %s, want why", line)
				}
				if strings.Contains(line, back) && !strings.Contains(line, `"after":20000000000`) {
					t.Errorf("line = %s, want how long the blindness took", line)
				}
			}
			if strings.Join(got, ", ") != strings.Join(tt.want, ", ") {
				t.Errorf("logged %q, want %q", got, tt.want)
			}
		})
	}
}
