package process

import (
	"time"

	"github.com/spotworker/spotworker/job"
)

// Kind is a kind of job whose work a command does. Whatever is zero is not
// limited, unless said otherwise.
type Kind struct {
	Name string

	// Command is the program's absolute path and its arguments. It is never
	// touched by what a message says.
	Command []string

	// Directory is the program's working directory. Empty is a folder of the
	// job's own, which is removed with it.
	Directory string

	// Environment is what the program finds in its environment beside the base.
	Environment map[string]string

	// Pass names variables of the worker's own environment to hand on.
	Pass []string

	// Limits are kept by the worker.
	Limits job.Limits

	// Memory is what each process of the job may have of private writable
	// memory, in bytes; the operating system refuses more (RLIMIT_DATA).
	Memory int64

	// CPUTime is the processor time of each process of the job, in each of its
	// runs anew (RLIMIT_CPU).
	CPUTime time.Duration

	// Disk is how much the job may have in its folder, in bytes. A single file
	// cannot become larger (RLIMIT_FSIZE); the sum is looked at from time to time.
	Disk int64

	// MaxCheckpoint is the largest checkpoint, in bytes.
	// Default and most: [job.MaxStream].
	MaxCheckpoint int64
}

// maxCheckpoint is the limit with its default.
func (k *Kind) maxCheckpoint() int64 {
	if k.MaxCheckpoint == 0 {
		return job.MaxStream
	}
	return k.MaxCheckpoint
}
