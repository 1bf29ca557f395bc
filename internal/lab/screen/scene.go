package screen

import "time"

// Scene is what there is to see at a moment.
type Scene struct {
	Elapsed         time.Duration // since the start
	Jobs, Committed int
	Visible, Hidden int // messages on the queue: for anybody, or in hand or put back
	Poison          int // messages in the poison queue
	VMs             []VM
}

// VM is one pretended VM and its worker.
type VM struct {
	Name, State string
	Mood        Mood
	Note        string // shown instead of jobs
	Jobs        []Job
}

// Mood is how a VM stands out.
type Mood int

// The moods.
const (
	Working Mood = iota
	Leaving      // told to go, and handing over
	Gone         // taken away, dead or frozen
)

// Job is a job in a worker's hand, in bytes of its input: 0 ≤ Saved ≤ Hashed ≤ Size
// but for a job that was taken over meanwhile.
type Job struct {
	Name                string
	Size, Saved, Hashed int64
}
