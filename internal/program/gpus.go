package program

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/spotworker/spotworker/internal/host/gpu"
	"github.com/spotworker/spotworker/internal/program/command"
	"github.com/spotworker/spotworker/internal/text/jsonpos"
	"github.com/spotworker/spotworker/internal/text/lazyregexp"
)

// listedGPU is the form of a GPU in a kinds file: its index, or its UUID or that of a part.
var listedGPU = lazyregexp.New(`^([0-9]{1,3}|(GPU|MIG)-[A-Za-z0-9/-]{1,80})$`)

// parseGPUs reads which GPUs of a machine jobs get; nil for all that are found.
func parseGPUs(v jsonpos.Value) ([]string, error) {
	switch v.Data {
	case "auto":
		return nil, nil
	case "none":
		return []string{}, nil
	}
	items, ok := v.Data.([]jsonpos.Value)
	if !ok || len(items) == 0 {
		return nil, v.Errorf(`give "auto", "none", or a list of the indexes or UUIDs that nvidia-smi -L shows, such as [0, 1]`)
	}
	var all []string
	for _, item := range items {
		id, _ := item.Data.(string)
		if number, ok := item.Data.(json.Number); ok {
			id = number.String()
		}
		switch {
		case !listedGPU().MatchString(id):
			return nil, item.Errorf("give the index or the UUID of a GPU, as nvidia-smi -L shows it")
		case slices.Contains(all, id):
			return nil, item.Errorf("GPU %s is given twice", id)
		}
		all = append(all, id)
	}
	return all, nil
}

// checkGPUs returns an error for settings that contradict GPUs.
func (k *parsedKind) checkGPUs(v jsonpos.Value) error {
	if k.GPUs == 0 {
		return nil
	}
	if k.Snapshot {
		return v.Errorf("a program with GPUs cannot be frozen: leave out snapshot or gpus")
	}
	if name := k.ownGPUVariable(); name != "" {
		return v.Errorf("%s is set by the worker for jobs with gpus: leave it out of environment", name)
	}
	return nil
}

// ownGPUVariable returns a variable with which the kind itself says which GPUs its programs see; empty
// for none.
func (k *Kind) ownGPUVariable() string {
	for _, name := range gpu.Variables {
		if _, set := k.Environment[name]; set || slices.Contains(k.Pass, name) {
			return name
		}
	}
	return ""
}

// visible returns the GPUs that the program of a job with these can open, nil for all. A message cannot
// say which it sees: k is its kind as the kinds file has it.
func (k *Kind) visible(devices []string) *gpu.Visible {
	if len(devices) == 0 && k.ownGPUVariable() != "" {
		return nil
	}
	return k.Pool.Visible(devices)
}

// GPUs gives the jobs of programs the GPUs of a pool.
type GPUs struct {
	*gpu.Pool
	kinds map[string]*Kind
}

// TakeGPUs returns whether jobs of these kinds may take GPUs.
func TakeGPUs(kinds []Kind) bool {
	return slices.ContainsFunc(kinds, func(k Kind) bool { return k.GPUs > 0 || k.FromMessage && !k.Snapshot })
}

// ShareGPUs makes the jobs of these kinds share a pool.
func ShareGPUs(kinds []Kind, pool *gpu.Pool) *GPUs {
	g := &GPUs{Pool: pool, kinds: map[string]*Kind{}}
	for i := range kinds {
		kinds[i].Pool = pool
		g.kinds[kinds[i].Name] = &kinds[i]
	}
	return g
}

// Reserve reserves the GPUs of a job; see [gpu.Pool.Reserve].
func (g *GPUs) Reserve(kind, id string, payload []byte) (release func(), changed <-chan struct{}, err error) {
	n := g.Wanted(kind, payload)
	if n == 0 {
		return nil, nil, nil
	}
	return g.Pool.Reserve(id, n)
}

// Wanted returns how many GPUs a job gets: none for a message that cannot be run, which fails where
// it is run.
func (g *GPUs) Wanted(kind string, payload []byte) int {
	k := g.kinds[kind]
	switch {
	case k == nil:
		return 0
	case !k.FromMessage || !bytes.Contains(payload, []byte(`"gpus"`)):
		return k.GPUs
	}
	c, err := command.Parse(payload)
	if err != nil || k.admits(&c) != nil {
		return 0
	}
	return k.gpusOf(&c)
}

// gpusOf returns how many GPUs the command of a message gets.
func (k *Kind) gpusOf(c *command.Command) int {
	if c.GPUs != nil {
		return *c.GPUs
	}
	return k.GPUs
}
