package presence

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/spotworker/spotworker/internal/fleet/activity"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/storage/azure"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const workersName = "test-workers"

var noon = time.Date(2026, time.March, 9, 12, 0, 0, 0, time.UTC)

// inBubble runs a test in virtual time with a container of presences.
func inBubble(t *testing.T, test func(t *testing.T, server *storage.Server, store *Store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := storage.New(storage.Options{})
		account, err := azure.Connect(azure.AccountConfig{ConnectionString: server.ConnectionString(), Transport: server.Transport()})
		if err != nil {
			t.Fatal(err)
		}
		workers := account.Container(workersName)
		if _, err := workers.Create(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		server.ResetCounts()
		test(t, server, NewStore(workers))
	})
}

// full is a presence with a value in every field.
func full() Presence {
	return Presence{
		Worker: "vmss_000001-0123abcd-0", State: "process", StartedAt: noon, At: noon.Add(time.Hour),
		Machine:   Machine{VM: "vmss_000001", Size: "Standard_D4as_v5 (é)", Zone: "2", BootID: "6c1f2f6e-0c8f-4d7f-9a51-6b7a3d1f0f10"},
		Program:   "1.2.3 (café)",
		TakesFrom: []string{"test-jobs", "test-jobs-ondemand"}, Kinds: []string{"digest", "render"}, Offers: []string{"0", "1a 2b", "3c+Bw"},
		GPUs: 4, Jobs: []string{"a", "b"}, Count: 2,
		Activity: activity.Report{
			Slots: 4, Times: activity.Times{Handler: 20 * time.Minute, Around: time.Minute, Idle: 19 * time.Minute},
			Kinds: []activity.Kind{{
				Name: "render", Done: 12, Failed: 1, Durations: activity.Histogram{{Index: 64, Count: 12}},
				Efforts: activity.Efforts{Committed: 19 * time.Minute, HandedOver: 30 * time.Second, Failed: 10 * time.Second,
					Redone: 20 * time.Second},
			}},
		},
		Steered: true, Control: 7, Asked: AskedDrain, Depths: "a1b2c3d4",
		Ready: []Ready{{ID: "602d9444-d2cd-49c7-8624-8643e7171297", NotBefore: noon}, {ID: "odd, @ 100%"}},
		LastEvent: Event{
			ID: "602d9444", Type: "Terminate", Status: "Scheduled", Source: "User", NotBefore: noon, Duration: "unknown",
			Description: "Wartung & Ümzug = 100%;\n+x", Action: "drain", SeenAt: noon.Add(-time.Minute),
		},
		LastDrain: Drain{
			Reason: "evicted", EndedAt: noon, Took: 412 * time.Millisecond, Budget: 10 * time.Second,
			Jobs: 5, Released: 3, Done: 1, LeftOut: 2, Left: 1, Lost: 64 * time.Second,
		},
		Findings: Findings{
			Unlike: []KindCount{{"render", 2}}, TooLarge: []KindCount{{ForGPUs("train", 8), 3}},
			Lacks: []KindCount{{"logstat", 3}, {"x", 1}}, Silent: 2, SilentJob: "a",
			Calls: activity.CallReport{Count: 120, Slow: 90, Failed: 9, Denied: 1, Throttled: 2, Missing: 3},
			Trouble: Trouble{Exposed: "127.0.0.1:3080", Blind: 7 * time.Second, Clock: -10 * time.Minute,
				ScratchFree: 5, ScratchSize: 1 << 40, Rival: "vm & 2 since",
				Crashes: 2, Broken: "a,b", GPUs: "1 (Tesla T4): lost & gone; 3: nvidia-smi does not answer"},
			Readings: []Reading{{"test-jobs", 1200, 10 * time.Minute}, {"test-jobs", 3400, 5 * time.Minute}},
		},
		Running: []Running{
			{ID: "a", Generation: 3, RunTime: 90 * time.Second, Ran: 30500 * time.Millisecond, From: 0.25, Fraction: 0.5, Text: "époque 3\n",
				HandOver: 1500 * time.Millisecond, Log: []byte("# 3 2026-03-09T12:00:00.000Z w\no 0 \xff\n")},
			{ID: "b", Generation: 1},
		},
	}
}

