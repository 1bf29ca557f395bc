package queue

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// goldenEnvelopes are the files in testdata/envelope and their meanings. Files are never
// edited, only added to: messages like these lie on people's queues.
func goldenEnvelopes(t *testing.T) map[string]Envelope {
	t.Helper()
	zone := time.FixedZone("", 2*60*60)
	return map[string]Envelope{
		"smallest": {ID: "a", Kind: "k"},
		"json":     {ID: "report-2026.03", Kind: "digest", Payload: jsonPayload(t, `{"container":"data","blob":"a<b>&c.tar"}`), EnqueuedAt: noon},
		"null":     {ID: "nothing", Kind: "k", Payload: jsonPayload(t, `null`), EnqueuedAt: noon},
		"bytes":    {ID: "raw", Kind: "process", Payload: BytesPayload([]byte{0, 1, 0xfe, 0xff}), EnqueuedAt: noon},
		"ref": {
			ID: "large", Kind: "process", EnqueuedAt: noon,
			Payload: Payload{ref: &Ref{SHA256: strings.Repeat("0123456789abcdef", 4), Size: 1 << 20}},
		},
		"full": {
			ID: "0195f6a0-0000-7000-8000-000000000001", Kind: "transcode.v2", Payload: jsonPayload(t, `["in.mov",{"crf":23}]`),
			EnqueuedAt: noon.Add(123456789), Deadline: time.Date(2026, time.March, 10, 14, 0, 0, 0, zone).UTC(),
			Trace: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", Resume: true, PutBackSince: noon.Add(time.Hour),
		},
		"deadline": {ID: "nightly", Kind: "render", EnqueuedAt: noon, Deadline: noon.Add(8 * time.Hour), Estimate: 5 * time.Hour},
		"limits":   {ID: "bounded", Kind: "render", EnqueuedAt: noon, MaxRun: 6 * time.Hour, MaxSilence: 10 * time.Minute, MaxFailures: 1},
		"chosen":   {ID: "frame-7", Kind: "render", EnqueuedAt: noon, ChosenID: true},
		"again":    {ID: "frame-9", Kind: "render", EnqueuedAt: noon, ChosenID: true, Resume: true, Again: 4},
		"group":    {ID: "frame-8", Kind: "render", EnqueuedAt: noon, ChosenID: true, Group: "night-7", Resume: true},
		"inputs": {
			ID: "frame-7", Kind: "render", EnqueuedAt: noon,
			Inputs: json.RawMessage(`[{"container":"data","blob":"scene.blend","etag":"\"0x8DC\"","to":"a<b>&c.blend"},` +
				`{"container":"data","prefix":"textures/"}]`),
		},
		"newer": {
			ID: "from-a-newer-version", Kind: "k", EnqueuedAt: noon,
			unknown: map[string]json.RawMessage{"priority": []byte("7"), "labels": []byte(`{"a":"<b>"}`)},
		},
	}
}

func TestGoldenEnvelopes(t *testing.T) {
	want := goldenEnvelopes(t)
	for _, name := range goldenNames(t, "envelope") {
		t.Run(name, func(t *testing.T) {
			want, ok := want[name]
			if !ok {
				t.Fatal("no meaning is given for this file")
			}
			text := readGolden(t, "envelope", name)
			for form, given := range map[string]string{"base64": inBase64(text), "plain text": text} {
				got, err := Decode(given)
				if diff := cmp.Diff(want, got, exactly); err != nil || diff != "" {
					t.Errorf("decoded from %s: %v (-want +got)\n%s", form, err, diff)
				}
			}
			if got := plain(t, encode(t, want)); got != text {
				t.Errorf("encoded =\n%s, want\n%s", got, text)
			}
		})
		delete(want, name)
	}
	for name := range want {
		t.Errorf("golden file envelope/%s.json is missing", name)
	}
}

// goldenNames returns the names of the golden files of one format.
func goldenNames(t *testing.T, format string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", format, "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("golden files of %s: %v, %v", format, files, err)
	}
	for i, file := range files {
		files[i] = strings.TrimSuffix(filepath.Base(file), ".json")
	}
	return files
}

func readGolden(t *testing.T, format, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", format, name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(string(text), "\n")
}

func TestPayloadIsCompactAndUnescaped(t *testing.T) {
	const given, want = " { \"a\" : \"<&>\u2028é\", \"n\" : 1e400 } ", "{\"a\":\"<&>\u2028é\",\"n\":1e400}"
	sent := Envelope{ID: "a", Kind: "k", Payload: jsonPayload(t, given)}
	text := encode(t, sent)
	if json := plain(t, text); !strings.Contains(json, want) {
		t.Errorf("message = %s, want it to hold %s as it stands", json, want)
	}
	received := decode(t, text)
	got, inline := received.Payload.Inline()
	if string(got) != want || !inline {
		t.Errorf("payload received = %q, %t, want %q, inline", got, inline, want)
	}
	if received.Payload.Hash() != sent.Payload.Hash() {
		t.Error("the payload's hash is not the same on both ends")
	}
	if _, err := JSONPayload([]byte(`{"a":`)); err == nil {
		t.Error("JSONPayload of half an object = <nil>, want an error")
	}
}

