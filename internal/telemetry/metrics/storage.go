package metrics

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Storage are the metrics of calls to the storage account.
type Storage struct {
	calls    *prometheus.CounterVec
	callTime *prometheus.HistogramVec
	outage   *outage
	clock    *clock
}

// callBuckets reach from a call within the region to a call that is given up.
var callBuckets = []float64{.002, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}

func newStorage(r registry) Storage {
	return Storage{
		calls: r.counters("storage_calls_total",
			"Calls to the storage account, each retry counted. Conflicts (4xx) are part of fencing; denied: a role, the sign-in or the "+
				"firewall.",
			"service", "operation", "status"),
		callTime: r.histograms("storage_call_duration_seconds",
			"Time of calls to the storage account, each retry counted, until the head of the response.", callBuckets, "service", "operation"),
		outage: add(r, &outage{}), clock: add(r, &clock{begun: time.Now()}),
	}
}

// Called counts one call to the storage account. answered says whether the service dealt
// with it; date is the service's clock in the response, in the form of HTTP.
func (s *Storage) Called(service, operation, status string, took time.Duration, answered bool, date string) {
	s.calls.WithLabelValues(service, operation, status).Inc()
	s.callTime.WithLabelValues(service, operation).Observe(seconds(took))
	s.outage.observe(answered, took)
	s.clock.observe(date)
}

// outage measures for how long storage has answered no call. Calls that are denied or
// throttled are answered: that is not an outage.
type outage struct {
	isOver atomic.Bool // the last call was answered: what most calls find

	mu   sync.Mutex
	time lasting // from the first of the failed calls
}

var outageDesc = prometheus.NewDesc(namespace+"_storage_unreachable_seconds_total",
	"Time in which every call to storage failed (5xx or no answer). Jobs continue, nothing is saved.", nil, nil)

func (o *outage) observe(answered bool, took time.Duration) {
	if answered && o.isOver.Load() {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if answered {
		o.time.end(time.Now())
	} else {
		o.time.begin(time.Now().Add(-took))
	}
	o.isOver.Store(answered)
}

// Describe implements [prometheus.Collector].
func (o *outage) Describe(out chan<- *prometheus.Desc) { out <- outageDesc }

// Collect implements [prometheus.Collector].
func (o *outage) Collect(out chan<- prometheus.Metric) {
	out <- prometheus.MustNewConstMetric(outageDesc, prometheus.CounterValue, o.seconds())
}

// seconds returns how long all outages were together.
func (o *outage) seconds() float64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.time.seconds(time.Now())
}

// clockEvery is how often the machine's clock is compared with the service's.
const clockEvery = 5 * time.Second

// clock compares the machine's clock with the storage service's.
type clock struct {
	begun  time.Time
	next   atomic.Int64 // when to compare again, in nanoseconds from begun
	offset atomic.Int64 // in nanoseconds
	known  atomic.Bool
}

var clockDesc = prometheus.NewDesc(namespace+"_clock_offset_seconds",
	"By how much the machine's clock is ahead of the storage service's, which has whole seconds. Absent before the first answer.", nil, nil)

func (c *clock) observe(date string) {
	now := int64(time.Since(c.begun))
	next := c.next.Load()
	if date == "" || now < next || !c.next.CompareAndSwap(next, now+int64(clockEvery)) {
		return
	}
	at, err := http.ParseTime(date)
	if err != nil {
		return
	}
	const half = time.Second / 2 // of the account that the service cuts off
	c.offset.Store(int64(time.Since(at.Add(half))))
	c.known.Store(true)
}

// ClockOffset returns by how much the machine's clock is ahead of the storage service's; 0
// before the first answer.
func (s *Storage) ClockOffset() time.Duration { return time.Duration(s.clock.offset.Load()) }

// Describe implements [prometheus.Collector].
func (c *clock) Describe(out chan<- *prometheus.Desc) { out <- clockDesc }

// Collect implements [prometheus.Collector].
func (c *clock) Collect(out chan<- prometheus.Metric) {
	if c.known.Load() {
		out <- prometheus.MustNewConstMetric(clockDesc, prometheus.GaugeValue, time.Duration(c.offset.Load()).Seconds())
	}
}
