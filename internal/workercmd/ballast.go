package workercmd

import (
	"os"
	"runtime"
)

// ballast lets the heap grow by 8 MiB more until it is collected. A worker of short jobs, whose
// heap is 4 MiB, would otherwise collect dozens of times a second. Nothing touches it, so that it
// takes no memory.
var ballast []byte

// addBallast adds the ballast, unless the environment says how to collect.
func addBallast() {
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		ballast = make([]byte, 8<<20)
		runtime.KeepAlive(ballast)
	}
}
