package job

import (
	"context"
	"strings"
	"testing"
	"time"
)

// sized is a handler that has limits of its own.
type sized struct{ HandlerFunc }

func (sized) Limits() Limits { return Limits{MaxRun: time.Hour, Concurrency: 2} }

// A handler has the limits it was given, its own limits, or the stricter of both.
func TestLimitsOf(t *testing.T) {
	plain := HandlerFunc(func(context.Context, *Job) ([]byte, error) { return []byte("done"), nil })
	for _, row := range []struct {
		name    string
		handler Handler
		want    Limits
	}{
		{"none", plain, Limits{}},
		{"given", WithLimits(plain, Limits{MaxSilence: time.Minute}), Limits{MaxSilence: time.Minute}},
		{"its own", sized{plain}, Limits{MaxRun: time.Hour, Concurrency: 2}},
		{"its own, one stricter, one added", WithLimits(sized{plain}, Limits{MaxRun: 2 * time.Hour, MaxSilence: time.Second, Concurrency: 1}),
			Limits{MaxRun: time.Hour, MaxSilence: time.Second, Concurrency: 1}},
		{"given twice", WithLimits(WithLimits(plain, Limits{MaxRun: time.Minute}), Limits{MaxRun: time.Second}), Limits{MaxRun: time.Second}},
	} {
		if got := LimitsOf(row.handler); got != row.want {
			t.Errorf("%s: LimitsOf = %+v, want %+v", row.name, got, row.want)
		}
		if got, err := row.handler.Run(t.Context(), New(Spec{}, nil)); string(got) != "done" || err != nil {
			t.Errorf("%s: Run = %q, %v, want what the handler returns", row.name, got, err)
		}
	}
}

// Of two limits on attempts the stricter counts, of two waits the longer; what
// neither gives has its default.
func TestLimitsOnAttempts(t *testing.T) {
	got := Limits{MaxFailures: 3, Backoff: time.Second}.Stricter(Limits{MaxFailures: 4, Backoff: time.Minute})
	if want := (Limits{MaxFailures: 3, Backoff: time.Minute}); got != want {
		t.Errorf("Stricter = %+v, want %+v", got, want)
	}
	for _, row := range []struct{ given, want Limits }{
		{Limits{}, Limits{MaxFailures: 5, Backoff: 10 * time.Second}},
		{Limits{MaxFailures: 7, Backoff: time.Hour}, Limits{MaxFailures: 7, Backoff: time.Hour}},
	} {
		if got := row.given.WithDefaults(); got != row.want {
			t.Errorf("%+v: WithDefaults = %+v, want %+v", row.given, got, row.want)
		}
	}
}

func TestLimitsValidate(t *testing.T) {
	for _, row := range []struct {
		limits Limits
		want   string
	}{
		{Limits{}, ""},
		{Limits{MaxRun: time.Hour, MaxSilence: time.Minute, Concurrency: 1}, ""},
		{Limits{MaxRun: -1}, "max run"},
		{Limits{MaxSilence: -1}, "max silence"},
		{Limits{Concurrency: -1}, "concurrency"},
		{Limits{MaxFailures: 9, Backoff: MostBackoff}, ""},
		{Limits{MaxFailures: -1}, "max failures -1"},
		{Limits{Backoff: -1}, "is negative"},
		{Limits{Backoff: MostBackoff + 1}, "longer than 24h"},
	} {
		err := row.limits.Validate()
		if got := err != nil; got != (row.want != "") || got && !strings.Contains(err.Error(), row.want) {
			t.Errorf("Validate %+v = %v, want an error about %q", row.limits, err, row.want)
		}
	}
}
