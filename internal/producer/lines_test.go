package producer

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/queue"
)

// collect returns the ids of a source's jobs and its errors, in order.
func collect(r io.Reader) (got []string) {
	for j, err := range jobs(Lines(r, Spec{})) {
		if err != nil {
			got = append(got, err.Error())
			continue
		}
		got = append(got, j.Where+": "+j.ID())
	}
	return got
}

func TestLines(t *testing.T) {
	for input, want := range map[string][]string{
		"":                              nil,
		"\n \r\n":                       nil,
		"{\"id\":\"a\",\"kind\":\"k\"}": {"line 1: a"},
		"\uFEFF{\"id\":\"a\",\"kind\":\"k\"}\r\n":                                                          {"line 1: a"},
		"\xff\xfe" + strings.Join(strings.Split("{\"id\":\"a\",\"kind\":\"k\"}\r\n", ""), "\x00") + "\x00": {"line 1: a"},
		"\n{\"id\":\"a\",\"kind\":\"k\"}\n\n{\"id\":\"b\",\"kind\":\"k\"}":                                 {"line 2: a", "line 4: b"},
		"x\n{\"id\":\"a\",\"kind\":\"k\"}": {
			"line 1: it is not JSON: invalid character 'x' looking for beginning of value", "line 2: a"},
	} {
		if diff := cmp.Diff(want, collect(strings.NewReader(input))); diff != "" {
			t.Errorf("lines of %q (-want +got):\n%s", input, diff)
		}
	}
}

// Lines around the size of the reader's buffer are where a piece goes missing.
func TestLinesOfEveryLength(t *testing.T) {
	for size := 64<<10 - 40; size < 64<<10+3; size++ {
		line := `{"id":"a","kind":"k","payload":"` + strings.Repeat("x", size) + `"}`
		for _, input := range []string{line, line + "\n", line + "\n" + line} {
			want := []string{"line 1: a"}
			if len(input) > len(line)+1 {
				want = append(want, "line 2: a")
			}
			if diff := cmp.Diff(want, collect(strings.NewReader(input))); diff != "" {
				t.Fatalf("payload of %d bytes (-want +got):\n%s", size, diff)
			}
		}
	}
}

func TestLinesHoldTheLargestPayload(t *testing.T) {
	const others = 4 << 10 // id, kind, deadline, names of fields
	if need := base64.StdEncoding.EncodedLen(queue.MaxPayload) + others; need > maxLine {
		t.Errorf("a line has at most %d bytes, want %d for a payload of %d", maxLine, need, queue.MaxPayload)
	}
}

func TestLineTooLong(t *testing.T) {
	const limit = 200
	long := strings.Repeat("x", limit+1)
	for _, input := range []string{
		long + "\nb\n", strings.Repeat(long, 1000) + "\nb", "a\n" + long, strings.Repeat("y", limit-1) + "\nb",
	} {
		lines := lineReader{in: bufio.NewReaderSize(strings.NewReader(input), 16), limit: limit}
		var got []string
		for {
			line, err := lines.next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				line = []byte(err.Error())
			}
			got = append(got, string(line))
		}
		want := strings.Split(strings.TrimSuffix(input, "\n"), "\n")
		for i, line := range want {
			if len(line) > limit {
				want[i] = errLineTooLong.Error()
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("lines (-want +got):\n%s", diff)
		}
	}
}

// cutReader gives its text and then an error.
type cutReader struct {
	text string
	err  error
}

func (r *cutReader) Read(p []byte) (int, error) {
	if r.text == "" {
		return 0, r.err
	}
	n := copy(p, r.text)
	r.text = r.text[n:]
	return n, nil
}

func TestParseSpec(t *testing.T) {
	const general = time.Minute // the delay of lines that name none
	type fields struct {
		ID, Kind, Payload, Deadline string
		Delay, MaxRun, MaxSilence   time.Duration
		Estimate                    time.Duration
	}
	for line, want := range map[string]fields{
		`{"kind":"k"}`: {Kind: "k"},
		`{"kind":"k","id":"i","payload": {"a": [1, 2]} }`:     {ID: "i", Kind: "k", Payload: `{"a":[1,2]}`},
		`{"kind":"k","payload":null}`:                         {Kind: "k", Payload: `null`},
		`{"kind":"k","payload":"<&>"}`:                        {Kind: "k", Payload: `"<&>"`},
		`{"kind":"k","payload_base64":"AP8="}`:                {Kind: "k", Payload: "\x00\xff"},
		`{"kind":"k","payload_base64":""}`:                    {Kind: "k"},
		`{"kind":"k","deadline":"2026-01-31T10:30:00+01:00"}`: {Kind: "k", Deadline: "2026-01-31T09:30:00Z"},
		`{"kind":"k","delay":"36h"}`:                          {Kind: "k", Delay: 36*time.Hour - general},
		`{"kind":"k","delay":"0s"}`:                           {Kind: "k", Delay: -general},
		`{"kind":"k","max_run":"6h","max_silence":"10m"}`:     {Kind: "k", MaxRun: 5 * time.Hour, MaxSilence: 10 * time.Minute},
		`{"kind":"k","estimate":"6h"}`:                        {Kind: "k", Estimate: 6 * time.Hour},
		`{"kind":"k","max_run":"0s"}`:                         {Kind: "k", MaxRun: -time.Hour},
	} {
		s, err := parseSpec([]byte(line), Spec{Terms: Terms{Delay: general, MaxRun: time.Hour}})
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		data, _ := s.Payload.Inline()
		got := fields{ID: s.ID, Kind: s.Kind, Payload: string(data), Delay: s.Delay - general, MaxRun: s.MaxRun - time.Hour,
			MaxSilence: s.MaxSilence, Estimate: s.Estimate}
		if !s.Deadline.IsZero() {
			got.Deadline = s.Deadline.UTC().Format(time.RFC3339)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", line, diff)
		}
	}
}

