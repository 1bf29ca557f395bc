package web

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/client"
)

var noon = time.Date(2026, 3, 9, 12, 0, 0, 0, time.UTC)

func after(d time.Duration) time.Time { return noon.Add(d) }

// travelled is a job that was evicted, died with a worker and runs for the third time.
func travelled() client.Job {
	return client.Job{
		ID: "job-1", Group: "night-7", Status: client.StatusRunning, Owner: "w-3", Deliveries: 3, CreatedAt: noon,
		ClaimedAt: after(20 * time.Minute), UpdatedAt: after(29 * time.Minute), ReadAt: after(30 * time.Minute),
		Runs: []client.Run{
			{Delivery: 1, Worker: "w-1", StartedAt: after(time.Minute), EndedAt: after(10 * time.Minute), Outcome: "evicted", Checkpoints: 12,
				CheckpointAt: after(10 * time.Minute)},
			{Delivery: 2, Worker: hostile, StartedAt: after(11 * time.Minute), EndedAt: after(19 * time.Minute), Outcome: "lost", Checkpoints: 1,
				CheckpointAt: after(17 * time.Minute), Redone: 2 * time.Minute},
			{Delivery: 3, Worker: "w-3", StartedAt: after(20 * time.Minute), Checkpoints: 4, CheckpointAt: after(29 * time.Minute)},
		},
	}
}

// TestStory: the story has waits, runs by worker, checkpoints, evictions and redone parts, in words and
// as a picture.
func TestStory(t *testing.T) {
	var b oneJob
	j := travelled()
	b.Group = j.Group
	b.tell(j, storyOf(j, nil), 0)
	var got []string
	for _, m := range b.Story {
		got = append(got, m.At.Format("15:04 ")+m.Class+": "+m.What)
	}
	want := []string{
		"12:00 open: put in group night-7",
		"12:01 run: claimed: delivery 1 on w-1, after a wait of 1m",
		"12:10 save: last of 12 checkpoints of delivery 1",
		"12:10 evicted: evicted: handed over before its VM went, after 9m",
		"12:11 run: claimed: delivery 2 on " + line(hostile) + ", after a wait of 1m",
		"12:17 save: checkpoint of delivery 2",
		"12:19 lost: its worker died, or lost the job, after 8m; about 2m of its work is not in a checkpoint and is done again",
		"12:20 run: claimed: delivery 3 on w-3, after a wait of 1m",
		"12:29 save: last of 4 checkpoints of delivery 3",
		"12:29 save: record written: the next worker would continue from its last checkpoint",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the story (-want +got)\n%s", diff)
	}
	track := string(b.Track)
	for _, part := range []string{`<rect class="bad" x="566.7" width="66.7"`, `<line class="eviction" x1="333.3"`, "2m is done again"} {
		if !strings.Contains(track, part) {
			t.Errorf("the picture lacks %s:\n%s", part, track)
		}
	}
	if n := strings.Count(track, `class="run"`); n != 3 || strings.Count(track, `class="save"`) != 3 || strings.Contains(track, "<script>") {
		t.Errorf("the picture has %d runs, or a script:\n%s", n, track)
	}
	if b.Older || !b.Evicted || !b.Saved || !b.Redone {
		t.Errorf("older %v, evicted %v, saved %v, redone %v", b.Older, b.Evicted, b.Saved, b.Redone)
	}
}

// TestStoryOfOlderWorkers: deliveries without an entry in the record are known by their lines.
func TestStoryOfOlderWorkers(t *testing.T) {
	j := client.Job{ID: "job-1", Status: client.StatusDone, Owner: "w-3", Deliveries: 3, CreatedAt: noon, ClaimedAt: after(20 * time.Minute),
		EndedAt: after(30 * time.Minute), UpdatedAt: after(30 * time.Minute), ReadAt: after(time.Hour)}
	var b oneJob
	b.Ended = true
	b.tell(j, storyOf(j, []client.LogLine{
		{Delivery: 2, Worker: "w-2", Number: 1, At: after(12 * time.Minute)},
		{Delivery: 2, Worker: "w-2", Number: 2, At: after(15 * time.Minute)},
		{Delivery: 3, Worker: "w-3", Number: 1, At: after(21 * time.Minute)},
	}), 0)
	var got []string
	for _, m := range b.Story {
		got = append(got, m.At.Format("15:04 ")+m.What)
	}
	want := []string{"12:12 delivery 2 on w-2 logs its first line", "12:15 last kept line of delivery 2", "12:20 claimed: delivery 3 on w-3",
		"12:30 done, after 10m"}
	if diff := cmp.Diff(want, got); diff != "" || !b.Older {
		t.Errorf("the story (-want +got; older %v)\n%s", b.Older, diff)
	}
}

// TestStoryOfLastDeliveries: if the record has lost the first deliveries, the story begins with the first
// known one and invents no wait before it. Several days have dates.
func TestStoryOfLastDeliveries(t *testing.T) {
	j := travelled()
	j.CreatedAt, j.Deliveries = after(-40*time.Hour), 6
	for i := range j.Runs {
		j.Runs[i].Delivery += 2 + i/2 // 3, 4 and 6
	}
	var b oneJob
	b.Group = j.Group
	b.tell(j, storyOf(j, nil), 0)
	var got []string
	for _, m := range b.Story {
		if m.Class == "open" || m.Class == "run" {
			got = append(got, m.Clock+" "+m.What)
		}
	}
	want := []string{"03-07 20:00:00 put in group night-7", "03-09 12:01:00 claimed: delivery 3 on w-1",
		"03-09 12:11:00 claimed: delivery 4 on " + line(hostile) + ", after a wait of 1m", "03-09 12:20:00 claimed: delivery 6 on w-3"}
	if diff := cmp.Diff(want, got); diff != "" || !b.Older || !b.From.Equal(j.Runs[0].StartedAt) {
		t.Errorf("older %v, from %s, the story (-want +got)\n%s", b.Older, b.From, diff)
	}
}
