package histories

import (
	"math/rand/v2"

	"github.com/spotworker/spotworker/internal/deployment"
	"github.com/spotworker/spotworker/internal/queue"
)

// shardMix is how the jobs of a history are spread over queues.
type shardMix struct {
	count  int     // of queues; 0 for one
	random *random // of the producers
}

// mixShards spreads the jobs of every third history over two or three queues. Producers
// disagree on how many there are, so that messages of one job are on several. It has a random source of its own, so that
// the rest of the plan does not depend on it.
func (p *plan) mixShards() {
	r := &random{rand.New(rand.NewPCG(p.seed, 0x5a4d))}
	if !r.oneIn(3) {
		return
	}
	p.shards = shardMix{count: 2 + r.IntN(2), random: r}
}

// mixUrgent makes some jobs urgent. It has a random source of its own, as mixShards.
func (p *plan) mixUrgent() {
	r := &random{rand.New(rand.NewPCG(p.seed, 0xf125))}
	for _, j := range p.jobs {
		j.urgent = !j.onDemand && r.oneIn(6)
	}
}

// useShards makes the queues.
func (h *history) useShards() {
	if h.shards.count > 0 {
		h.b.UseShards(queue.ShardCounts{Put: h.shards.count, Taken: h.shards.count})
	}
}

// queueFor returns the queue that a producer puts a job on.
func (h *history) queueFor(j *plannedJob) *queue.Queue {
	switch {
	case j.onDemand:
		return h.b.OnDemand
	case j.urgent:
		return h.b.First
	case h.shards.count == 0:
		return h.b.Queue
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.b.Jobs.All()[h.shards.random.IntN(h.shards.count)]
}

// takenBy returns the names of the queues that a worker takes from.
func (h *history) takenBy(w workerRun) []string {
	queues := h.b.JobQueues()
	switch {
	case w.regular:
		queues = queues[len(queues)-1:]
	case !w.onDemand:
		queues = queues[:len(queues)-1]
	}
	return queues
}

// jobsOf returns the queues of jobs as an operator's program knows them.
func (h *history) jobsOf(s *deployment.Stores) queue.Jobs {
	if h.shards.count > 0 {
		s.Jobs.Fix(h.shards.count)
	}
	return s.Jobs
}
