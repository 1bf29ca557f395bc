//go:build integration

package web_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/client/clienttest"
	"github.com/spotworker/spotworker/internal/checkpoint/runs"
	"github.com/spotworker/spotworker/internal/overview"
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/internal/web"
	"github.com/spotworker/spotworker/job"
)

// world is a deployment that was never stored: jobs and workers with times in the past, as the
// figures of an hour need them.
type world struct {
	jobs    []client.Job
	workers []client.Worker
	step    time.Duration // the clock of the world moves so far at each read; 0 for the real clock
	down    atomic.Bool
	churn   atomic.Bool // at each read some jobs come and others go
	reads   atomic.Int64
	began   time.Time
}

// hostile is a text that would be seen if the page ran, reordered or hid it.
const hostile = `<script>document.title='owned'</script><img src=x onerror="document.title='owned'">"'` + "\u202egnp.exe\u0000"

var kinds = []string{"render", "transcode", "train", "align"}

// newWorld makes a deployment with so many jobs.
func newWorld(jobs int) *world {
	w := &world{}
	random := rand.New(rand.NewPCG(7, uint64(jobs)))
	now := time.Now()
	w.began = now
	for i := range jobs {
		created := now.Add(-time.Duration(random.Float64()*70) * time.Minute).Add(-4 * time.Minute)
		j := client.Job{
			ID: fmt.Sprintf("%s-%06d", []string{"alps-frame", "clip", "epoch-run", "genome"}[i%4], i), Kind: kinds[i%4], Status: client.StatusDone,
			Owner: fmt.Sprintf("spot_%d-3f9c01aa-0", 1+i%9), CreatedAt: created, ClaimedAt: created.Add(time.Second), ReadAt: now, Deliveries: 1,
			RunTime: time.Duration(20+random.IntN(600)) * time.Second, ResultSize: 120, WorkSHA256: fmt.Sprintf("%064x", i),
		}
		j.EndedAt = now.Add(-time.Duration(float64(min(65*time.Minute, now.Sub(created))) * random.Float64()))
		j.UpdatedAt = j.EndedAt
		j.Cost = client.Cost{Useful: j.RunTime, Overhead: j.RunTime / 40}
		if i%11 == 0 {
			j.Interruptions, j.Cost.Evictions, j.Deliveries, j.Cost.Redone = 1, 1, 2, j.RunTime/60
		}
		switch {
		case i%97 == 3:
			j.Status, j.TotalFailures = client.StatusPoison, 5
			j.Reason = fmt.Sprintf("exit status 1: open /data/frames/%d.exr: no such file or directory", i)
		case i%211 == 5:
			j.Status, j.Reason = client.StatusCancelled, "superseded by a later batch"
		case i < 40 || i%60 == 9:
			j.Status, j.EndedAt, j.UpdatedAt = client.StatusRunning, time.Time{}, now.Add(-time.Duration(random.IntN(50))*time.Second)
			j.Fraction = random.Float64()
			j.Text = fmt.Sprintf("tile %d of 64", int(j.Fraction*64))
		case i%75 == 11:
			j.Status, j.EndedAt, j.UpdatedAt = client.StatusOpen, time.Time{}, now.Add(-time.Duration(random.IntN(400))*time.Second)
			j.Interruptions++
		}
		w.jobs = append(w.jobs, j)
	}
	if jobs > 0 {
		w.workers = workersAt(now)
	}
	return w
}