// A payload with its references to < > & and a line separator takes the same
// bytes, and hash, after the rewrite that adds unknown fields.
func TestRewriteKeepsPayloadAndUnknownFields(t *testing.T) {
	const payload = "{\"z\":\"<&>\u2028\",\"a\":12345678901234567890}"
	e := decode(t, `{"v":1,"id":"a","kind":"k","payload":`+payload+`,"ID":"not the id","x":{"deep":[1,2]}}`)
	e.PutBackSince = noon
	again := decode(t, encode(t, e))
	if got, _ := again.Payload.Inline(); string(got) != payload {
		t.Errorf("payload after a rewrite = %s, want %s", got, payload)
	}
	want := map[string]json.RawMessage{"ID": []byte(`"not the id"`), "x": []byte(`{"deep":[1,2]}`)}
	if diff := cmp.Diff(want, again.unknown); diff != "" {
		t.Errorf("unknown fields after a rewrite (-want +got)\n%s", diff)
	}
}

// An unknown field inside payload_ref belongs to a newer version too.
func TestRewriteKeepsUnknownFieldsOfTheReference(t *testing.T) {
	sum := strings.Repeat("a", 64)
	e := decode(t, `{"v":1,"id":"a","kind":"k","payload_ref":{"sha256":"`+sum+`","size":3,"tier":"cool"}}`)
	if got, want := plain(t, encode(t, e)), `"tier":"cool"`; !strings.Contains(got, want) {
		t.Errorf("rewritten message = %s, want it to hold %s", got, want)
	}
}

// Encode keeps room, so that every put message can be put back in its place.
func TestEncodeLimit(t *testing.T) {
	fits := func(n int) Envelope {
		return Envelope{ID: "a", Kind: "k", EnqueuedAt: noon, Payload: jsonPayload(t, `"`+strings.Repeat("x", n)+`"`)}
	}
	overhead := len(plain(t, encode(t, fits(0))))
	largest := fits(maxJSON - putBackRoom - overhead)
	text := encode(t, largest)
	if len(text) > MaxText {
		t.Errorf("largest text has %d bytes, want at most %d", len(text), MaxText)
	}
	back := largest
	back.PutBackSince, back.Resume = noon.Add(1), true
	if text, err := back.encode(maxJSON); err != nil || len(text) > MaxText {
		t.Errorf("largest message deferred and moved has %d bytes, %v, want at most %d", len(text), err, MaxText)
	}
	_, err := fits(maxJSON - putBackRoom - overhead + 1).Encode()
	var tooLarge *TooLargeError
	if !errors.As(err, &tooLarge) || tooLarge.Size != tooLarge.Limit+1 {
		t.Errorf("Encode of one byte more = %v, want a TooLargeError by one byte", err)
	}
}

// An envelope that readers would refuse is not put.
func TestEncodeRefusesWhatDecodeDoes(t *testing.T) {
	for name, e := range map[string]Envelope{
		"no id":          {Kind: "k"},
		"id with a path": {ID: "../a", Kind: "k"},
		"no kind":        {ID: "a"},
		"long trace":     {ID: "a", Kind: "k", Trace: strings.Repeat("x", maxBeside)},
		"far deadline":   {ID: "a", Kind: "k", Deadline: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)},
		"bad group":      {ID: "a", Kind: "k", Group: "a b"},
	} {
		var tooLarge *TooLargeError
		if _, err := e.Encode(); err == nil || errors.As(err, &tooLarge) {
			t.Errorf("Encode with %s = %v, want an error that storing the payload in a blob does not avoid", name, err)
		}
	}
}

