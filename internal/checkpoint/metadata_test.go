package checkpoint

import (
	"bytes"
	"compress/flate"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/spotworker/spotworker/internal/checkpoint/blocks"
	"github.com/spotworker/spotworker/internal/checkpoint/ledger"
	"github.com/spotworker/spotworker/internal/checkpoint/runs"
	"github.com/spotworker/spotworker/internal/test/property"
	"github.com/spotworker/spotworker/job"
)

var exactly = cmp.Options{cmp.AllowUnexported(Record{}), cmpopts.EquateEmpty()}

// fullRecord has a value in every field that the first version wrote.
func fullRecord() Record {
	return Record{
		ID: "job-1", Version: Version, Status: Running, Kind: "digest",
		PayloadHash: strings.Repeat("0123456789abcdef", 4), MessageID: "0195f6a0-1111-7000-8000-000000000001",
		Token: "8a6e0804-2bd0-4672-b79d-d97027f9071a", Write: 12, Generation: 3,
		Failures: 2, ChargedExits: 1, Interruptions: 4, Progressed: true,
		StateHash: strings.Repeat("fedcba9876543210", 4), StateSize: 4096, StateBlocks: 3, StateVersion: 2,
		Fraction: 0.4375, Text: "block 7 of 16",
		CreatedAt: noon, ClaimedAt: noon.Add(90 * time.Minute), EndedAt: noon.Add(2*time.Hour + 123*time.Millisecond),
		Owner: "vmss_000001-0123abcd-0", Reason: "café:\n\"no\" 100%",
	}
}

