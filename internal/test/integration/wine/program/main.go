// Command program is the program of the jobs that tests run under Wine. Its first
// argument names its action.
package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

func main() {
	var err error
	switch act := os.Args[1]; act {
	case "count":
		err = count()
	default:
		err = fmt.Errorf("unknown act %q", act)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// count counts to the number in the payload, which takes 50 ms a step, and writes a
// checkpoint for each. A stop ends it. The result is where it began and where it ended.
// With a payload of two numbers, [TO,HALT], a first attempt waits at HALT for its stop.
func count() error {
	payload, err := os.ReadFile(os.Getenv("SPOTWORKER_PAYLOAD"))
	if err != nil {
		return err
	}
	begin, to, halt := 0, 0, -1
	if _, err := fmt.Sscanf(string(payload), "[%d,%d]", &to, &halt); err != nil {
		halt = -1
		if to, err = number("SPOTWORKER_PAYLOAD"); err != nil {
			return err
		}
	}
	if os.Getenv("SPOTWORKER_RESTORE") != "" {
		if begin, err = number("SPOTWORKER_RESTORE"); err != nil {
			return err
		}
		halt = -1
	}
	for n := begin; n < to; n++ {
		for waits := true; waits; waits = n == halt {
			if _, err := os.Stat(os.Getenv("SPOTWORKER_STOP")); err == nil {
				os.Exit(3) // interrupted: the job continues elsewhere
			}
			time.Sleep(50 * time.Millisecond)
		}
		if err := checkpoint(strconv.Itoa(n + 1)); err != nil {
			return err
		}
	}
	return os.WriteFile(os.Getenv("SPOTWORKER_RESULT"), fmt.Appendf(nil, "%d to %d", begin, to), 0o600)
}

// checkpoint replaces the checkpoint. Windows refuses that while the worker reads it.
func checkpoint(state string) error {
	name := os.Getenv("SPOTWORKER_CHECKPOINT")
	if err := os.WriteFile(name+".new", []byte(state), 0o600); err != nil {
		return err
	}
	for tries := 1; ; tries++ {
		err := os.Rename(name+".new", name)
		if err == nil || tries == 3000 {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// number reads a number from the file that a variable names.
func number(variable string) (int, error) {
	data, err := os.ReadFile(os.Getenv(variable))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(data)))
}
