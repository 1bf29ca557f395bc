package jobtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"sync"

	"github.com/spotworker/spotworker/job"
)

// Effects records side effects that must not happen twice, such as payments, mails or
// database rows. A test's fake of such a service calls [Effects.Apply], and Run compares
// the [Case.Effects] with the effects of an uninterrupted job. The zero value is ready
// to use.
type Effects struct {
	mu        sync.Mutex
	byKey     map[string]string
	happened  map[string]int
	conflicts []string
	outputs   map[string][]byte // that the job has sent, by path
}

// Apply records an effect as a service with idempotency keys does: once for each key,
// however many calls there are. It reports whether this was the first call. With an empty
// key the effect happens in every call. A handler gets its keys from [job.Job.Key].
func (e *Effects) Apply(key, effect string) (first bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if key != "" {
		if before, again := e.byKey[key]; again {
			if before != effect {
				e.conflicts = append(e.conflicts, fmt.Sprintf("key %q stands for %q and for %q", key, before, effect))
			}
			return false
		}
		if e.byKey == nil {
			e.byKey = map[string]string{}
		}
		e.byKey[key] = effect
	}
	if e.happened == nil {
		e.happened = map[string]int{}
	}
	e.happened[effect]++
	return true
}

// Send stores an output of the job, as a worker does. It implements [job.Outputs] with
// Open, Remove and List.
func (e *Effects) Send(ctx context.Context, path string, _ int64, content io.Reader) (job.Output, error) {
	data, err := io.ReadAll(content)
	if err == nil {
		err = ctx.Err() // as a call to storage
	}
	if err != nil {
		return job.Output{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.outputs == nil {
		e.outputs = map[string][]byte{}
	}
	e.outputs[path] = data
	return outputOf(path, data), nil
}

// Open returns the content of an output.
func (e *Effects) Open(_ context.Context, path string) (io.ReadCloser, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	data, ok := e.outputs[path]
	if !ok {
		return nil, fmt.Errorf("output %q: %w", path, fs.ErrNotExist)
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}

// Remove removes an output.
func (e *Effects) Remove(path string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.outputs, path)
}

// List returns the outputs in the order of their paths.
func (e *Effects) List() (all []job.Output) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, path := range slices.Sorted(maps.Keys(e.outputs)) {
		all = append(all, outputOf(path, e.outputs[path]))
	}
	return all
}

func outputOf(path string, data []byte) job.Output {
	sum := sha256.Sum256(data)
	return job.Output{Path: path, Size: int64(len(data)), SHA256: hex.EncodeToString(sum[:])}
}

// ledger is a copy of the effects so far.
type ledger struct {
	byKey     map[string]string
	happened  map[string]int
	conflicts []string
	outputs   map[string][]byte
}

func (e *Effects) reset() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.byKey, e.happened, e.conflicts, e.outputs = nil, nil, nil, nil
}

func (e *Effects) ledger() ledger {
	e.mu.Lock()
	defer e.mu.Unlock()
	return ledger{maps.Clone(e.byKey), maps.Clone(e.happened), slices.Clone(e.conflicts), maps.Clone(e.outputs)}
}

// any reports whether there is an effect or an output.
func (got ledger) any() bool { return len(got.happened) > 0 || len(got.outputs) > 0 }

// differs returns a fault if got differs from want, or nil.
func (got ledger) differs(want ledger) *defect {
	if f := got.conflict(); f != nil {
		return f
	}
	if f := got.outputsDiffer(want); f != nil {
		return f
	}
	for _, effect := range slices.Sorted(maps.Keys(want.happened)) {
		switch n := got.happened[effect]; {
		case n == 0:
			return &defect{what: "an effect did not happen", detail: fmt.Sprintf("effect %q never happened; an uninterrupted job has it", effect),
				hint: "Report a state only once what it stands for has happened."}
		case n != want.happened[effect]:
			return &defect{what: "an effect happened twice", detail: fmt.Sprintf("effect %q happened %d times, want %d", effect, n,
				want.happened[effect]), hint: "What was done since the recorded state is done again: pass j.Key(name) to the service as the " +
				"idempotency key."}
		}
	}
	for _, effect := range slices.Sorted(maps.Keys(got.happened)) {
		if want.happened[effect] == 0 {
			return &defect{what: "an effect happened that an uninterrupted job does not have", detail: fmt.Sprintf("effect %q", effect),
				hint: "The state does not hold everything that the effect depends on."}
		}
	}
	return nil
}

// outputsDiffer returns a fault if got and want have different outputs, or nil.
func (got ledger) outputsDiffer(want ledger) *defect {
	for _, path := range slices.Sorted(maps.Keys(want.outputs)) {
		switch content, sent := got.outputs[path]; {
		case !sent:
			return &defect{what: "an output is missing", detail: fmt.Sprintf("output %q was never sent; an uninterrupted job has it", path),
				hint: "Send an output before the report of the state that relies on it."}
		case !bytes.Equal(content, want.outputs[path]):
			return &defect{what: "an output differs", detail: fmt.Sprintf("output %q has %d bytes, and others than in an uninterrupted job, "+
				"where it has %d", path, len(content), len(want.outputs[path])), hint: "The state does not hold everything that the output depends on."}
		}
	}
	for _, path := range slices.Sorted(maps.Keys(got.outputs)) {
		if _, sent := want.outputs[path]; !sent {
			return &defect{what: "there is an output that an uninterrupted job does not have", detail: fmt.Sprintf("output %q", path),
				hint: "Name outputs after what is in them, and remove those of work that is done again in another way: j.RemoveOutput."}
		}
	}
	return nil
}

// conflict returns a fault if one key was used for two effects of a job.
func (got ledger) conflict() *defect {
	if len(got.conflicts) == 0 {
		return nil
	}
	return &defect{what: "one idempotency key stands for two effects", detail: got.conflicts[0],
		hint: "Give each effect of a job a name of its own: j.Key(\"mail 7\")."}
}

// sharesKey returns a fault if two different jobs used one key.
func (got ledger) sharesKey(other ledger) *defect {
	for _, key := range slices.Sorted(maps.Keys(got.byKey)) {
		if _, shared := other.byKey[key]; shared {
			return &defect{what: "two jobs use one idempotency key", detail: fmt.Sprintf("key %q stands for %q of every job", key, got.byKey[key]),
				hint: "Only one of all jobs would have its effect: use j.Key(name), which differs from job to job."}
		}
	}
	return nil
}
