package trial

// child is a process of the program.
type child struct {
	PID, Parent, Group int
	Command            string
	born               uint64 // start time in ticks, which tells it from a later one of that number
}

// strays returns the processes that are outside of the program's process group.
func strays(all map[int]child, program int) map[int]child {
	found := map[int]child{}
	for pid, p := range all {
		if p.Group != program {
			found[pid] = p
		}
	}
	return found
}

// leader returns the program: the oldest process, which leads its group. 0 if there is
// none.
func leader(all map[int]child) (program int) {
	for pid, p := range all {
		if p.Group == pid && (program == 0 || p.born < all[program].born) {
			program = pid
		}
	}
	return program
}