// goldenRecords are the files in testdata/record and their meanings. Files are never
// edited, only added to: records like these are in people's accounts.
func goldenRecords() map[string]Record {
	newer := Record{ID: "job-1", Version: Version, Status: Open, unknown: map[string]string{"priority": "7", "region": "west%20europe"}}
	return map[string]Record{
		"full": fullRecord(),
		"fresh": {ID: "job-1", Version: Version, Status: Running, Kind: "k", PayloadHash: hashOf(nil), MessageID: "m", Token: "t", Write: 1,
			Generation: 1, CreatedAt: noon, ClaimedAt: noon, Owner: "w"},
		"cancelled": {ID: "job-1", Version: Version, Status: Cancelled, Token: "t", Write: 1, CreatedAt: noon, EndedAt: noon, Owner: "spotctl",
			Reason: "not needed"},
		"newer": newer,
		"attempts": {ID: "job-1", Version: Version, Status: Open, Token: "t", Write: 3, Generation: 40, Failures: 1, FailuresTotal: 17,
			Breaks: 12, Peak: 0.25, Interruptions: 22, CreatedAt: noon, ClaimedAt: noon, Owner: "w"},
		"exits": {ID: "job-1", Version: Version, Status: Running, MessageID: "m", Token: "t", Write: 1, Generation: 4, ChargedExits: 2,
			EarlyExits: 5, Charge: true, CreatedAt: noon, ClaimedAt: noon, Owner: "w"},
		"failed": {ID: "job-1", Version: Version, Status: Open, Token: "t", Write: 2, Generation: 1, Failures: 1,
			FailedBy: "vmss_000001-0123abcd", CreatedAt: noon, ClaimedAt: noon, Owner: "vmss_000001-0123abcd-0", Reason: "no"},
		"deadline": {
			ID: "job-1", Version: Version, Status: Open, Token: "t", Write: 3, Generation: 2, Interruptions: 2, RunTime: 90 * time.Minute,
			Fraction: 0.3,
			Deadline: noon.Add(10 * time.Hour), Estimate: 5 * time.Hour, MoveReason: "40 % of the time", CreatedAt: noon, ClaimedAt: noon,
			Owner: "w",
		},
		"log": {
			ID: "job-1", Version: Version, Status: Done, Token: "t", Write: 2, Generation: 1, Fraction: 1, CreatedAt: noon, ClaimedAt: noon,
			EndedAt: noon, Owner: "w",
			Log: "# 1 2026-03-09T12:00:00.000Z w\no 20 read 100%\xff\n",
		},
		"again": {ID: "job-1", Version: Version, Status: Open, Kind: "k", Token: "t", Write: 1, Generation: 5, Again: 5, CreatedAt: noon,
			Owner: "producer@host"},
		"group": {ID: "job-1", Version: Version, Status: Open, Kind: "k", Group: "night-7", Token: "t", Write: 1, CreatedAt: noon,
			Owner: "producer@host"},
		"followups": {ID: "job-1", Version: Version, Status: Done, Token: "t", Write: 2, Generation: 1, Fraction: 1, CreatedAt: noon,
			ClaimedAt: noon, EndedAt: noon, Owner: "w", FollowUps: "0a1b2c3d4e5f60718293a4b5c6d7e8f9,f9e8d7c6b5a493827160f5e4d3c2b1a0,*"},
		"runs": {ID: "job-1", Version: Version, Status: Running, Token: "t", Write: 2, Generation: 2, CreatedAt: noon, ClaimedAt: noon,
			Owner: "w", Runs: "1,1773057600000,540000,12,538000,0,evicted,vmss_000001-0123abcd-0;2,1773058200000,0,1,30000,0,,w"},
		"inputs": {ID: "job-1", Version: Version, Status: Open, Token: "t", Write: 2, Generation: 1, Inputs: hashOf(nil), CreatedAt: noon,
			ClaimedAt: noon, Owner: "w"},
		"inputlist": {
			ID: "job-1", Version: Version, Status: Open, Token: "t", Write: 2, Generation: 1, Inputs: hashOf(nil), CreatedAt: noon, ClaimedAt: noon,
			Owner:     "w",
			InputList: PackInputs([]byte(`[{"container":"data","prefix":"scenes/7/"}]`)),
		},
		"needs": {ID: "job-1", Version: Version, Status: Open, Token: "t", Write: 2, Generation: 1, StateHash: hashOf(nil), StateVersion: 16,
			CreatedAt: noon, ClaimedAt: noon, Owner: "w", StateNeeds: "1a2b3c4d5e6f7081 arch=amd64; kernel=6.12.57 | AbC_-"},
		"ledger": {
			ID: "job-1", Version: Version, Status: Running, Token: "t", Write: 3, Generation: 4, Interruptions: 2,
			RunTime: 5400250 * time.Millisecond,
			Ledger: ledger.Ledger{Useful: 80 * time.Minute, Redone: 600250 * time.Millisecond, Overhead: 9120 * time.Millisecond, Evictions: 2,
				Exits: 1},
			NextWrite: 71035 * time.Millisecond, CreatedAt: noon, ClaimedAt: noon, Owner: "w",
		},
		"outputs": {
			ID: "job-1", Version: Version, Status: Done, Token: "t", Write: 2, Generation: 1, Fraction: 1, CreatedAt: noon, ClaimedAt: noon,
			EndedAt: noon, Owner: "w",
			Outputs: Outputs{Hash: strings.Repeat("0123456789abcdef", 4), Files: 12, Bytes: 3 << 30},
		},
		"statekey": {
			ID: "job-1", Version: Version, Status: Open, Token: "t", Write: 2, Generation: 1, StateKey: "0123456789abcdeffedcba9876543210",
			StateHash: strings.Repeat("fedcba9876543210", 4), StateSize: 4096, StateBlocks: 3, CreatedAt: noon, ClaimedAt: noon, Owner: "w",
		},
		"layout": {
			ID: "job-1", Version: Version, Status: Open, Token: "t", Write: 2, Generation: 1, StateKey: "0123456789abcdeffedcba9876543210",
			StateHash: strings.Repeat("fedcba9876543210", 4), StateSize: 4096, StateBlocks: 5, Layout: blocks.Place{At: 4352, Size: 23},
			CreatedAt: noon, ClaimedAt: noon, Owner: "w",
		},
		"paid": {ID: "job-1", Version: Version, Status: Open, Token: "t", Write: 3, Generation: 2, Interruptions: 1, RunTime: 90*time.Minute +
			250*time.Millisecond, CreatedAt: noon, ClaimedAt: noon, Owner: "w"},
	}
}