// TestLimitsOfAJob: limits and estimates are whole seconds up to thirty years, in an envelope and
// on the wire.
func TestLimitsOfAJob(t *testing.T) {
	for _, row := range []struct {
		value time.Duration
		valid bool
	}{
		{0, true}, {time.Second, true}, {MaxLimit, true}, {90 * time.Minute, true},
		{-1, false}, {-time.Second, false}, {1, false}, {1500 * time.Millisecond, false}, {MaxLimit + time.Second, false},
	} {
		for field, e := range map[string]Envelope{
			"max_run": {MaxRun: row.value}, "max_silence": {MaxSilence: row.value}, "estimate": {Estimate: row.value},
		} {
			e.ID, e.Kind = "a", "k"
			err := e.Validate()
			if row.valid && err != nil || !row.valid && (err == nil || !strings.Contains(err.Error(), "field "+field)) {
				t.Errorf("%s of %s: %v, want valid %t or an error that names the field", field, row.value, err, row.valid)
			}
			if !row.valid {
				continue
			}
			got, err := Decode(encode(t, e))
			if err != nil || got.MaxRun != e.MaxRun || got.MaxSilence != e.MaxSilence || got.Estimate != e.Estimate {
				t.Errorf("%s of %s on the wire = %s, %s, %s, %v", field, row.value, got.MaxRun, got.MaxSilence, got.Estimate, err)
			}
		}
	}
	// The fifth is one second after an overflow of nanoseconds.
	for _, n := range []string{"-1", "1000000001", "1.5", `"1"`, "-36028797018963967"} {
		if _, err := Decode(`{"v":1,"id":"a","kind":"k","max_run":` + n + `}`); err == nil {
			t.Errorf("Decode with max_run %s, want an error", n)
		}
	}
	if _, err := Decode(`{"v":1,"id":"a","kind":"k","max_run":1000000001}`); err == nil || !strings.Contains(err.Error(), "up to 1000000000") {
		t.Errorf("Decode with a max_run that is too large = %v, want the largest", err)
	}
	for _, n := range []string{"-1", "1.5", "1000001", `"1"`} {
		if _, err := Decode(`{"v":1,"id":"a","kind":"k","max_failures":` + n + `}`); err == nil {
			t.Errorf("Decode with max_failures %s, want an error", n)
		}
	}
	if e, err := Decode(`{"v":1,"id":"a","kind":"k","max_run":0}`); err != nil || e.MaxRun != 0 {
		t.Errorf("Decode with max_run 0 = %s, %v, want none", e.MaxRun, err)
	}
}

// TestLargestInputs: inputs of the largest size are valid, and of one byte more are not.
func TestLargestInputs(t *testing.T) {
	e := Envelope{ID: "a", Kind: "k", Inputs: json.RawMessage(`["` + strings.Repeat("x", MaxInputs-4) + `"]`)}
	if err := e.Validate(); err != nil {
		t.Errorf("%d bytes of inputs: %v", len(e.Inputs), err)
	}
	e.Inputs = json.RawMessage(`["` + strings.Repeat("x", MaxInputs-3) + `"]`)
	if err := e.Validate(); err == nil || !strings.Contains(err.Error(), "field inputs") {
		t.Errorf("%d bytes of inputs: %v, want an error", len(e.Inputs), err)
	}
}

// TestTrace: a job whose trace is no W3C traceparent is done without it, and nothing that an
// operating system or a log could stumble over gets through.
func TestTrace(t *testing.T) {
	const valid = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for trace, want := range map[string]string{
		"": "", valid: valid, "cc" + valid[2:] + "-new": "cc" + valid[2:] + "-new", "01" + valid[2:]: "01" + valid[2:],
		valid + "\x00": "", "\x00": "", valid + "\n": "", valid + "-more": "", strings.ToUpper(valid): "", "ff" + valid[2:] + "-x": "",
		"01" + valid[2:] + "-\x00": "", "01" + valid[2:] + "-" + strings.Repeat("x", 300): "", strings.Repeat("x", 8<<10): "", "text": "",
	} {
		text, err := json.Marshal(map[string]any{"v": 1, "id": "a", "kind": "k", "trace": trace})
		if err != nil {
			t.Fatal(err)
		}
		if e, err := Decode(string(text)); err != nil || e.Trace != want {
			t.Errorf("Decode with trace %.90q = %q, %v, want %q", trace, e.Trace, err, want)
		}
		if _, err := (Envelope{ID: "a", Kind: "k", Trace: trace}).Encode(); (err == nil) != (trace == want) {
			t.Errorf("Encode with trace %.90q = %v", trace, err)
		}
	}
}

// TestInputsAreWork: an id that is used again with other inputs stands for other work,
// and a job without inputs is the same work as before there were any.
func TestInputsAreWork(t *testing.T) {
	e := Envelope{ID: "a", Kind: "k", Payload: BytesPayload([]byte("in"))}
	if e.Work() != e.Payload.Hash() {
		t.Errorf("work of a job without inputs = %s, want the payload's hash %s", e.Work(), e.Payload.Hash())
	}
	seen := map[string]string{e.Work(): "none"}
	for _, inputs := range []string{`[{"container":"a","blob":"b"}]`, `[{"container":"a","blob":"c"}]`} {
		e.Inputs = json.RawMessage(inputs)
		if same, ok := seen[e.Work()]; ok {
			t.Errorf("inputs %s are the same work as %s", inputs, same)
		}
		seen[e.Work()] = inputs
	}
}

func TestUnusableInputs(t *testing.T) {
	for name, text := range map[string]string{
		"null":      `{"v":1,"id":"a","kind":"k","inputs":null}`,
		"an object": `{"v":1,"id":"a","kind":"k","inputs":{"container":"a"}}`,
		"too many":  `{"v":1,"id":"a","kind":"k","inputs":["` + strings.Repeat("x", MaxInputs) + `"]}`,
	} {
		if _, err := Decode(text); err == nil || !strings.Contains(err.Error(), "field inputs") {
			t.Errorf("%s: error %v, want one that names the field", name, err)
		}
	}
}
