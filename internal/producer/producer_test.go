package producer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
)

type uploadOptions = blockblob.UploadOptions

func TestRunPutsAllFields(t *testing.T) {
	b := setup(t)
	deadline := time.Date(2026, 1, 31, 9, 30, 0, 0, time.UTC)
	spec := Spec{ID: "a", Kind: "k", Payload: queue.BytesPayload([]byte("\x00\xff")), Deadline: deadline,
		Terms: Terms{Delay: time.Hour, MaxRun: 6 * time.Hour, MaxSilence: time.Minute, Estimate: 5 * time.Hour}}
	if _, err := b.Run(t.Context(), one(t, spec)); err != nil {
		t.Fatal(err)
	}
	e := b.envelopes(t)["a"]
	if data, _ := e.Payload.Inline(); string(data) != "\x00\xff" || !e.Deadline.Equal(deadline) || e.MaxRun != spec.MaxRun ||
		e.MaxSilence != spec.MaxSilence || e.Estimate != spec.Estimate {
		t.Errorf("message = %+v, want the payload 00ff, the deadline %v and the limits", e, deadline)
	}
	m := b.server.Messages(b.stores.Names.Queue)[0]
	if delay := m.NextVisible.Sub(m.Inserted); delay != time.Hour {
		t.Errorf("message is hidden for %v, want 1h", delay)
	}
}

func TestRunWithoutTheBlobPutsNoMessage(t *testing.T) {
	b := setup(t)
	b.server.OnCall(func(c storage.Call) storage.Fault {
		if c.Operation == storage.OpPutBlob {
			return storage.Fault{Refuse: &storage.Error{Status: http.StatusConflict, Code: "AccountBeingDeleted"}}
		}
		return storage.Fault{}
	})
	sum, err := b.Run(t.Context(), one(t, Spec{ID: "big", Kind: "k", Payload: queue.BytesPayload(make([]byte, 100<<10))}))
	if err != nil || sum.Failed != 1 || len(b.confirmed) != 0 || len(b.envelopes(t)) != 0 {
		t.Errorf("run = %+v, %v, confirmed %q; want one failure and no message", sum, err, b.confirmed)
	}
}

func TestRunContinuesAfterBadLines(t *testing.T) {
	b := setup(t)
	in := strings.NewReader("{\"id\":\"a\",\"kind\":\"k\"}\nrubbish\n\n{\"id\":\"b\"}\n{\"id\":\"c\",\"kind\":\"k\"}\n")
	sum, err := b.Run(t.Context(), Lines(in, Spec{}))
	if want := (Summary{Put: 2, Failed: 2, Last: "line 5"}); sum != want || err != nil {
		t.Errorf("run = %+v, %v; want %+v", sum, err, want)
	}
	want := []string{
		"line 2: it is not JSON: invalid character 'r' looking for beginning of value",
		"line 4: field kind is missing or empty",
	}
	if diff := cmp.Diff(want, b.failed); diff != "" {
		t.Errorf("failed (-want +got):\n%s", diff)
	}
	slices.Sort(b.confirmed)
	if diff := cmp.Diff([]string{"a", "c"}, b.confirmed); diff != "" {
		t.Errorf("confirmed (-want +got):\n%s", diff)
	}
}

func TestRunSkips(t *testing.T) {
	b := setup(t)
	b.Skip = func(id string) (checkpoint.Status, bool) { return checkpoint.Open, id != "job-2" }
	sum, err := b.Run(t.Context(), Lines(numbered(3), Spec{}))
	if want := (Summary{Put: 1, Skipped: 2, Last: "line 3"}); sum != want || err != nil {
		t.Errorf("run = %+v, %v; want %+v", sum, err, want)
	}
	if diff := cmp.Diff([]string{"job-2"}, b.confirmed); diff != "" {
		t.Errorf("confirmed (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"job-1 open", "job-3 open"}, b.skipped); diff != "" {
		t.Errorf("skipped (-want +got):\n%s", diff)
	}
}

// TestRunReportsOnlyConfirmedJobs loses requests and replies. An id
// that was reported is on the queue; a lost reply makes a duplicate at worst.
func TestRunReportsOnlyConfirmedJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.Parallel = 3
		b.server.OnCall(func(c storage.Call) storage.Fault {
			switch c.N % 4 {
			case 0:
				return storage.Fault{DropRequest: true}
			case 1:
				return storage.Fault{DropReply: true}
			}
			return storage.Fault{}
		})
		b.Confirmed = func(j Job, _ checkpoint.Status) error {
			id := j.ID()
			if _, ok := b.envelopes(t)[id]; !ok {
				t.Errorf("job %s was confirmed and is not on the queue", id)
			}
			b.confirmed = append(b.confirmed, id)
			return nil
		}
		sum, err := b.Run(t.Context(), Lines(numbered(60), Spec{}))
		if err != nil || sum.Put+sum.Failed != 60 || sum.Put != len(b.confirmed) || sum.Put == 0 {
			t.Errorf("run = %+v, %v, with %d ids told", sum, err, len(b.confirmed))
		}
	})
}

