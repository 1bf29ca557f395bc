package trial

import (
	"errors"
	"fmt"
	"time"
)

// Compare names the parts that have to be the same in every run.
type Compare string

// Parts to compare.
const (
	CompareResult  Compare = "result"  // the result file
	CompareOutputs Compare = "outputs" // the result file, and the files of SPOTWORKER_OUTPUT
	CompareNothing Compare = "none"    // nothing: results may differ
)

// Config describes a trial.
type Config struct {
	// Command is the program and its arguments. The program is looked up as a shell
	// does. Empty with KindsFile.
	Command []string

	// KindsFile is a kinds file, and Kind the kind in it to try: optional where there is
	// only one.
	KindsFile, Kind string

	// Snapshot freezes the program with CRIU, as a kind does with this setting. Its
	// outputs are the files in its working folder.
	Snapshot bool

	// Environment is added to the program's environment.
	Environment map[string]string

	// Payload is the job's input, PayloadFile a file with it.
	Payload, PayloadFile string

	// Every is the time from a start of the program to its next eviction; 0 chooses one
	// by how long the program takes.
	Every time.Duration

	// Evictions is how many there are at most, from 1.
	Evictions int

	// Timeout is the time limit of the trial.
	Timeout time.Duration

	// Grace is the time in which the program has to end after SIGTERM, up to
	// [LongestGrace].
	Grace time.Duration

	Compare Compare

	// CompareWith is a command, with arguments at blanks, that compares two runs in place of
	// the trial: it gets two folders, each with the file "result" and the folder "outputs",
	// and exits with 0 if they are equal. Empty for none.
	CompareWith string

	// Keep keeps the workers' logs and kinds file.
	Keep bool
}

// Limits of a trial.
const (
	// LongestGrace is a program's share of the 10 s of a Preempt: half, less an eighth in
	// which its last checkpoint is collected.
	LongestGrace = 4375 * time.Millisecond

	shortestEvery = 100 * time.Millisecond
	maxEvictions  = 1000
)

// DefaultConfig is `lab try` without flags.
func DefaultConfig() Config {
	return Config{Evictions: 6, Timeout: 10 * time.Minute, Grace: LongestGrace, Compare: CompareOutputs}
}

// Validate returns an error that says what to change, or nil.
func (c Config) Validate() error {
	switch {
	case len(c.Command) == 0 && c.KindsFile == "":
		return errors.New("there is nothing to try: give a program and its arguments, or --kinds-file")
	case len(c.Command) > 0 && c.KindsFile != "":
		return errors.New("give a program or --kinds-file, not both: the kinds file has the command")
	case c.Kind != "" && c.KindsFile == "":
		return errors.New("--kind names a kind of --kinds-file, which is not given")
	case c.Payload != "" && c.PayloadFile != "":
		return errors.New("give --payload or --payload-file, not both")
	case c.Compare != CompareResult && c.Compare != CompareOutputs && c.Compare != CompareNothing:
		return fmt.Errorf("--compare %q is not known: give %s, %s or %s", c.Compare, CompareResult, CompareOutputs, CompareNothing)
	}
	if c.CompareWith != "" {
		if c.Compare == CompareNothing {
			return errors.New("give --compare none or --compare-with, not both")
		}
		if _, err := c.comparison(); err != nil {
			return err
		}
	}
	return c.validateNumbers()
}

func (c Config) validateNumbers() error {
	switch {
	case c.Every != 0 && c.Every < shortestEvery:
		return fmt.Errorf("--every %s is out of range: give at least %s, or 0s for a time by how long the program takes", c.Every, shortestEvery)
	case c.Evictions < 1 || c.Evictions > maxEvictions:
		return fmt.Errorf("--evictions %d is out of range: give 1 to %d", c.Evictions, maxEvictions)
	case c.Timeout <= 0:
		return errors.New("--timeout must be a time such as 10m")
	case c.Grace <= 0 || c.Grace > LongestGrace:
		return fmt.Errorf("--grace %s is out of range: give up to %s, which is what an eviction leaves a program", c.Grace, LongestGrace)
	}
	return nil
}
