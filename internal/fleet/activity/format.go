package activity

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// MoreKinds stands for kinds that did not fit into a heartbeat. It is not a valid name of
// a kind.
const MoreKinds = "*"

// Limits of the wire form.
const (
	maxText    = 1536 // bytes of all kinds
	maxBuckets = 24   // of a kind
)

// FormatSlots returns the wire form of the slots, docs/FORMATS.md; empty for no slots.
func (r Report) FormatSlots() string {
	if r.Slots <= 0 {
		return ""
	}
	t := r.Times
	return strings.Join([]string{strconv.Itoa(r.Slots), seconds(t.Handler), seconds(t.Around), seconds(t.Idle), seconds(t.Closed)}, ",")
}

// FormatKinds returns the wire form of the kinds. Kinds with the fewest jobs are added up
// under [MoreKinds] where the text would be too long.
func (r Report) FormatKinds() string {
	kinds := slices.Clone(r.Kinds)
	slices.SortStableFunc(kinds, func(a, b Kind) int { return cmp.Compare(b.Done+b.Failed, a.Done+a.Failed) })
	more := Kind{Name: MoreKinds}
	for {
		texts := make([]string, 0, len(kinds)+1)
		for _, k := range kinds {
			texts = append(texts, k.format())
		}
		slices.Sort(texts)
		if more.Done+more.Failed > 0 || more.Efforts != (Efforts{}) {
			texts = append(texts, more.format())
		}
		text := strings.Join(texts, ";")
		if len(text) <= maxText || len(kinds) == 0 {
			return text
		}
		more.add(kinds[len(kinds)-1])
		kinds = kinds[:len(kinds)-1]
	}
}

func (k Kind) format() string {
	buckets := make([]string, 0, maxBuckets)
	for _, b := range k.Durations.coarser(maxBuckets) {
		buckets = append(buckets, strconv.Itoa(b.Index)+"."+strconv.Itoa(b.Count))
	}
	e := k.Efforts
	return strings.Join([]string{
		k.Name, strconv.Itoa(k.Done), strconv.Itoa(k.Failed), seconds(e.Committed), seconds(e.HandedOver), seconds(e.Failed), seconds(e.Redone),
		strings.Join(buckets, ":"),
	}, ",")
}

func seconds(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'f', 1, 64)
}

// Parse returns the report whose parts have these forms. It leaves out parts that it
// cannot read: another program may have written them.
func Parse(slots, kinds string) Report {
	fields := strings.Split(slots, ",")
	n, err := strconv.Atoi(fields[0])
	if err != nil || n <= 0 || len(fields) < 5 {
		return Report{}
	}
	r := Report{Slots: n, Times: Times{
		Handler: parseSeconds(fields[1]), Around: parseSeconds(fields[2]), Idle: parseSeconds(fields[3]), Closed: parseSeconds(fields[4]),
	}}
	for text := range strings.SplitSeq(kinds, ";") {
		if fields := strings.Split(text, ","); len(fields) >= 8 && fields[0] != "" {
			r.Kinds = append(r.Kinds, parseKind(fields))
		}
	}
	return r
}

func parseKind(fields []string) Kind {
	k := Kind{
		Name: fields[0], Done: parseCount(fields[1]), Failed: parseCount(fields[2]),
		Efforts: Efforts{
			Committed: parseSeconds(fields[3]), HandedOver: parseSeconds(fields[4]), Failed: parseSeconds(fields[5]),
			Redone: parseSeconds(fields[6]),
		},
	}
	for text := range strings.SplitSeq(fields[7], ":") {
		index, count, _ := strings.Cut(text, ".")
		at, err := strconv.Atoi(index)
		if n := parseCount(count); err == nil && at >= 0 && at <= maxIndex && n > 0 {
			k.Durations.put(at, n)
		}
	}
	return k
}

// maxCount is more than the counts of any worker in ten minutes, and small enough to add
// up a fleet's.
const maxCount = 1e9

func parseCount(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0
	}
	return min(n, maxCount)
}

func parseSeconds(text string) time.Duration {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !(n > 0) {
		return 0
	}
	return time.Duration(min(n, maxCount) * float64(time.Second))
}