func TestGoldenRecords(t *testing.T) {
	want := goldenRecords()
	files, err := filepath.Glob("testdata/record/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("golden records: %v, %v", files, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		r, ok := want[name]
		if !ok {
			t.Errorf("no meaning is given for %s", file)
			continue
		}
		delete(want, name)
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var metadata map[string]string
		if err := json.Unmarshal(raw, &metadata); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(metadata, plain(r.metadata())); diff != "" {
			t.Errorf("%s as metadata (-want +got)\n%s", name, diff)
		}
		got, err := parse("job-1", pointers(metadata))
		if diff := cmp.Diff(r, got, exactly); err != nil || diff != "" {
			t.Errorf("%s read: %v (-want +got)\n%s", name, err, diff)
		}
	}
	for name := range want {
		t.Errorf("golden file testdata/record/%s.json is missing", name)
	}
}

// The golden records leave no key out, so that none is without an example.
func TestGoldenRecordsAreFull(t *testing.T) {
	shown := map[string]*string{}
	for _, r := range goldenRecords() {
		maps.Copy(shown, r.metadata())
	}
	for _, f := range fields {
		if shown[f.key] == nil {
			t.Errorf("key %s is in none of the golden records", f.key)
		}
	}
}

// Go hands metadata back with the case of its keys changed.
func TestKeysAreReadWithoutCase(t *testing.T) {
	full := fullRecord()
	shouted := map[string]*string{}
	for key, value := range full.metadata() {
		shouted[strings.ToUpper(key[:1])+key[1:]] = value
	}
	got, err := parse("job-1", shouted)
	if diff := cmp.Diff(full, got, exactly); err != nil || diff != "" {
		t.Errorf("read with capitals: %v (-want +got)\n%s", err, diff)
	}
}

func TestMetadataUndoesParse(t *testing.T) {
	count := rapid.IntRange(0, maxNumber)
	moment := rapid.Custom(func(t *rapid.T) time.Time {
		if ms := rapid.Int64Range(-1, 253402300799999).Draw(t, "ms"); ms > 0 {
			return time.UnixMilli(ms).UTC()
		}
		return time.Time{}
	})
	ms := rapid.Custom(func(t *rapid.T) time.Duration {
		return time.Duration(rapid.Int64Range(0, maxRunTime).Draw(t, "ms")) * time.Millisecond
	})
	word := rapid.StringMatching(`[a-z0-9-]{0,36}`)
	property.Check(t, func(t *rapid.T) {
		r := Record{
			ID: "job-1", Version: Version, Status: Status(word.Draw(t, "status")), Kind: word.Draw(t, "kind"),
			PayloadHash: word.Draw(t, "hash"), MessageID: word.Draw(t, "message"), Token: word.Draw(t, "token"),
			Write: count.Draw(t, "write"), Generation: count.Draw(t, "generation"), Failures: count.Draw(t, "failures"),
			FailuresTotal: count.Draw(t, "total"), Breaks: count.Draw(t, "breaks"), Peak: float64(rapid.IntRange(0, 10000).Draw(t, "peak")) / 10000,
			ChargedExits: count.Draw(t, "silent"), EarlyExits: count.Draw(t, "early"), Charge: rapid.Bool().Draw(t, "charge"),
			Interruptions: count.Draw(t, "interruptions"),
			RunTime:       time.Duration(rapid.Int64Range(0, maxRunTime).Draw(t, "paid")) * time.Millisecond,
			Ledger: ledger.Ledger{
				Useful: ms.Draw(t, "useful"), Redone: ms.Draw(t, "redone"), Overhead: ms.Draw(t, "overhead"),
				Evictions: count.Draw(t, "evictions"), Exits: count.Draw(t, "exits"),
			},
			NextWrite:  ms.Draw(t, "nextwrite"),
			Progressed: rapid.Bool().Draw(t, "progressed"), StateHash: word.Draw(t, "state"),
			StateSize: rapid.Int64Range(0, maxNumber).Draw(t, "size"), StateVersion: count.Draw(t, "version"),
			Fraction: float64(rapid.IntRange(0, 10000).Draw(t, "fraction")) / 10000,
			Text:     rapid.StringN(0, 40, -1).Draw(t, "text"), Owner: rapid.StringN(0, 20, -1).Draw(t, "owner"),
			FailedBy:  rapid.StringN(0, 20, -1).Draw(t, "failedby"),
			Reason:    rapid.StringN(0, 100, -1).Draw(t, "reason"),
			Log:       string(rapid.SliceOfN(rapid.Byte(), 0, MaxLog/3).Draw(t, "log")),
			CreatedAt: moment.Draw(t, "created"), ClaimedAt: moment.Draw(t, "claimed"), EndedAt: moment.Draw(t, "ended"),
			unknown: rapid.MapOf(rapid.StringMatching(`x[a-z]{1,8}`), rapid.StringMatching(`[ -~]{1,20}`)).Draw(t, "unknown"),
		}
		if r.HasState() && r.Status != Cancelled {
			r.StateKey = blocks.Key(rapid.StringMatching(`([0-9a-f]{32})?`).Draw(t, "key"))
		}
		metadata := r.metadata()
		checkHeaders(t, metadata)
		got, err := parse("job-1", metadata)
		if diff := cmp.Diff(r, got, exactly); err != nil || diff != "" {
			t.Fatalf("read: %v (-written +read)\n%s", err, diff)
		}
	})
}

