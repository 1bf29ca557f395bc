package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spotworker/spotworker/internal/lab/trial"
	"github.com/spotworker/spotworker/internal/replay"
)

// measureFlags are the flags that measure a job of the user's own before it is replayed.
type measureFlags struct {
	KindsFile   string            `env:"-" help:"${about_measure_kinds_file}" placeholder:"FILE"`
	Kind        string            `env:"-" help:"The kind of the kinds file, where it has several." placeholder:"NAME"`
	Payload     string            `env:"-" help:"Payload of the job." placeholder:"TEXT"`
	PayloadFile string            `env:"-" help:"File with the payload." placeholder:"FILE"`
	Env         map[string]string `env:"-" help:"Variables for the program." placeholder:"NAME=TEXT" mapsep:"none"`
	Timeout     time.Duration     `env:"-" help:"The measurement fails if it takes longer." default:"10m"`
}

// A state goes to storage in one call and at this speed.
const (
	saveCall  = 25 * time.Millisecond
	linkBytes = 100e6 // a second
)

// measure runs the job of the flags and returns its work, with the values of given flags as
// they are. The story of the trial goes to standard error.
func (c *measureFlags) measure(ctx context.Context, work replay.Work, given map[string]bool) (replay.Work, error) {
	m, err := trial.Measure(ctx, c.trial(), os.Stderr)
	if wrong, ok := errors.AsType[*trial.ConfigError](err); ok {
		return work, configError(wrong.Err)
	}
	if err != nil {
		return work, fmt.Errorf("nothing to replay: %w", err)
	}
	if m.Snapshot {
		fmt.Fprintln(os.Stderr, alikeRemark)
	}
	return workOf(m, work, given), nil
}

// alikeRemark is about a program that is frozen. The model has no machines.
const alikeRemark = "The replay lets each VM continue from each snapshot. VMs with another processor, kernel or image do not: " +
	"with a mix of them jobs wait longer, for up to a day, and then are dead-lettered."

// trial returns the configuration of a trial of the job.
func (c *measureFlags) trial() trial.Config {
	config := trial.DefaultConfig()
	config.KindsFile, config.Kind, config.Payload, config.PayloadFile = c.KindsFile, c.Kind, c.Payload, c.PayloadFile
	config.Environment, config.Timeout = c.Env, c.Timeout
	return config
}

// workOf turns the measured figures into the work of a scenario. The length of the job, its
// save and its restore stay as they are if flags give them.
func workOf(m trial.Measured, work replay.Work, given map[string]bool) replay.Work {
	of := func(seconds float64) replay.Duration {
		return replay.Duration{Duration: time.Duration(seconds * float64(time.Second)).Round(time.Millisecond)}
	}
	sent := saveCall.Seconds() + float64(m.StateBytes)/linkBytes
	for flag, value := range map[string]func(){
		"job-time":     func() { work.Length = of(m.Seconds) },
		"save-time":    func() { work.Save = of(sent) },
		"restore-time": func() { work.Restore = of(m.Start + sent) },
	} {
		if !given[flag] {
			value()
		}
	}
	if work.States = of(m.StateEvery); m.StateEvery == 0 {
		work.States = work.Length // it saves nothing while it runs
	}
	work.NoLast, work.Stop, work.Beside = !m.AtNotice, of(m.Stop), true
	return work
}