func TestParseSpecRefuses(t *testing.T) {
	for line, want := range map[string]string{
		`{}`:                        "field kind is missing or empty",
		`null`:                      "field kind is missing or empty",
		`[]`:                        "it is a JSON array; it must be an object",
		`"kind"`:                    "it is a JSON string; it must be an object",
		`{"kind":"k"`:               "it is not JSON: it ends too early",
		`{"kind":"k"} {"kind":"k"}`: "it has more than one JSON value",
		`{"kind":"k"}]`:             "it has more than one JSON value",
		`{"kind":7}`:                "field kind is a JSON number; it must be a string",
		`{"kind":"k","id":7}`:       "field id is a JSON number; it must be a string",
		`{"kind":"k","id":""}`:      "field id is empty; leave it out for a new id",
		`{"kind":"k","paylod":1}`: `unknown field "paylod"; known are id, kind, payload, payload_base64, deadline, delay, max_run, ` +
			`max_silence, max_failures, estimate, inputs and group`,
		`{"kind":"k","deadline":"8h"}`: `field deadline is "8h"; it must be a time with its zone, such as 2026-01-31T09:30:00Z or ` +
			`2026-01-31T10:30:00+01:00`,
		`{"kind":"k","estimate":"0s"}`:                     `field estimate is "0s"; work takes at least 1s: leave it out if it is not known`,
		`{"kind":"k","estimate":"-5m"}`:                    `field estimate is "-5m"; work takes at least 1s: leave it out if it is not known`,
		`{"kind":"k","estimate":"5"}`:                      `field estimate is "5"; it must be a time such as 90s or 6h`,
		`{"kind":"k","delay":"soon"}`:                      `field delay is "soon"; it must be a time such as 90s or 24h, up to 7d`,
		`{"kind":"k","delay":90}`:                          "field delay is a JSON number; it must be a string",
		`{"kind":"k","payload_base64":"A"}`:                "field payload_base64: illegal base64 data at input byte 0",
		`{"kind":"k","payload":1,"payload_base64":"AAAA"}`: "both payload and payload_base64 are given",
	} {
		if _, err := parseSpec([]byte(line), Spec{}); err == nil || err.Error() != want {
			t.Errorf("%s\n got %v\nwant %s", line, err, want)
		}
	}
}

func TestCheck(t *testing.T) {
	var bad []string
	failed := func(e *JobError) { bad = append(bad, e.Error()) }
	checked, n, err := Check(t.Context(), Lines(strings.NewReader("{\"kind\":\"k\"}\n{}\n{\"kind\":\"k\",\"id\":\"/\"}"), Spec{}), failed)
	if checked != 3 || n != 2 || err != nil {
		t.Errorf("Check = %d, %d, %v; want 3 lines, 2 bad", checked, n, err)
	}
	want := []string{
		"line 2: field kind is missing or empty",
		`line 3: job id "/": has '/' at byte 0; allowed are A-Z a-z 0-9 and ._~-`,
	}
	if diff := cmp.Diff(want, bad); diff != "" {
		t.Errorf("bad (-want +got):\n%s", diff)
	}
	broken := errors.New("input broken")
	if _, _, err := Check(t.Context(), Lines(&cutReader{err: broken}, Spec{}), failed); !errors.Is(err, broken) {
		t.Errorf("Check of a broken input = %v, want its error", err)
	}
}

func TestInterruptible(t *testing.T) {
	text := strings.Repeat("0123456789", 10000)
	got, err := io.ReadAll(Interruptible(t.Context(), strings.NewReader(text)))
	if err != nil || string(got) != text {
		t.Errorf("read %d bytes, %v; want %d", len(got), err, len(text))
	}
	broken := errors.New("input broken")
	if _, err := io.ReadAll(Interruptible(t.Context(), &cutReader{err: broken})); !errors.Is(err, broken) {
		t.Errorf("read of a broken input = %v, want its error", err)
	}
}

// A terminal without input does not block the end.
func TestInterruptibleEndsWithItsContext(t *testing.T) {
	terminal, keyboard := io.Pipe()
	defer func() { _ = keyboard.Close() }()
	ctx, cancel := context.WithCancelCause(t.Context())
	in := Interruptible(ctx, terminal)
	cause := errors.New("Ctrl-C")
	go cancel(cause)
	if _, err := in.Read(make([]byte, 1)); !errors.Is(err, cause) {
		t.Errorf("Read after the end = %v, want %v", err, cause)
	}
}

func TestSpool(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	file, remove, err := Spool(strings.NewReader("text"))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got, err := io.ReadAll(file); err != nil || string(got) != "text" {
			t.Errorf("read %q, %v; want the text", got, err)
		}
		if _, err := file.Seek(0, io.SeekStart); err != nil {
			t.Fatal(err)
		}
	}
	remove()
	broken := errors.New("input broken")
	if _, _, err := Spool(&cutReader{text: "x", err: broken}); !errors.Is(err, broken) {
		t.Errorf("Spool of a broken input = %v, want its error", err)
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) != 0 {
		t.Errorf("left over: %v, %v; want nothing", left, err)
	}
}
