package overview

import (
	"cmp"
	"slices"
	"time"

	"github.com/spotworker/spotworker/client"
)

// Statuses are the statuses of records, in the order of a job's life.
var Statuses = []client.Status{client.StatusOpen, client.StatusRunning, client.StatusDone, client.StatusPoison, client.StatusCancelled,
	client.StatusUnknown}

// OrderNames are the keys of [Orders], in the order in which they are offered.
const OrderNames = "id,kind,status,written,created,fraction,runtime,interruptions,failures"

// Orders compare two jobs, by the name of the order. A job is long, so it is not copied.
var Orders = map[string]func(a, b *client.Job) int{
	"id":            compareBy(func(*client.Job) string { return "" }),
	"kind":          compareBy(func(j *client.Job) string { return j.Kind }),
	"status":        compareBy(func(j *client.Job) int { return slices.Index(Statuses, j.Status) }),
	"written":       compareBy(func(j *client.Job) int64 { return -j.UpdatedAt.UnixNano() }),
	"created":       compareBy(func(j *client.Job) int64 { return -j.CreatedAt.UnixNano() }),
	"fraction":      compareBy(func(j *client.Job) float64 { return -j.Fraction }),
	"runtime":       compareBy(func(j *client.Job) time.Duration { return -j.RunTime }),
	"interruptions": compareBy(func(j *client.Job) int { return -j.Interruptions }),
	"failures":      compareBy(func(j *client.Job) int { return -j.TotalFailures }),
}

// compareBy compares by a key, and by the id where it is equal.
func compareBy[K cmp.Ordered](key func(*client.Job) K) func(a, b *client.Job) int {
	return func(a, b *client.Job) int { return cmp.Or(cmp.Compare(key(a), key(b)), cmp.Compare(a.ID, b.ID)) }
}

// Sort sorts jobs in the order of that name.
func Sort(jobs []client.Job, order string) {
	sorted := make([]*client.Job, len(jobs))
	for i := range jobs {
		sorted[i] = &jobs[i]
	}
	slices.SortFunc(sorted, Orders[order])
	result := make([]client.Job, len(jobs))
	for i, j := range sorted {
		result[i] = *j
	}
	copy(jobs, result)
}
