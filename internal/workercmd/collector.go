package workercmd

import (
	"os"
	"runtime/debug"
)

// gcPercent is how much the heap grows until it is collected, in place of Go's 100. A worker
// of short jobs has a small heap, whose collections then cost half as much.
const gcPercent = 200

// setCollector sets how often the process collects garbage, unless the environment does.
func setCollector() {
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetGCPercent(gcPercent)
	}
}
