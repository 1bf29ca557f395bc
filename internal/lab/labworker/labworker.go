// Package labworker runs the real worker in a process of the lab, with other values of what the
// product has as constants: a run of the lab has minutes, where a deployment has days.
package labworker

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/worker"
	"github.com/spotworker/spotworker/internal/workercmd"
	"github.com/spotworker/spotworker/job"
)

// Settings are the constants that differ. A field that is not positive keeps the product's value.
type Settings struct {
	Visibility time.Duration // of messages
}

// flag begins the argument with the settings.
const flag = "--lab-settings="

// Argument returns the settings as an argument for [Main].
func (s Settings) Argument() string {
	text, _ := json.Marshal(s) // a number
	return flag + string(text)
}

// Command is the first argument that makes a program of the lab a worker, see [WorkerMain].
const Command = "lab-worker"

// WorkerMain runs a worker if the command line asks for it. Otherwise it returns.
func WorkerMain() {
	if len(os.Args) > 1 && os.Args[1] == Command {
		Main(nil, os.Args[2:])
	}
}

// Main runs a worker with the given kinds and arguments, of which one may come from
// [Settings.Argument]. It ends the process as the product's worker does.
func Main(kinds job.Kinds, arguments []string) {
	settings, arguments, err := parse(arguments)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	workercmd.Main(workercmd.Options{Kinds: kinds, Arguments: arguments, Adjust: settings.apply})
}

// parse separates the settings from a worker's arguments.
func parse(arguments []string) (s Settings, rest []string, err error) {
	for _, argument := range arguments {
		text, found := strings.CutPrefix(argument, flag)
		if !found {
			rest = append(rest, argument)
			continue
		}
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			return s, nil, fmt.Errorf("%s: %w", argument, err)
		}
	}
	return s, rest, nil
}

func (s Settings) apply(c *worker.Config) {
	if s.Visibility > 0 {
		c.Visibility = s.Visibility
	}
}