// checkHeaders demands the service's rules for metadata: values that are printable ASCII
// and not empty.
func checkHeaders(t rapid.TB, metadata map[string]*string) {
	t.Helper()
	for key, value := range metadata {
		if *value == "" || strings.ContainsFunc(*value, func(c rune) bool { return c < ' ' || c > '~' }) {
			t.Fatalf("key %s has the value %q, want printable ASCII and not empty", key, *value)
		}
	}
}

func TestFreeText(t *testing.T) {
	for name, text := range map[string]string{
		"empty": "", "words": "no such file", "newlines": "line 1\r\nline 2\n", "accents": "déjà vu – naïve",
		"emoji": "🔥🧊", "percent": "100% of 50%25", "control": "a\x00b\x1b[31m\x7f", "spaces": "  x  ", "plus": "a+b&c=d",
	} {
		r := Record{Reason: text, Text: text, Owner: text, Version: 1}
		metadata := r.metadata()
		checkHeaders(t, metadata)
		got, err := parse("", metadata)
		if err != nil || got.Reason != text || got.Text != text || got.Owner != text {
			t.Errorf("%s came back as %q, %q, %q, %v, want %q", name, got.Reason, got.Text, got.Owner, err, text)
		}
	}
}

func TestFreeTextIsCut(t *testing.T) {
	for name, unit := range map[string]string{"ASCII": "x", "accents": "é", "emoji": "🔥", "newlines": "\n"} {
		escaped := escape("begins "+strings.Repeat(unit, 10<<10)+" ends", maxReason)
		if len(escaped) > maxReason || len(escaped) < maxReason-2*len("%F0%9F%94%A5") {
			t.Errorf("10 KiB of %s take %d bytes, want close to %d", name, len(escaped), maxReason)
		}
		text, err := unescape(escaped)
		if err != nil || !strings.HasPrefix(text, "begins ") || !strings.HasSuffix(text, " ends") {
			t.Errorf("10 KiB of %s came back as %.12q…, %v, want both ends", name, text, err)
		}
		if again := escape(text, maxReason); again != escaped {
			t.Errorf("%s cut once are cut again by a rewrite", name)
		}
	}
}

