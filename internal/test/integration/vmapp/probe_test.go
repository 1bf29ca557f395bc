//go:build integration && linux

package vmapp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// probe stands in for the Application Health extension, version 2 with rich
// health states. As its source and its documentation have it
// (Azure/applicationhealth-extension-linux), it asks localhost, is Initializing at
// first, and a state counts once it was seen in as many probes in a row as
// numberOfProbes says, the first one too; anything but a 2xx with a state that it
// knows is Unknown, and so is no answer. Not stood in for: the end of the grace
// period, and the status file.
//
// It is stricter than infra/bicep: 30 probes a second apart at most, in place of 6
// every 10 s, with which the real one took 55 s to Healthy and 57 to 70 s to
// Unknown.
type probe struct {
	url    string
	client http.Client
	probes int // in a row, for a state to count

	mu     sync.Mutex
	states []string // that counted, each once in a row
}

const (
	probeEvery = time.Second

	// patientProbes outlast a restart of the worker, fewProbes do not.
	patientProbes, fewProbes = 30, 3
)

// watchHealth probes a port until the returned function is called.
func watchHealth(t *testing.T, port, probes int) (p *probe, stop func()) {
	t.Helper()
	p = &probe{
		url: fmt.Sprintf("http://localhost:%d/healthz", port), client: http.Client{Timeout: 30 * time.Second},
		probes: probes, states: []string{"Initializing"},
	}
	ctx, cancel := context.WithCancel(t.Context())
	var loop sync.WaitGroup
	loop.Go(func() { p.run(ctx) })
	return p, func() {
		cancel()
		loop.Wait()
	}
}

func (p *probe) run(ctx context.Context) {
	ticker := time.NewTicker(probeEvery)
	defer ticker.Stop()
	last, inRow := "", 0
	for {
		state, err := p.ask(ctx)
		if err != nil {
			state = "Unknown"
		}
		if state != last {
			last, inRow = state, 0
		}
		inRow++
		if ctx.Err() != nil {
			return
		}
		p.commit(state, inRow)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (p *probe) commit(state string, inRow int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if inRow >= p.probes && p.states[len(p.states)-1] != state {
		p.states = append(p.states, state)
	}
}

// ask returns the state that the application reports now.
func (p *probe) ask(ctx context.Context) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url, nil)
	if err != nil {
		return "", err
	}
	request.Header.Set("User-Agent", "ApplicationHealthExtension/1.0")
	response, err := p.client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return "", errors.New(response.Status)
	}
	var answer struct{ ApplicationHealthState string }
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return "", err
	}
	if answer.ApplicationHealthState != "Healthy" && answer.ApplicationHealthState != "Unhealthy" {
		return "", fmt.Errorf("state %q is none", answer.ApplicationHealthState)
	}
	return answer.ApplicationHealthState, nil
}

// history is every state that counted, in order.
func (p *probe) history() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.states, ", ")
}
