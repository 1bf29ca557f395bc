package worker

import (
	"math/rand/v2"
	"time"
)

// jittered returns d, give or take a quarter, so that many who wait for the same
// thing do not all come back at once.
func jittered(d time.Duration) time.Duration { return d - d/4 + random(d/2) }

// random returns a time of less than d. Tests that have to repeat exactly
// replace it.
var random = rand.N[time.Duration]
