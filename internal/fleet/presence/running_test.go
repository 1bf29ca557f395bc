package presence

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// TestDamagedBody: a body of another form is an error.
func TestDamagedBody(t *testing.T) {
	for _, body := range []string{"", "{", `{"jobs":3}`, "3", `"a"`, `["a"]`} {
		if p := new(Presence); p.readBody([]byte(body)) == nil {
			t.Errorf("%q is %q, want an error", body, p.Jobs)
		}
	}
}

// TestLimitsOfBody: however much running jobs say, the body stays small and can be read.
func TestLimitsOfBody(t *testing.T) {
	p := Presence{LogEnd: strings.Repeat("\x01", maxLogEnd) + "last\n"}
	for i := range maxJobs + 10 {
		id := fmt.Sprint(i, strings.Repeat("x", 120))
		p.Jobs = append(p.Jobs, id)
		p.Running = append(p.Running, Running{
			ID: id, Generation: 1, RunTime: math.MaxInt64, Fraction: math.NaN(), From: math.Inf(1),
			Text: strings.Repeat("é", 10_000), Log: bytes.Repeat([]byte{0xff}, 1000),
		})
	}
	body, err := p.body()
	if err != nil || len(body) > maxBody {
		t.Fatalf("body = %d bytes, %v, want at most %d", len(body), err, maxBody)
	}
	read := Presence{}
	err = read.readBody(body)
	jobs, running := read.Jobs, read.Running
	if err != nil || len(jobs) != maxJobs || len(running) != maxJobs {
		t.Fatalf("read: %d jobs, %d running, %v, want %d each", len(jobs), len(running), err, maxJobs)
	}
	if len(read.LogEnd) != maxLogEnd || !strings.HasSuffix(read.LogEnd, "last\n") {
		t.Errorf("the log has %d bytes, want the last %d", len(read.LogEnd), maxLogEnd)
	}
	words := 0
	for _, r := range running {
		words += len(r.Text) + len(r.Log)
		if r.Text != "" && (len(r.Text) > maxText || !utf8.ValidString(r.Text) || !strings.HasSuffix(r.Text, "é…")) {
			t.Fatalf("text = %q, want the beginning", r.Text)
		}
		if r.Fraction != 0 || r.From != 1 || r.RunTime != longest {
			t.Fatalf("read: fraction %g from %g after %s", r.Fraction, r.From, r.RunTime)
		}
	}
	if words > maxWords || words < maxWords-maxText-1000 {
		t.Errorf("texts and logs = %d bytes, want nearly %d", words, maxWords)
	}
	if r := p.Running[0]; r.Generation != 1 || len(r.Text) != 20_000 {
		t.Error("the caller's jobs were changed")
	}
}

// FuzzBody reads a body that somebody else wrote: what can be read has sane times and
// fractions, and reads the same after it is written again.
func FuzzBody(f *testing.F) {
	for _, seed := range []string{
		`{"jobs":["a"],"running":[{"id":"a","generation":1,"ran":1.5,"fraction":0.5,"log":"AA=="}]}`, `["a"]`, "null",
		`{"running":[{"ran":-1e300,"run_time":1e300,"fraction":-3}]}`, `{"running":[null]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		p := Presence{}
		if p.readBody(text) != nil {
			return
		}
		for _, r := range p.Running {
			if r.Ran < 0 || r.Ran > longest || r.RunTime < 0 || r.Fraction < 0 || r.Fraction > 1 || r.From < 0 || r.From > 1 {
				t.Fatalf("%s was read as %+v", text, r)
			}
		}
		again, err := p.body()
		if err != nil {
			t.Fatal(err)
		}
		same := Presence{}
		if err := same.readBody(again); err != nil || len(same.Running) != min(len(p.Running), maxJobs) {
			t.Fatalf("%d running jobs were read again as %d: %v", len(p.Running), len(same.Running), err)
		}
	})
}

// TestDuration: times of a heartbeat are kept to the millisecond.
func TestDuration(t *testing.T) {
	for _, d := range []time.Duration{0, time.Millisecond, 90*time.Second + 7*time.Millisecond, 40 * 24 * time.Hour} {
		if got := duration(seconds(d)); got != d {
			t.Errorf("%s is read as %s", d, got)
		}
	}
}