// A record stays under 7 KiB for any report of a handler.
func TestSizeAtWorst(t *testing.T) {
	worst := strings.Repeat("\n", 100<<10)
	latest := time.Date(9999, 12, 31, 23, 59, 59, 999e6, time.UTC)
	r := Record{
		Status: Cancelled, Kind: strings.Repeat("k", 64), PayloadHash: hashOf(nil), MessageID: strings.Repeat("m", 36),
		Token: strings.Repeat("t", 36), Write: math.MaxInt, Generation: math.MaxInt, Failures: math.MaxInt,
		Breaks: math.MaxInt, Peak: 1,
		ChargedExits: math.MaxInt, EarlyExits: math.MaxInt, Charge: true, Interruptions: math.MaxInt, RunTime: math.MaxInt64, Progressed: true,
		StateHash: hashOf(nil),
		StateSize: math.MaxInt64, StateVersion: math.MaxInt, Fraction: 1, Text: worst, Owner: worst, Reason: worst,
		Group: strings.Repeat("g", 64), FollowUps: FollowUps(strings.Repeat(strings.Repeat("f", 32)+",", maxFollowUps) + moreFollowUps),
		FailedBy: worst, Log: strings.Repeat("\n", MaxLog/3),
		MoveReason: worst, FailuresTotal: math.MaxInt, Deadline: latest, Estimate: math.MaxInt64, StateBlocks: math.MaxInt,
		Inputs: hashOf(nil), InputList: strings.Repeat("i", maxInputList), Outputs: Outputs{hashOf(nil), math.MaxInt, math.MaxInt64},
		Ledger: ledger.Ledger{Useful: math.MaxInt64, Redone: math.MaxInt64, Overhead: math.MaxInt64, Evictions: math.MaxInt,
			Exits: math.MaxInt},
		NextWrite: math.MaxInt64, StateNeeds: strings.Repeat("n", job.MaxNeeds),
		CreatedAt: latest, ClaimedAt: latest, EndedAt: latest,
	}
	r.StateKey = blocks.Key(strings.Repeat("a", 32))
	one := runs.Run{Delivery: 1, Start: latest, Took: math.MaxInt64, Worker: worst}
	for r.Status = range map[Status]bool{Cancelled: true, Running: true} {
		r.Runs = ""
		for one.Delivery = 1; one.Delivery < 2*runs.Most; one.Delivery++ {
			r.Runs = r.Runs.With(one)
		}
		size, metadata := 0, r.metadata()
		for key, value := range metadata {
			size += len(key) + len(*value)
		}
		kept := runs.List(*metadata["runs"])
		t.Logf("the largest record that is %s has %d bytes and %d of %d entries of its timeline", r.Status, size, len(kept.Runs()),
			len(r.Runs.Runs()))
		if _, ok := kept.Last(one.Delivery - 1); size >= 7<<10 || !ok {
			t.Errorf("the largest record has %d bytes of metadata, want less than %d, and the last delivery in %q", size, 7<<10, kept)
		}
	}
}

func TestFractionIsBounded(t *testing.T) {
	for given, want := range map[float64]float64{
		-1: 0, 0: 0, 0.5: 0.5, 0.00001: 0, 0.99999: 1, 1: 1, 7: 1, math.Inf(1): 1, math.Inf(-1): 0,
	} {
		r := Record{Fraction: given}
		got, err := parse("", r.metadata())
		if err != nil || got.Fraction != want {
			t.Errorf("fraction %v came back as %v, %v, want %v", given, got.Fraction, err, want)
		}
	}
	r := Record{Fraction: math.NaN()}
	if value := r.metadata()["progress"]; value != nil {
		t.Errorf("fraction NaN is written as %q, want nothing", *value)
	}
	for _, written := range []string{"NaN", "-Inf", "+Inf", "-3", "17"} {
		got, err := parse("", pointers(map[string]string{"v": "1", "progress": written}))
		if err != nil || !(got.Fraction >= 0 && got.Fraction <= 1) {
			t.Errorf("progress %s is read as %v, %v, want 0 to 1", written, got.Fraction, err)
		}
	}
}