func TestRunEndsOnErrorsOfEveryJob(t *testing.T) {
	for _, c := range []struct {
		refusal storage.Error
		want    string
		atMost  int // failures
	}{
		{storage.Error{Status: http.StatusForbidden, Code: "AuthorizationPermissionMismatch"}, "AuthorizationPermissionMismatch", 4},
		{storage.Error{Status: http.StatusNotFound, Code: "QueueNotFound"}, "QueueNotFound", 4},
		{storage.Error{Status: http.StatusInternalServerError, Code: "InternalError"}, "InternalError", minInARow + 3},
		{storage.Error{Status: http.StatusBadRequest, Code: "InvalidHeaderValue"}, "InvalidHeaderValue", minInARow + 3},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := setup(t)
			b.Parallel = 4
			b.server.OnCall(func(storage.Call) storage.Fault { return storage.Fault{Refuse: &c.refusal} })
			sum, err := b.Run(t.Context(), Lines(numbered(1000), Spec{}))
			if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, ErrInterrupted) {
				t.Errorf("run = %v, want an end with %s", err, c.want)
			}
			if sum.Failed == 0 || sum.Failed > c.atMost || sum.Put != 0 || sum.Last != fmt.Sprintf("line %d", sum.Failed) {
				t.Errorf("summary after %s = %+v, want 1 to %d failures up to the last line", c.want, sum, c.atMost)
			}
		})
	}
}

// A brief outage fails only the calls in flight.
func TestRunContinuesAfterABriefOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.Parallel = 16
		began := time.Now()
		b.server.OnCall(func(storage.Call) storage.Fault {
			if time.Since(began) < 10*time.Second {
				return storage.Fault{Before: 30 * time.Second, DropRequest: true}
			}
			return storage.Fault{}
		})
		sum, err := b.Run(t.Context(), Lines(numbered(500), Spec{}))
		if err != nil || sum.Failed != b.Parallel || sum.Put+sum.Failed != 500 {
			t.Errorf("run = %+v, %v; want the first 16 to fail and then none", sum, err)
		}
	})
}

// TestRunInterrupted stops a run in the middle. Jobs that were taken are finished, and
// the summary says up to where that is.
func TestRunInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.Parallel = DefaultParallel
		b.server.OnCall(func(storage.Call) storage.Fault {
			return storage.Fault{Before: 50 * time.Millisecond, After: 50 * time.Millisecond}
		})
		ctx, cancel := context.WithTimeout(t.Context(), 1025*time.Millisecond)
		defer cancel()
		sum, err := b.Run(ctx, Lines(numbered(1000), Spec{}))
		if !errors.Is(err, ErrInterrupted) {
			t.Errorf("run = %v, want ErrInterrupted", err)
		}
		const want = 11 * DefaultParallel
		if sum.Put != want || sum.Failed != 0 || sum.Last != fmt.Sprintf("line %d", want) {
			t.Errorf("summary = %+v, want %d enqueued up to line %[2]d", sum, want)
		}
		all := b.envelopes(t)
		for i := 1; i <= want; i++ {
			if _, ok := all[fmt.Sprintf("job-%d", i)]; !ok {
				t.Errorf("job-%d is not on the queue", i)
			}
		}
		if len(all) != want {
			t.Errorf("%d messages, want %d", len(all), want)
		}
	})
}

