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

// Config describes a trial. The tags are those of the flags of `lab try`.
type Config struct {
	// Command is the program and its arguments. The program is looked up as a shell
	// does. Empty with KindsFile.
	Command []string `arg:"" optional:"" passthrough:"" help:"${about_try_command}"`

	// KindsFile is a kinds file, and Kind the kind in it to try: optional where there is
	// only one.
	KindsFile string `env:"-" help:"${about_try_kinds_file}" placeholder:"FILE"`
	Kind      string `env:"-" help:"The kind of the kinds file, where it has several." placeholder:"NAME"`

	// Snapshot freezes the program with CRIU, as a kind does with this setting. Its
	// outputs are the files in its working folder.
	Snapshot bool `help:"${about_try_snapshot}"`

	// Payload is the job's input, PayloadFile a file with it.
	Payload     string `env:"-" help:"Payload of the job." placeholder:"TEXT"`
	PayloadFile string `env:"-" help:"File with the payload." placeholder:"FILE"`

	// Environment is added to the program's environment.
	Environment map[string]string `name:"env" env:"-" help:"Variables for the program." placeholder:"NAME=TEXT" mapsep:"none"`

	// Every is the time from a start of the program to its next eviction; 0 chooses one
	// by how long the program takes.
	Every time.Duration `help:"${about_try_every}" default:"0s"`

	// Evictions is how many there are at most, from 1.
	Evictions int `help:"Evictions at most; then the program is left alone until it has ended." default:"6"`

	// Timeout is the time limit of the trial.
	Timeout time.Duration `help:"The trial fails if it takes longer." default:"10m"`

	// Grace is the time in which the program has to end after SIGTERM, up to
	// [LongestGrace].
	Grace time.Duration `help:"${about_try_grace}" default:"4375ms"`

	Compare Compare `help:"${about_try_compare}" enum:"result,outputs,none" default:"outputs"`

	// CompareWith is a command, with arguments at blanks, that compares two runs in place of
	// the trial: it gets two folders, each with the file "result" and the folder "outputs",
	// and exits with 0 if they are equal. Empty for none.
	CompareWith string `env:"-" help:"${about_try_compare_with}" placeholder:"COMMAND"`

	// Keep keeps the workers' logs and kinds file.
	Keep bool `help:"Keep the workers' logs and the kinds file."`
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