func TestWriteAndRead(t *testing.T) {
	inBubble(t, func(t *testing.T, server *storage.Server, store *Store) {
		if p, ok, err := store.Read(t.Context(), full().Worker); ok || err != nil {
			t.Errorf("Read of nothing = %+v, %t, %v, want none and no error", p, ok, err)
		}
		empty := Presence{Worker: full().Worker, State: "start", StartedAt: noon, At: noon}
		for _, want := range []Presence{full(), empty, full()} {
			if err := store.Write(t.Context(), want); err != nil {
				t.Fatal(err)
			}
			got, ok, err := store.Read(t.Context(), want.Worker)
			if diff := cmp.Diff(want, got.Presence); diff != "" || !ok || err != nil {
				t.Errorf("Read = %t, %v (-written +read)\n%s", ok, err, diff)
			}
		}
		blobs := server.Blobs(workersName)
		if len(blobs) != 1 || blobs[0].Name != full().Worker {
			t.Errorf("blobs = %+v, want one, named like the worker", blobs)
		}
		if calls := server.Counts()[storage.OpPutBlob]; calls != 3 {
			t.Errorf("three writes took %d calls, want 3", calls)
		}
	})
}

// TestRewrite: a worker learns of another living process under its name, and its heartbeat names
// it. A repeated write of its own, and a heartbeat that somebody removed, are none.
func TestRewrite(t *testing.T) {
	inBubble(t, func(t *testing.T, server *storage.Server, store *Store) {
		mine, other := full(), full()
		other.VM, other.BootID, other.StartedAt = "vm_other", "another", noon.Add(time.Hour)
		rewrite := func(p Presence, last azcore.ETag, want string) azcore.ETag {
			t.Helper()
			p.Findings.Trouble.Rival = ""
			etag, rival, err := store.Rewrite(t.Context(), p, last)
			got, _, readErr := store.Read(t.Context(), p.Worker)
			if err != nil || readErr != nil || (rival != nil) != (want != "") || got.VM != p.VM || got.Findings.Trouble.Rival != want {
				t.Errorf("Rewrite = rival %v, %v, and the heartbeat names %q, want %q", rival, err, got.Findings.Trouble.Rival, want)
			}
			return etag
		}
		first := rewrite(mine, "", "")
		rewrite(mine, first, "")
		first = rewrite(mine, first, "") // whose reply to the write before was lost
		theirs := rewrite(other, "", "")
		first = rewrite(mine, first, "vm_other since 2026-03-09T13:00:00Z")
		rewrite(other, theirs, mine.VM+" since 2026-03-09T12:00:00Z")
		first = rewrite(mine, first, "vm_other since 2026-03-09T13:00:00Z")
		if _, err := store.blobs.Delete(t.Context(), mine.Worker, ""); err != nil {
			t.Fatal(err)
		}
		rewrite(mine, first, "")
	})
}

// A listing shows a worker without opening its blob.
func TestMetadata(t *testing.T) {
	inBubble(t, func(t *testing.T, server *storage.Server, store *Store) {
		if err := store.Write(t.Context(), full()); err != nil {
			t.Fatal(err)
		}
		state, body, _ := server.ReadBlob(workersName, full().Worker)
		want := map[string]string{
			"v": "1", "state": "process", "bootid": "6c1f2f6e-0c8f-4d7f-9a51-6b7a3d1f0f10",
			"startedat": "2026-03-09T12:00:00Z", "at": "2026-03-09T13:00:00Z", "program": "1.2.3%20%28caf%C3%A9%29",
			"takesfrom": "test-jobs,test-jobs-ondemand", "kinds": "digest,render", "jobs": "2", "vm": "vmss_000001",
			"size": "Standard_D4as_v5%20%28%C3%A9%29", "zone": "2",
			"ready": "602d9444-d2cd-49c7-8624-8643e7171297@2026-03-09T12:00:00Z,odd%2C+%40+100%25@",
			"lastevent": "action=drain&description=Wartung+%26+%C3%9Cmzug+%3D+100%25%3B%0A%2Bx&duration=unknown&id=602d9444" +
				"&notbefore=2026-03-09T12%3A00%3A00Z&seenat=2026-03-09T11%3A59%3A00Z&source=User&status=Scheduled&type=Terminate",
			"control": "7", "asked": "drain", "depths": "a1b2c3d4", "slots": "4,1200.0,60.0,1140.0,0.0",
			"recent": "render,12,1,1140.0,30.0,10.0,20.0,64.12",
			"unlike": "render=2", "toolarge": "train/8=3", "gpus": "4", "offers": "0%2C1a%202b%2C3c+Bw",
			"lacks": "logstat=3,x=1", "silent": "2,a", "calls": "120,90,9,1,2,3", "queues": "test-jobs,1200,600;test-jobs,3400,300",
			"lastdrain": "budget=10s&done=1&endedat=2026-03-09T12%3A00%3A00Z&jobs=5&left=1&leftout=2&lost=1m4s&reason=evicted" +
				"&released=3&took=412ms",
			"trouble": "blind=7&broken=a%2Cb&clock=-600&crashes=2&exposed=127.0.0.1%3A3080&free=5" +
				"&gpus=1+%28Tesla+T4%29%3A+lost+%26+gone%3B+3%3A+nvidia-smi+does+not+answer&rival=vm+%26+2+since&size=1099511627776",
		}
		if diff := cmp.Diff(want, state.Metadata); diff != "" {
			t.Errorf("metadata (-want +got)\n%s", diff)
		}
		const wantBody = `{"jobs":["a","b"],"running":[{"id":"a","generation":3,"run_time":90,"ran":30.5,"from":0.25,"fraction":0.5,` +
			`"text":"époque 3\n","hand_over":1.5,"log":"IyAzIDIwMjYtMDMtMDlUMTI6MDA6MDAuMDAwWiB3Cm8gMCD/Cg=="},` +
			`{"id":"b","generation":1,"run_time":0,"ran":0}]}`
		if string(body) != wantBody {
			t.Errorf("body = %s, want %s", body, wantBody)
		}
	})
}

