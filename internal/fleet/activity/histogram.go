package activity

import (
	"math"
	"slices"
	"time"
)

// Histogram counts durations in buckets that grow by the fourth root of two, as the
// exponential histograms of OpenTelemetry and Prometheus do at scale 2: a quantile is at
// most 19 % too high. The zero value is empty.
type Histogram []Bucket

// Bucket counts durations above the Upper of the bucket with the next lower index and at
// most as long as its own Upper.
type Bucket struct {
	// Index is n for an upper end of 2^(n/4) milliseconds, 0 … [maxIndex].
	Index int
	Count int
}

// maxIndex is the index of the last bucket: 41 days.
const maxIndex = 127

// Upper returns the upper end of the bucket with that index.
func Upper(index int) time.Duration {
	return time.Duration(math.Exp2(float64(index)/4) * float64(time.Millisecond))
}

func indexOf(d time.Duration) int {
	if d <= time.Millisecond {
		return 0
	}
	index := int(math.Ceil(4 * math.Log2(float64(d)/float64(time.Millisecond))))
	return min(index, maxIndex)
}

// Add counts a duration.
func (h *Histogram) Add(d time.Duration) { h.put(indexOf(d), 1) }

// Merge adds the counts of the other.
func (h *Histogram) Merge(o Histogram) {
	for _, b := range o {
		h.put(b.Index, b.Count)
	}
}

func (h *Histogram) put(index, count int) {
	at, found := slices.BinarySearchFunc(*h, index, func(b Bucket, index int) int { return b.Index - index })
	if found {
		(*h)[at].Count += count
		return
	}
	*h = slices.Insert(*h, at, Bucket{index, count})
}

// Count returns how many durations were counted.
func (h Histogram) Count() (n int) {
	for _, b := range h {
		n += b.Count
	}
	return n
}

// Quantile returns the upper end of the bucket that has the q-th part of the durations,
// as in 0.95; 0 for an empty histogram.
func (h Histogram) Quantile(q float64) time.Duration {
	rank := int(math.Ceil(q * float64(h.Count())))
	for _, b := range h {
		if rank -= b.Count; rank <= 0 {
			return Upper(b.Index)
		}
	}
	return 0
}

// coarser returns the histogram in at most that many buckets: wider ones where it has more.
func (h Histogram) coarser(most int) Histogram {
	for step := 2; len(h) > most; step *= 2 {
		var wide Histogram
		for _, b := range h {
			wide.put(min((b.Index+step-1)/step*step, maxIndex), b.Count)
		}
		h = wide
	}
	return h
}
