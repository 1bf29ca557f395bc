package screen

import "time"

// Scene is the state of the fleet at a moment.
type Scene struct {
	Elapsed         time.Duration // since the start
	Jobs, Committed int
	Visible, Hidden int // messages on the queue: hidden ones are claimed or deferred
	Poison          int // messages in the poison queue
	VMs             []VM
}

// VM is one simulated VM and its worker.
type VM struct {
	Name, State string
	Mood        Mood
	Note        string // shown instead of jobs
	Jobs        []Job
}

// Mood is how a VM is highlighted.
type Mood int

// The moods.
const (
	Working Mood = iota
	Leaving      // has a notice and is draining
	Gone         // evicted, killed or frozen
)

// Job is an active job, in bytes of its input: 0 ≤ Saved ≤ Hashed ≤ Size, unless
// another worker has taken it over.
type Job struct {
	Name                string
	Size, Saved, Hashed int64
}
