package scenario

import (
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/imds"
	"github.com/spotworker/spotworker/internal/text/jsonpos"
)

// Scenario is a sequence of events. [Parse] makes one.
type Scenario struct {
	// About describes it in a sentence.
	About string

	// Service holds the limits of the metadata service.
	Service imds.Options

	// VMs are there from the beginning, in the order of the file.
	VMs []imds.VM

	// FromFirstCall says that the steps' times count from the first request for
	// scheduled events, not from the start.
	FromFirstCall bool

	// Length is how long a round takes: at least until its last step.
	Length time.Duration

	// Then is the sequel to a round.
	Then Then

	steps []step
}

// Then is the sequel to the last step of a scenario.
type Then string

const (
	// Stay serves the announced events until the player is ended.
	Stay Then = "stay"

	// End ends the player.
	End Then = "end"

	// Repeat removes the announced events, restores the VMs and starts again.
	Repeat Then = "repeat"
)

// step is something that happens at a time.
type step struct {
	at int // byte offset in the file
	in time.Duration
	action
}

// Limits of a scenario.
const (
	maxFile  = 1 << 20 // bytes
	maxTime  = 30 * 24 * time.Hour
	maxSteps = 10_000
	maxVMs   = 1_000
)

// Parse reads a scenario. An error names the file, as given, with line and
// column.
func Parse(file string, text []byte) (Scenario, error) {
	s, err := parse(text)
	if err == nil {
		err = s.validate()
	}
	if err != nil {
		return Scenario{}, jsonpos.Locate(file, text, err)
	}
	return s, nil
}

func parse(text []byte) (Scenario, error) {
	if len(text) > maxFile {
		return Scenario{}, jsonpos.Errorf(0, "the file is larger than %d bytes", maxFile)
	}
	root, err := jsonpos.Parse(text)
	if err != nil {
		return Scenario{}, err
	}
	f := object(root, "a scenario")
	s := Scenario{About: f.required("about")}
	if n := f.get("service"); n != nil {
		s.Service, err = parseService(*n)
		f.fail(err)
	}
	s.VMs, err = parseVMs(f.list("vms"), f.of.Offset)
	f.fail(err)
	s.FromFirstCall = f.choice("clock", "first_call", "start") == "first_call"
	s.steps, err = parseSteps(f.list("steps"))
	f.fail(err)
	var last time.Duration
	if n := len(s.steps); n > 0 {
		last = s.steps[n-1].in
	}
	s.Length = f.duration("length", max(last, time.Second), maxTime, last)
	s.Then = Then(f.choice("then", string(Stay), string(End), string(Repeat)))
	if s.Then == Repeat && s.Length < time.Second {
		f.fail(jsonpos.Errorf(f.of.Offset, `"then" is repeat, but a round takes no time: give "length"`))
	}
	return s, f.done()
}

func parseService(n jsonpos.Value) (imds.Options, error) {
	f := object(n, `"service"`)
	o := imds.Options{
		FirstCallDelay:    f.duration("first_call_delay", 0, time.Hour, 0),
		RequestsPerSecond: f.number("requests_per_second", -1, 1000, 0),
		PreviewEvents:     f.flag("preview"),
		TokenLife:         f.duration("token_life", time.Minute, maxTime, 0),
	}
	return o, f.done()
}

func parseSteps(list []jsonpos.Value) ([]step, error) {
	if len(list) > maxSteps {
		return nil, jsonpos.Errorf(list[maxSteps].Offset, "more than %d steps", maxSteps)
	}
	var steps []step
	for _, n := range list {
		s, err := parseStep(n)
		if err != nil {
			return nil, err
		}
		if len(steps) > 0 && s.in < steps[len(steps)-1].in {
			return nil, jsonpos.Errorf(n.Offset, "this step is at %s, before the one above it: steps stand in the order of time", s.in)
		}
		steps = append(steps, s)
	}
	return steps, nil
}

// parseStep reads a time and one thing that happens then.
func parseStep(n jsonpos.Value) (step, error) {
	f := object(n, "a step")
	s := step{at: n.Offset, in: f.duration("at", 0, maxTime, -1)}
	if s.in < 0 {
		f.fail(jsonpos.Errorf(n.Offset, `"at" is missing: when the step happens`))
	}
	for _, verb := range verbs {
		value := f.get(verb.name)
		if value == nil {
			continue
		}
		if s.action != nil {
			f.fail(jsonpos.Errorf(value.Offset, "a step is one thing only: make %q another step", verb.name))
			continue
		}
		action, err := verb.read(*value)
		f.fail(err)
		s.action = action
	}
	if err := f.done(); err != nil || s.action != nil {
		return s, err
	}
	return s, jsonpos.Errorf(n.Offset, "the step does nothing; it can %s", verbNames())
}