func workersAt(now time.Time) (all []client.Worker) {
	for i := 1; i <= 9; i++ {
		w := client.Worker{
			Name: fmt.Sprintf("spot_%d-3f9c01aa-0", i), VM: fmt.Sprintf("spot_%d", i), VMSize: "Standard_D4as_v5",
			Zone: fmt.Sprint(1 + i%3), State: "process", Version: "v1.4.0",
			StartedAt: now.Add(-time.Duration(5+7*i) * time.Minute), Age: time.Duration(i) * time.Second, Kinds: kinds, Jobs: 4,
			Queues:   []string{"spotworker-jobs"},
			Activity: &client.Activity{Slots: 4, Handler: 34 * time.Minute, Around: time.Minute, Idle: 5 * time.Minute},
		}
		for k, kind := range kinds {
			a := client.KindActivity{Kind: kind, Done: 30 - 4*k + i, Failed: k / 2, Committed: time.Duration(300-40*k) * time.Second,
				HandedOver: 20 * time.Second, Redone: 3 * time.Second, Durations: []client.DurationCount{{UpTo: time.Duration(11+20*k) * time.Second,
					Count: 20}, {UpTo: time.Duration(31+60*k) * time.Second, Count: 9}}}
			if i == 4 && kind == "train" {
				a.Done, a.Failed, a.FailedTime = 1, 14, 3*time.Minute
			}
			w.Activity.Kinds = append(w.Activity.Kinds, a)
		}
		switch i {
		case 8:
			w.State, w.Age, w.Jobs = "shutdown", 21*time.Minute, 0
			w.LastEvent = &client.Event{Type: "Preempt", Status: "Scheduled", SeenAt: now.Add(-21 * time.Minute)}
			w.LastDrain = &client.Drain{EndedAt: now.Add(-21 * time.Minute).Add(time.Second), Jobs: 4, Released: 4, Took: 212 * time.Millisecond}
		case 9:
			w.State, w.Age, w.Jobs = "shutdown", 42*time.Minute, 0
			w.LastEvent = &client.Event{Type: "Preempt", Status: "Scheduled", SeenAt: now.Add(-42 * time.Minute)}
			w.LastDrain = &client.Drain{EndedAt: now.Add(time.Second - 42*time.Minute), Jobs: 4, Released: 3, Done: 1,
				Took: 340 * time.Millisecond}
		}
		all = append(all, w)
	}
	return all
}

var errDown = errors.New("dial tcp 10.0.0.4:443: connect: connection refused")

// read is what the page reads. Running jobs move on.
func (w *world) read(_ context.Context, each func(client.Job), _ func(overview.Snapshot)) (overview.Snapshot, error) {
	n := w.reads.Add(1)
	if w.down.Load() {
		return overview.Snapshot{}, errDown
	}
	now := time.Now()
	if w.step > 0 {
		now = w.began.Add(time.Duration(n) * w.step)
	}
	s := overview.Snapshot{At: now, Took: 84 * time.Millisecond, Workers: w.workers, Jobs: overview.Jobs{ByStatus: map[client.Status]int{}},
		Waits: map[string]time.Duration{"spotworker-jobs": 94 * time.Second}}
	for i, j := range w.jobs {
		if w.churn.Load() && (i+int(n))%7 == 0 {
			continue
		}
		j.ReadAt = now
		if j.Status == client.StatusRunning {
			j.Fraction = min(0.99, j.Fraction+0.002*float64(n))
			s.Jobs.Running = append(s.Jobs.Running, j)
		}
		s.Jobs.ByStatus[j.Status]++
		if j.Status == client.StatusDone && j.Age() < time.Hour {
			s.Jobs.DoneRecently++
		}
		w.jobs[i].ReadAt = now
		each(j)
	}
	queued := 0
	if len(w.jobs) > 0 {
		queued = len(s.Jobs.Running) + 60 + int(n)%40
	}
	s.Queues.Jobs = client.Queue{Name: "spotworker-jobs", Exists: true, Messages: queued}
	s.Queues.OnDemand = client.Queue{Name: "spotworker-ondemand", Exists: true}
	s.Queues.Poison = client.Queue{Name: "spotworker-poison", Exists: true, Messages: s.Jobs.ByStatus[client.StatusPoison]}
	return s, nil
}

