// Count is an unchanged program: it keeps a number in memory, and ends when there is a file
// finish. It is one file without libraries, since CRIU cannot freeze a program whose libraries are
// on the overlay that is the machine's root.
package main

import (
	"fmt"
	"os"
	"time"
)

func main() {
	n := 0
	for {
		if n < 20 {
			n++
		}
		if _, err := os.Stat("finish"); err == nil && n == 20 {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if err := os.WriteFile(os.Getenv("SPOTWORKER_RESULT"), fmt.Appendln(nil, n), 0o600); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