func TestRunInterruptedBeforeItBegan(t *testing.T) {
	b := setup(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	sum, err := b.Run(ctx, Lines(numbered(3), Spec{}))
	if !errors.Is(err, ErrInterrupted) || sum != (Summary{}) || len(b.server.Counts()) != 0 {
		t.Errorf("run = %+v, %v after %v; want nothing done", sum, err, b.server.Counts())
	}
}

func TestRunWhoseInputEndedIsNotInterrupted(t *testing.T) {
	b := setup(t)
	ctx, cancel := context.WithCancel(t.Context())
	b.Confirmed = func(Job, checkpoint.Status) error { cancel(); return nil }
	sum, err := b.Run(ctx, one(t, Spec{Kind: "k"}))
	if err != nil || sum.Put != 1 {
		t.Errorf("run = %+v, %v; want it complete", sum, err)
	}
}

func TestRunEndsWhenIDsCannotBePrinted(t *testing.T) {
	b := setup(t)
	b.Parallel = 1
	full := errors.New("disk full")
	b.Confirmed = func(j Job, _ checkpoint.Status) error {
		if j.ID() == "job-2" {
			return full
		}
		return nil
	}
	sum, err := b.Run(t.Context(), Lines(numbered(100), Spec{}))
	if !errors.Is(err, full) || !strings.Contains(err.Error(), "job job-2 is enqueued") {
		t.Errorf("run = %v, want that of job-2", err)
	}
	if sum.Put < 2 || sum.Put > 3 {
		t.Errorf("%d enqueued, want the run to end", sum.Put)
	}
}

func TestRunEndsWithItsInput(t *testing.T) {
	b := setup(t)
	broken := errors.New("input broken")
	sum, err := b.Run(t.Context(), Lines(&cutReader{text: "{\"kind\":\"k\"}\n{\"kind\":\"k\"}", err: broken}, Spec{}))
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "read line 2") {
		t.Errorf("run = %v, want the input's error in line 2", err)
	}
	if want := (Summary{Put: 1, Last: "line 1"}); sum != want {
		t.Errorf("summary = %+v, want %+v: a line that was cut is no line", sum, want)
	}
}

func TestNewJob(t *testing.T) {
	j, err := NewJob(Spec{Where: "x", Kind: "k"})
	other, _ := NewJob(Spec{Where: "x", Kind: "k"})
	if err != nil || len(j.ID()) != 36 || j.ID()[14] != '7' || j.ID() == other.ID() {
		t.Errorf("ids made = %q and %q, %v; want two UUIDs of version 7", j.ID(), other.ID(), err)
	}
	for want, spec := range map[string]Spec{
		`kind "": must not be empty`:                                     {},
		`kind "a b": has ' ' at byte 1; allowed are A-Z a-z 0-9 and ._-`: {Kind: "a b"},
		`job id "a/b": has '/' at byte 1; allowed are A-Z a-z 0-9 and ._~-`: {Kind: "k",
			ID: "a/b"},
		`delay -1s: it must be between 0 and 168h0m0s`: {Kind: "k",
			Terms: Terms{Delay: -time.Second}},
		`delay 168h0m1s: it must be between 0 and 168h0m0s`: {Kind: "k",
			Terms: Terms{Delay: queue.MaxDelay + time.Second}},
		`estimate: 1.5s is not a valid estimate: give whole seconds of work, from 1s to 277777h46m40s, or 0 if it is not known`: {Kind: "k",
			Terms: Terms{Estimate: 1500 * time.Millisecond}},
		`max run: -1s is not a valid limit: give whole seconds, from 1s to 277777h46m40s, or 0 for none`: {Kind: "k",
			Terms: Terms{MaxRun: -time.Second}},
		`max silence: 1.5s is not a valid limit: give whole seconds, from 1s to 277777h46m40s, or 0 for none`: {Kind: "k",
			Terms: Terms{MaxSilence: 1500 * time.Millisecond}},
		`payload has 67108865 bytes; at most 67108864 are allowed: put the data in a blob and name it in the payload`: {
			Kind: "k", Payload: queue.BytesPayload(make([]byte, queue.MaxPayload+1))},
	} {
		if _, err := NewJob(spec); err == nil || err.Error() != want {
			t.Errorf("NewJob = %v\nwant     %s", err, want)
		}
	}
}