// No claim writes a record that this version cannot read.
func TestUnreadable(t *testing.T) {
	full := fullRecord()
	good := plain(full.metadata())
	for name, change := range map[string]func(m map[string]string){
		"no version":     func(m map[string]string) { delete(m, "v") },
		"newer version":  func(m map[string]string) { m["v"] = "5" },
		"cut key":        func(m map[string]string) { m["v"], m["statekey"] = "3", "0123456789abcdef" },
		"no hex in key":  func(m map[string]string) { m["v"], m["statekey"] = "3", strings.Repeat("x", 32) },
		"version text":   func(m map[string]string) { m["v"] = "one" },
		"negative count": func(m map[string]string) { m["failures"] = "-1" },
		"count text":     func(m map[string]string) { m["write"] = "many" },
		"huge count":     func(m map[string]string) { m["generation"] = strings.Repeat("9", 30) },
		"no time":        func(m map[string]string) { m["createdat"] = "today" },
		"bad escape":     func(m map[string]string) { m["reason"] = "100%" },
		"bad fraction":   func(m map[string]string) { m["progress"] = "half" },
	} {
		m := maps.Clone(good)
		change(m)
		r, err := parse("job-1", pointers(m))
		if !errors.Is(err, errUnreadable) || r.Version != 0 {
			t.Errorf("%s: read as version %d, %v, want version 0 and errUnreadable", name, r.Version, err)
		}
		if got := OnDelivery(&r, ours, noon); got != Unreadable {
			t.Errorf("%s: OnDelivery = %s, want unreadable", name, got)
		}
	}
}

func plain(metadata map[string]*string) map[string]string {
	out := make(map[string]string, len(metadata))
	for key, value := range metadata {
		out[key] = *value
	}
	return out
}

func pointers(metadata map[string]string) map[string]*string {
	out := make(map[string]*string, len(metadata))
	for key, value := range metadata {
		out[key] = &value
	}
	return out
}

// A deadline that cannot be read is for people alone, and keeps no record from being read.
func TestDeadlinesAreReadLeniently(t *testing.T) {
	metadata := fullRecord()
	broken := metadata.metadata()
	for key, value := range map[string]string{"deadline": "soon", "estimate": "-5", "movereason": "%"} {
		broken[key] = &value
	}
	got, err := parse("job-1", broken)
	if diff := cmp.Diff(fullRecord(), got, exactly); err != nil || diff != "" {
		t.Errorf("parse = %v (-want +got)\n%s", err, diff)
	}
}

// TestPackedInputs: a list comes back as it was; a list without room in the record, and a
// damaged or swelling one, is none.
func TestPackedInputs(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	unpackable := make([]byte, 2*maxInputList)
	for i := range unpackable {
		unpackable[i] = byte('a' + random.IntN(26))
	}
	many := "[" + strings.Repeat(`{"container":"data","blob":"scenes/7/frame.exr"},`, 200) + "{}]"
	for _, list := range []string{`[{"container":"data","prefix":"a/"}]`, many} {
		packed := PackInputs([]byte(list))
		if got := (Record{InputList: packed}).UnpackInputs(); string(got) != list || len(packed) > maxInputList {
			t.Errorf("%.60q came back as %.60q from %d bytes", list, got, len(packed))
		}
	}
	for _, list := range []string{"", string(unpackable), strings.Repeat(" ", mostInputs+1)} {
		if packed := PackInputs([]byte(list)); packed != "" {
			t.Errorf("%d bytes of a list are packed into %d, want none", len(list), len(packed))
		}
	}
	var bomb bytes.Buffer
	w, _ := flate.NewWriter(&bomb, 9)
	_, _ = w.Write(make([]byte, 1<<20))
	_ = w.Close()
	for _, packed := range []string{"", "no base64!", "AAAA", PackInputs([]byte(many))[:40],
		base64.RawStdEncoding.EncodeToString(bomb.Bytes())} {
		if got := (Record{InputList: packed}).UnpackInputs(); got != nil {
			t.Errorf("%.40q is the list %.40q, want none", packed, got)
		}
	}
}
