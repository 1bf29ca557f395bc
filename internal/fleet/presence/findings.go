package presence

import (
	"cmp"
	"fmt"
	"net/url"
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

	// TooLarge is the same for jobs that take more GPUs than jobs can have of this machine, by
	// [ForGPUs].
	TooLarge []KindCount

	// Silent is how many running jobs are silent for unusually long, and SilentJob is the
	// id of one of them.
	Silent    int
	SilentJob string

	// Calls are the small calls to storage in the last minute, and large ones that failed.
	Calls activity.CallReport

	// Trouble is what is wrong with the worker itself or its machine.
	Trouble Trouble

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

// ForGPUs is a kind of jobs together with the number of GPUs that they take.
func ForGPUs(kind string, gpus int) string { return kind + "/" + strconv.Itoa(gpus) }

// CutGPUs returns the parts of what [ForGPUs] returned. The number is 0 if it is not known.
func CutGPUs(text string) (kind string, gpus int) {
	kind, number, _ := strings.Cut(text, "/")
	return kind, parseCount(number)
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
// the characters "._-", and perhaps a number of GPUs behind it.
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
	return fmt.Sprintf("%d,%d,%d,%d,%d,%d", c.Count, c.Slow, c.Failed, c.Denied, c.Throttled, c.Missing)
}

func parseCalls(text string) (c activity.CallReport) {
	fields := strings.Split(text, ",")
	if len(fields) < 6 {
		return c
	}
	c.Count = parseCount(fields[0])
	for i, n := range []*int{&c.Slow, &c.Failed, &c.Denied, &c.Throttled, &c.Missing} {
		*n = min(parseCount(fields[i+1]), c.Count)
	}
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

// Trouble is what is wrong with a worker or its machine. The zero value is nothing.
type Trouble struct {
	// Blind is for how long the metadata service has not answered; 0 while it does.
	Blind time.Duration

	// Clock is by how much the machine's clock is ahead of the storage service's, in whole seconds.
	Clock time.Duration

	// ScratchFree and ScratchSize are of the file system for programs, in bytes; 0 if they are
	// not known.
	ScratchFree, ScratchSize int64

	// Rival names the VM, or the start, of another living worker with the same name; empty for
	// none.
	Rival string

	// Crashes is how many runs in a row ended uncleanly soon after their start.
	Crashes int

	// Broken are the kinds whose circuit breakers are open, with commas between them.
	Broken string

	// Exposed is where programs' users reach the metadata service, so that none is started;
	// empty for nowhere.
	Exposed string

	// GPUs says which GPUs of the machine are broken and why; empty for none.
	GPUs string
}

// ClockLimit is how far a clock may be from the storage service's. A signature or a token is
// refused from 15 min on.
const ClockLimit = 30 * time.Second

// ClockIsWrong reports whether the machine's clock needs a look.
func (t Trouble) ClockIsWrong() bool { return t.Clock.Abs() > ClockLimit }

// ScratchIsFull reports whether less than a twentieth of the file system for programs is free.
func (t Trouble) ScratchIsFull() bool { return t.ScratchSize > 0 && 20*t.ScratchFree < t.ScratchSize }

// format returns the trouble in the form of a URL query.
func (t Trouble) format() string {
	fields := map[string]string{"rival": t.Rival, "broken": t.Broken, "exposed": t.Exposed, "gpus": t.GPUs}
	for name, n := range map[string]int64{
		"blind": int64(t.Blind.Seconds()), "clock": int64(t.Clock.Seconds()), "free": t.ScratchFree, "size": t.ScratchSize,
		"crashes": int64(t.Crashes),
	} {
		if n != 0 {
			fields[name] = strconv.FormatInt(n, 10)
		}
	}
	return encode(fields)
}

// parseTrouble leaves out fields that it cannot read.
func parseTrouble(text string) Trouble {
	values, _ := url.ParseQuery(text) // the fields that could be read
	number := func(name string) int64 {
		n, _ := strconv.ParseInt(values.Get(name), 10, 64)
		return n
	}
	seconds := func(name string) time.Duration {
		return time.Duration(min(max(number(name), -int64(longest.Seconds())), int64(longest.Seconds()))) * time.Second
	}
	return Trouble{
		Blind: max(seconds("blind"), 0), Clock: seconds("clock"), ScratchFree: number("free"), ScratchSize: number("size"),
		Rival: values.Get("rival"), Broken: values.Get("broken"), Exposed: values.Get("exposed"), Crashes: parseCount(values.Get("crashes")),
		GPUs: values.Get("gpus"),
	}
}