// However many jobs are active, the blob stays small and their number correct.
func TestManyJobs(t *testing.T) {
	inBubble(t, func(t *testing.T, server *storage.Server, store *Store) {
		p := full()
		p.Jobs = nil
		for i := range maxJobs + 10 {
			p.Jobs = append(p.Jobs, fmt.Sprint(i, strings.Repeat("x", 120)))
		}
		if err := store.Write(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		got, _, err := store.Read(t.Context(), p.Worker)
		if err != nil || got.Count != maxJobs+10 || len(got.Jobs) != maxJobs || got.Jobs[maxJobs-1] != p.Jobs[maxJobs-1] {
			t.Errorf("Read = %d jobs of %d, %v, want %d of %d", len(got.Jobs), got.Count, err, maxJobs, maxJobs+10)
		}
		if state, _, _ := server.ReadBlob(workersName, p.Worker); state.Size > 256<<10 {
			t.Errorf("blob has %d bytes, want at most 256 KiB", state.Size)
		}
	})
}

// Fields of a newer version are ignored, and the others read.
func TestParseIsTolerant(t *testing.T) {
	values := map[string]string{"V": "9", "State": "resting", "At": "yesterday", "Jobs": "many", "Program": "100%", "mood": "good"}
	metadata := map[string]*string{"nothing": nil}
	for key, value := range values {
		metadata[key] = &value
	}
	if diff := cmp.Diff(Presence{Worker: "w", State: "resting"}, parse("w", metadata)); diff != "" {
		t.Errorf("parse (-want +got)\n%s", diff)
	}
}

func TestTrouble(t *testing.T) {
	inBubble(t, func(t *testing.T, server *storage.Server, store *Store) {
		server.OnCall(func(storage.Call) storage.Fault { return storage.Fault{Before: time.Hour} })
		begun := time.Now()
		if err := store.Write(t.Context(), full()); err == nil || time.Since(begun) != callTimeout {
			t.Errorf("Write without an answer = %v after %s, want an error after %s", err, time.Since(begun), callTimeout)
		}
		if _, ok, err := store.Read(t.Context(), full().Worker); err == nil || ok {
			t.Errorf("Read without an answer = %t, %v, want an error", ok, err)
		}
	})
}

func TestIdleWorker(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *storage.Server, store *Store) {
		p := full()
		p.Jobs = nil
		if err := store.Write(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		got, ok, err := store.Read(t.Context(), p.Worker)
		if !ok || err != nil || got.Jobs != nil || got.Count != 0 {
			t.Errorf("Read of an idle worker = %+v, %t, %v, want no jobs", got, ok, err)
		}
		if _, err := json.Marshal(got); err != nil {
			t.Errorf("a presence that was read cannot be shown as JSON: %v", err)
		}
	})
}

