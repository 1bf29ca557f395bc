package tree

// Tasks says how many tasks, which are processes and threads, a worker and its programs may
// have. The zero value is no limit.
type Tasks struct {
	Job  int // of one program of as many as run at once
	Jobs int // of all programs together
}

// Bounds of the worker's own share, in tasks: it has some threads of its own, and one or
// two for each program.
const (
	workerTasks  = 256
	tasksForSlot = 4
	mostReserved = 4 // or that fraction of all
)

// share divides a limit for the worker and so many programs at once. If each program keeps to
// its part, none takes tasks from another or from the worker.
func share(limit, slots int) Tasks {
	if limit <= 0 {
		return Tasks{}
	}
	jobs := limit - min(workerTasks+tasksForSlot*slots, limit/mostReserved)
	return Tasks{Job: max(jobs/max(slots, 1), 1), Jobs: max(jobs, 1)}
}
