package detail

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/overview"
	"github.com/spotworker/spotworker/internal/text/plaintext"
	"github.com/spotworker/spotworker/job"
)

// snapshotVersion is the version of the states that package program makes of frozen programs.
const snapshotVersion = 16

// JobRows returns the names and values of a job for people. A row without a value is to be left out.
func JobRows(j client.Job, now time.Time) [][2]string {
	progress := overview.Percent(j)
	if left, ok := j.TimeLeft(); ok {
		progress += fmt.Sprintf(", about %s left", overview.Span(left))
	}
	if report := overview.Report(j); report != "" {
		progress = strings.TrimPrefix(progress+": "+plaintext.Line(report), ": ")
	}
	if j.Live != nil && progress != "" {
		progress += fmt.Sprintf(" (%s ago)", overview.Span(j.Live.Age))
	}
	result := ""
	if j.Status == client.StatusDone {
		result = fmt.Sprintf("%d bytes: spotctl result %s", j.ResultSize, j.ID)
	}
	stored := ""
	if j.OutputFiles > 0 {
		stored = fmt.Sprintf("%d files, %s: spotctl outputs %s", j.OutputFiles, Size(j.OutputBytes), j.ID)
		if j.Status != client.StatusDone {
			stored = fmt.Sprintf("%d files, %s, of its last checkpoint: spotctl outputs %s --partial", j.OutputFiles, Size(j.OutputBytes), j.ID)
		}
	}
	failures := ""
	if j.TotalFailures > 0 {
		failures = fmt.Sprintf("%d, of which %d in a row without progress", j.TotalFailures, j.Failures)
	}
	exits := ""
	if j.UncleanExits > 0 {
		exits = fmt.Sprintf("%d workers in a row died with it", j.UncleanExits)
	}
	rows := [][2]string{
		{"job", j.ID}, {"kind", plaintext.Line(j.Kind)}, {"group", plaintext.Line(j.Group)},
		{"status", string(j.Status)}, {"reason", plaintext.Line(j.Reason)},
		{"progress", progress}, {"written", fmt.Sprintf("%s ago by %s", overview.Span(j.Age()), plaintext.Line(j.Owner))},
		{"claims", claimsInWords(j, now)},
		{"interruptions", fmt.Sprint(j.Interruptions)}, {"failures", failures}, {"unclean exits", exits},
		{"run time", overview.RunTime(j).Round(time.Millisecond).String()}, {"cost", costInWords(j)}, {"checkpoint", stateInWords(j)},
		{"needs", needsInWords(j)}, {"result", result},
		{"inputs", inputsInWords(j.Inputs)}, {"outputs", stored}, {"follow-ups", followUpsInWords(j.FollowUps)},
		{"deadline", deadlineInWords(j)}, {"estimate", estimateInWords(j)}, {"expected end", expectedEnd(j)}, {"at risk", riskInWords(j)},
		{"moved", plaintext.Line(j.MoveReason)},
		{"created", Moment(j.CreatedAt, now)}, {"ended", Moment(j.EndedAt, now)}, {"work", hashed(j.WorkSHA256)},
	}
	return slices.Insert(rows, 1+slices.IndexFunc(rows, func(r [2]string) bool { return r[0] == "failures" }), earlierErrors(j, now)...)
}

// Text returns the start of a payload, cut between two characters; ok is false if it is empty, not known
// (a size below 0), or not text.
func Text(p client.PayloadStart) (text string, ok bool) {
	start := p.Start
	for range utf8.UTFMax - 1 {
		if int64(len(p.Start)) < p.Size && !utf8.Valid(start) {
			start = start[:len(start)-1]
		}
	}
	return string(start), len(start) > 0 && utf8.Valid(start) && !bytes.ContainsRune(start, 0)
}

// Payload is the start of a payload for people; empty for none, and if it is not known.
func Payload(p client.PayloadStart) string {
	text, ok := Text(p)
	switch {
	case p.Size <= 0:
		return ""
	case !ok:
		return Size(p.Size) + " that are not text"
	case int64(len(p.Start)) < p.Size:
		return fmt.Sprintf("%s… (%s)", plaintext.Line(text), Size(p.Size))
	}
	return plaintext.Line(text)
}

// Delivery begins the names of the rows of a job's earlier errors.
const Delivery = "delivery "

// earlierErrors are the errors of the deliveries before the last one that failed, which the reason has.
func earlierErrors(j client.Job, now time.Time) (rows [][2]string) {
	for _, run := range j.Runs {
		if run.Error != "" {
			rows = append(rows, [2]string{Delivery + strconv.Itoa(run.Delivery), fmt.Sprintf("%s ago, %s: %s", Ago(run.EndedAt, now),
				plaintext.Line(run.Worker), plaintext.Line(run.Error))})
		}
	}
	if j.Reason != "" && j.Status != client.StatusCancelled && len(rows) > 0 {
		rows = rows[:len(rows)-1]
	}
	return rows
}