// TestHasKind: a list that was cut, and a missing list, leave a kind open.
func TestHasKind(t *testing.T) {
	var many []string
	for i := range 400 {
		many = append(many, fmt.Sprintf("kind-%03d", i))
	}
	for _, row := range []struct {
		name  string
		kinds []string
		kind  string
		want  Has
	}{
		{"listed", []string{"b", "a"}, "a", HasIt},
		{"not listed", []string{"b", "a"}, "ab", HasNot},
		{"no list, as of an older version", nil, "a", MayHave},
		{"in a cut list", many, "kind-000", HasIt},
		{"cut off", many, "kind-399", MayHave},
		{"names of the greatest length", slices.Repeat([]string{strings.Repeat("k", 64)}, 1000), "a", MayHave},
	} {
		text := formatKinds(row.kinds)
		if len(text) > maxKinds {
			t.Errorf("%s: %d bytes, want at most %d", row.name, len(text), maxKinds)
		}
		metadata := map[string]*string{"kinds": &text}
		if got := parse("w", metadata).HasKind(row.kind); got != row.want {
			t.Errorf("%s: HasKind(%s) = %d, want %d", row.name, row.kind, got, row.want)
		}
	}
	if full := formatKinds(many); len(full) < maxKinds-10 || !strings.HasSuffix(full, ",*") {
		t.Errorf("a long list has %d bytes and ends %q, want it full and open", len(full), full[len(full)-10:])
	}
}

// For any event of the service, the written text about it is ASCII and short.
func TestLongEvent(t *testing.T) {
	long := strings.Repeat("é\xff\x00 \u202e", 400)
	e := Event{
		ID: long, Type: long, Status: long, Source: long, NotBefore: noon, Duration: long, Description: long, Action: long, SeenAt: noon,
	}
	d := Drain{Reason: long, EndedAt: noon, Took: time.Hour, Budget: time.Hour, Jobs: 1 << 30, Released: 1 << 30, Done: 1 << 30,
		LeftOut: 1 << 30, Left: 1 << 30}
	for name, text := range map[string]string{"event": e.format(), "drain": d.format()} {
		if len(text) > 1024 || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
			t.Errorf("%s has %d bytes, want at most 1024 of printable ASCII: %q", name, len(text), text)
		}
	}
	if got := parseEvent(e.format()).Description; !strings.HasPrefix(long, got[:2]) || len(got) < 20 {
		t.Errorf("description read again = %q, want the beginning of what was written", got)
	}
}

// TestHeartbeatOfManyQueues: the service allows 8 KiB for the fields of a listing. A worker that
// takes from as many queues as a deployment may have, with long names, many kinds and much to
// report writes its heartbeat without the fields that others need least.
func TestHeartbeatOfManyQueues(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *storage.Server, store *Store) {
		for _, accounts := range []int{1, 4, 16} {
			p := full()
			p.Offers = nil
			for i := range maxOffers {
				p.Offers = append(p.Offers, fmt.Sprintf("%0*d", maxOffer, i))
			}
			p.TakesFrom, p.Findings.Readings = nil, nil
			for a := range accounts {
				for q := range 16 {
					name := fmt.Sprintf("spotworkeraccount%d/spotworker-jobs-%d", a, q)
					p.TakesFrom = append(p.TakesFrom, name)
					p.Findings.Readings = append(p.Findings.Readings, Reading{name, 123_456, 10 * time.Minute})
				}
			}
			for k := range 40 {
				name := fmt.Sprintf("a-kind-of-some-length-%d", k)
				p.Kinds = append(p.Kinds, name)
				p.Activity.Kinds = append(p.Activity.Kinds, activity.Kind{Name: name, Done: 1000, Durations: p.Activity.Kinds[0].Durations})
			}
			if err := store.Write(t.Context(), p); err != nil {
				t.Fatalf("Write with %d queues = %v", len(p.TakesFrom), err)
			}
			got, _, err := store.Read(t.Context(), p.Worker)
			if err != nil {
				t.Fatal(err)
			}
			last := p.TakesFrom[len(p.TakesFrom)-1]
			if got.State != p.State || len(got.Kinds) != len(p.Kinds) || !got.Takes(last) || got.Asked != p.Asked ||
				len(got.Ready) != len(p.Ready) || got.Count != p.Count || got.LastDrain != p.LastDrain {
				t.Errorf("with %d queues the heartbeat reads as %+v", len(p.TakesFrom), got.Presence)
			}
			if accounts == 1 && (len(got.TakesFrom) != 16 || got.Takes("another") || len(got.Findings.Readings) != 16) {
				t.Errorf("with 16 queues the heartbeat has %d of them and %d readings, want all", len(got.TakesFrom), len(got.Findings.Readings))
			}
		}
	})
}
