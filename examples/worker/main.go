// Command worker is a worker of your own: every flag of spotworker's, its
// built-in kinds, and the kind "primes".
package main

import (
	"github.com/spotworker/spotworker"
	"github.com/spotworker/spotworker/job"
)

func main() {
	spotworker.Main(job.Kinds{"primes": primes})
}