// serve serves the page of a world until the test ends. Single jobs come from a deployment in
// memory with a job that is done and has hostile texts, and a job with many deliveries.
func serve(t *testing.T, w *world, every time.Duration) (address string) {
	t.Helper()
	options := clienttest.Options(t, job.Kinds{"echo": job.HandlerFunc(echo)})
	c, err := client.Open(options)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{storyID, journeyID} {
		if _, err := c.Put(t.Context(), client.Spec{ID: id, Kind: "echo"}); err != nil {
			t.Fatal(err)
		} else if _, err := c.Wait(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	travel(t, options)
	return listen(t, web.Config{Client: c, Read: w.read, Every: every})
}

// travel rewrites the record of a job: it runs for the tenth time, after evictions, deaths and a failure.
func travel(t *testing.T, options client.Options) {
	t.Helper()
	names, err := azure.NamesFor(azure.DefaultPrefix, "")
	if err != nil {
		t.Fatal(err)
	}
	records, err := container.NewClientFromConnectionString(options.ConnectionString, names.Records,
		&container.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: options.Transport}})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now().Add(-3 * time.Hour).UTC()
	var timeline runs.List
	for i, r := range []runs.Run{
		{Start: began.Add(2 * time.Minute), Took: 25 * time.Minute, Outcome: runs.Evicted, Saves: 2310, SavedAfter: 1499 * time.Second},
		{Start: began.Add(27*time.Minute + 9*time.Second), Took: 20 * time.Second, Outcome: runs.Failed, Redone: 19 * time.Second},
		{Start: began.Add(28 * time.Minute), Took: 17 * time.Minute, Outcome: runs.Lost, Saves: 1, SavedAfter: 11 * time.Minute,
			Redone: 6 * time.Minute},
		{Start: began.Add(49 * time.Minute), Took: 31 * time.Minute, Outcome: runs.Evicted, Saves: 40, SavedAfter: 31 * time.Minute},
		{Start: began.Add(80*time.Minute + 8*time.Second), Took: 4 * time.Minute, Outcome: runs.Evicted, Saves: 4, SavedAfter: 4 * time.Minute},
		{Start: began.Add(84*time.Minute + 15*time.Second), Took: 21 * time.Minute, Outcome: runs.Interrupted, Saves: 9,
			SavedAfter: 20 * time.Minute, Redone: time.Minute},
		{Start: began.Add(121 * time.Minute), Took: 14 * time.Minute, Outcome: runs.Lost, Saves: 3, SavedAfter: 12 * time.Minute,
			Redone: 2 * time.Minute},
		{Start: began.Add(137 * time.Minute), Saves: 31, SavedAfter: 42 * time.Minute},
	} {
		r.Delivery, r.Worker = 3+i, fmt.Sprintf("vmss_%06d-%04dabcd-0", 10+i, 1000+i)
		timeline = timeline.With(r)
	}
	metadata := map[string]string{
		"v": "1", "status": "running", "kind": "train", "group": "night-7", "token": "t", "write": "2417", "generation": "10",
		"messageid": "m", "interruptions": "4", "failurestotal": "1", "paid": "8000000", "useful": "7300000", "redone": "567000",
		"overhead": "133000", "statehash": strings.Repeat("5a", 32), "statesize": "1000", "evictions": "4",
		"exits": "2", "progress": "0.83", "progresstext": "epoch%2067%20of%2080",
		"createdat": began.Format(time.RFC3339Nano), "claimedat": began.Add(137 * time.Minute).Format(time.RFC3339Nano),
		"owner": "vmss_000017-1007abcd-0", "runs": string(timeline),
	}
	all := map[string]*string{}
	for key, value := range metadata {
		all[key] = &value
	}
	for pages := records.NewListBlobsFlatPager(nil); pages.More(); {
		page, err := pages.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, item := range page.Segment.BlobItems {
			if strings.HasSuffix(*item.Name, "/"+journeyID) {
				if _, err := records.NewBlobClient(*item.Name).SetMetadata(t.Context(), all, nil); err != nil {
					t.Fatal(err)
				}
				return
			}
		}
	}
	t.Fatalf("no record of job %s", journeyID)
}

// listen serves a page until the test ends.
func listen(t *testing.T, c web.Config) (address string) {
	t.Helper()
	c.Title, c.Version, c.Explain, c.Control = "spotworker on contoso", "v1.4.0", error.Error, "spotworker-control"
	server, err := web.Listen(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return server.Address()
}