// stateInWords describes the state of the job, and how long it takes to hand over.
func stateInWords(j client.Job) string {
	state := ""
	if j.StateSize > 0 {
		state = fmt.Sprintf("%d bytes, version %d", j.StateSize, j.StateVersion)
		if j.StateVersion == snapshotVersion {
			state = fmt.Sprintf("%d bytes, a snapshot of its program", j.StateSize)
		}
	}
	if j.HandOver > 0 && state != "" {
		state += fmt.Sprintf("; a hand-over takes about %s", j.HandOver.Round(time.Millisecond))
	}
	return state
}

// needsInWords returns the requirements of the job's state on a worker, without their first
// word and the part for workers alone.
func needsInWords(j client.Job) string {
	shown, _, _ := strings.Cut(j.StateNeeds, " | ")
	_, facts, _ := strings.Cut(shown, " ")
	return plaintext.Line(facts)
}

// claimsInWords says how often the job was claimed.
func claimsInWords(j client.Job, now time.Time) string {
	since := ""
	if j.Again > 0 {
		since = " since it was put again"
	}
	if j.Deliveries == j.Again {
		return "none yet" + since
	}
	return fmt.Sprintf("%d%s, the last %s", j.Deliveries-j.Again, since, Moment(j.ClaimedAt, now))
}

// shownInputs is how many inputs of a job are named.
const shownInputs = 4

// inputsInWords names the first inputs of a job.
func inputsInWords(inputs []job.Input) string {
	var names []string
	for _, in := range inputs[:min(len(inputs), shownInputs)] {
		name := in.Container + "/" + in.Blob + in.Prefix + in.Manifest
		switch {
		case in.Manifest != "":
			name += " (the list in it)"
		case in.Blob == "":
			name += "*"
		}
		if in.Account != "" {
			name = strings.TrimSuffix(in.Account, "/") + "/" + name
		}
		names = append(names, plaintext.Line(name))
	}
	if more := len(inputs) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

// followUpsInWords names the follow-up jobs of a job.
func followUpsInWords(f client.FollowUps) string {
	names := slices.Clone(f.IDs)
	if f.More {
		names = append(names, "more")
	}
	return strings.Join(names, ", ")
}

// deadlineInWords says when the deadline is, and of a job that is done whether it met it.
func deadlineInWords(j client.Job) string {
	switch {
	case j.Deadline.IsZero():
		return ""
	case j.Status == client.StatusDone && j.EndedAt.After(j.Deadline):
		return fmt.Sprintf("%s, missed by %s", j.Deadline.UTC().Format(time.RFC3339), overview.Span(j.EndedAt.Sub(j.Deadline)))
	case j.Status == client.StatusDone:
		return fmt.Sprintf("%s, met with %s to spare", j.Deadline.UTC().Format(time.RFC3339), overview.Span(j.Deadline.Sub(j.EndedAt)))
	}
	return due(j.Deadline, j.ReadAt)
}

func estimateInWords(j client.Job) string {
	if j.Estimate == 0 {
		return ""
	}
	return j.Estimate.String() + " of work"
}

// expectedEnd says when a running job should end if nothing interrupts it.
func expectedEnd(j client.Job) string {
	end, ok := j.ExpectedEnd()
	if !ok {
		return ""
	}
	return due(end, j.ReadAt) + ", if nothing interrupts it"
}

// riskInWords says whether the job may miss its deadline, and why.
func riskInWords(j client.Job) string {
	risk, why := j.Risk()
	switch {
	case risk == client.RiskNone:
		return ""
	case risk.AtRisk():
		return fmt.Sprintf("yes, %s: %s", risk, why)
	case risk == client.RiskLate:
		return "it is late: " + why
	}
	return "no: " + why
}

// due is a time for people that may be to come.
func due(t, now time.Time) string {
	if t.After(now) {
		return fmt.Sprintf("%s (in %s)", t.UTC().Format(time.RFC3339), overview.Span(t.Sub(now)))
	}
	return fmt.Sprintf("%s (%s ago)", t.UTC().Format(time.RFC3339), overview.Span(now.Sub(t)))
}

// costInWords returns a job's cost so far.
func costInWords(j client.Job) string {
	c := j.Cost
	if j.Deliveries == 0 {
		return ""
	}
	round := func(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
	return fmt.Sprintf("%s in slots: %s useful, %s redone, %s overhead; %d evictions, %d unclean exits",
		round(c.Total()), round(c.Useful), round(c.Redone), round(c.Overhead), c.Evictions, c.UncleanExits)
}

func hashed(sha256 string) string {
	if sha256 == "" {
		return ""
	}
	return "SHA-256 " + sha256
}
