package presence

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/fleet/activity"
)

// Limits of the findings in a heartbeat.
const (
	maxLacks    = 8  // kinds
	maxReadings = 64 // of queues
)

// Findings are facts that a worker found and an operator should know. The zero value is a
// worker that found nothing.
type Findings struct {
	// Lacks are the kinds of jobs that no live worker has, with the number of their
	// messages that this worker hides at the moment. A final kind [MoreKinds] has the rest.
	Lacks []KindCount

	// Unlike is the same for kinds of jobs whose state needs another machine than any live
	// worker has.
	Unlike []KindCount

	// Silent is how many running jobs are silent for unusually long, and SilentJob is the
	// id of one of them.
	Silent    int
	SilentJob string

	// Calls are the small calls to storage in the last minutes.
	Calls activity.CallReport

	// Readings are earlier lengths of the queues that the worker read.
	Readings []Reading
}

// KindCount is a number of jobs of a kind.
type KindCount struct {
	Kind string
	Jobs int
}

// Reading is the length of a queue at an earlier time.
type Reading struct {
	Queue    string
	Messages int
	Age      time.Duration // at the time of the heartbeat
}

// CountLacks returns the counts as a heartbeat has them: the kinds with most jobs first, at
// most eight, and the rest added up.
func CountLacks(jobs map[string]int) (lacks []KindCount) {
	for kind, n := range jobs {
		lacks = append(lacks, KindCount{kind, n})
	}
	slices.SortFunc(lacks, func(a, b KindCount) int { return cmp.Or(cmp.Compare(b.Jobs, a.Jobs), cmp.Compare(a.Kind, b.Kind)) })
	if len(lacks) <= maxLacks {
		return lacks
	}
	rest := KindCount{Kind: MoreKinds}
	for _, k := range lacks[maxLacks:] {
		rest.Jobs += k.Jobs
	}
	return append(lacks[:maxLacks], rest)
}

// formatLacks lists kinds as kind=jobs. A kind has at most 64 bytes of letters, digits and
// the characters "._-".
func formatLacks(lacks []KindCount) string {
	var parts []string
	for _, k := range lacks[:min(len(lacks), maxLacks+1)] {
		parts = append(parts, k.Kind+"="+strconv.Itoa(k.Jobs))
	}
	return strings.Join(parts, ",")
}

func parseLacks(text string) (lacks []KindCount) {
	for part := range strings.SplitSeq(text, ",") {
		kind, count, _ := strings.Cut(part, "=")
		if n := parseCount(count); kind != "" && n > 0 && len(lacks) <= maxLacks {
			lacks = append(lacks, KindCount{kind, n})
		}
	}
	return lacks
}

func (f *Findings) formatSilent() string {
	if f.Silent <= 0 {
		return ""
	}
	return strconv.Itoa(f.Silent) + "," + f.SilentJob
}

func (f *Findings) parseSilent(text string) {
	count, id, _ := strings.Cut(text, ",")
	if f.Silent = parseCount(count); f.Silent > 0 {
		f.SilentJob = id
	}
}

func formatCalls(c activity.CallReport) string {
	if c.Count <= 0 {
		return ""
	}
	typical := strconv.FormatFloat(c.Typical.Seconds(), 'f', 3, 64)
	return strings.Join([]string{strconv.Itoa(c.Count), strconv.Itoa(c.Slow), typical, strconv.Itoa(c.Failed)}, ",")
}

func parseCalls(text string) (c activity.CallReport) {
	fields := strings.Split(text, ",")
	if len(fields) < 4 {
		return c
	}
	typical, _ := strconv.ParseFloat(fields[2], 64)
	c.Count, c.Slow, c.Typical = parseCount(fields[0]), parseCount(fields[1]), duration(typical)
	c.Failed = parseCount(fields[3])
	c.Slow, c.Failed = min(c.Slow, c.Count), min(c.Failed, c.Count)
	return c
}

// formatReadings lists readings as queue,messages,seconds.
func formatReadings(readings []Reading) string {
	var parts []string
	for _, r := range readings[:min(len(readings), maxReadings)] {
		parts = append(parts, r.Queue+","+strconv.Itoa(r.Messages)+","+strconv.Itoa(int(r.Age.Seconds())))
	}
	return strings.Join(parts, ";")
}

func parseReadings(text string) (readings []Reading) {
	for part := range strings.SplitSeq(text, ";") {
		fields := strings.Split(part, ",")
		if len(fields) < 3 || fields[0] == "" || len(readings) >= maxReadings {
			continue
		}
		readings = append(readings, Reading{Queue: fields[0], Messages: parseCount(fields[1]),
			Age: time.Duration(parseCount(fields[2])) * time.Second})
	}
	return readings
}

// parseCount returns a number of at most a billion; 0 for other texts.
func parseCount(text string) int {
	const most = 1e9
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0
	}
	return min(n, most)
}
