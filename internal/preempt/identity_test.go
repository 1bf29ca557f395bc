package preempt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/lab/emulator/imds"
)

func TestParseInstance(t *testing.T) {
	for _, tt := range []struct {
		body string
		want Instance
	}{
		{`{"name":"a","vmId":"1","vmScaleSetName":"","resourceId":"/r","location":"westus","zone":"","priority":"",` +
			`"evictionPolicy":"","tagsList":[],"userData":""}`,
			Instance{Identity: Identity{Name: "a", VMID: "1", ResourceID: "/r", Location: "westus"}, Tags: map[string]string{}}},
		{`{"NAME":"a","unknown":[{}]}`, Instance{Identity: Identity{Name: "a"}}},
		{`{"name":"a","tagsList":"odd","zone":2,"location":null,"vmSize":"S"}`, Instance{Identity: Identity{Name: "a", Zone: "2", Size: "S"}}},
		{`{"name":"a","tagsList":[{"name":"k","value":7}]}`,
			Instance{Identity: Identity{Name: "a"}, Tags: map[string]string{"k": "7"}}},
	} {
		got, err := parseInstance([]byte(tt.body))
		if err != nil {
			t.Errorf("parseInstance(%s): %v", tt.body, err)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("parseInstance(%s) (-want +got):\n%s", tt.body, diff)
		}
	}
	for _, body := range []string{``, `[]`, `{}`, `{"name":""}`, `{"name":" "}`, `{"error":"x"}`, `{"name":"a"`} {
		if got, err := parseInstance([]byte(body)); !errors.Is(err, ErrMalformed) {
			t.Errorf("parseInstance(%s) = %v, %v, want ErrMalformed", body, got, err)
		}
	}
}

func TestInstanceShowsNoSecrets(t *testing.T) {
	i := Instance{Identity: Identity{Name: "a", VMID: "1"}, UserData: "aHVudGVyMg==", Tags: map[string]string{"pw": "hunter2"}}
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("instance known", "instance", i)
	shown := fmt.Sprint(i) + fmt.Sprintf("%v %+v %s", i, i, &i) + log.String()
	if strings.Contains(shown, "hunter2") || strings.Contains(shown, "aHVudGVyMg") {
		t.Errorf("printed and logged as %s, want neither tags nor user data", shown)
	}
	if !strings.Contains(log.String(), "Name:a") {
		t.Errorf("logged as %s, want the identity", log.String())
	}
}

func TestDiscoverRetriesUntilTheNameIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, vm, c := emulate(t, imds.Options{})
		faults := []imds.Fault{
			{Cut: true},                           // 1 s
			{Status: 410},                         // 1 s
			{Body: []byte(`{"error":"not yet"}`)}, // 1 s
			{Hang: true},                          // 5 s, 2 s
			{Status: 429},                         // of the patient attempt, which is sent when the one before times out
			{Body: []byte(`{"name":"","location":"west"}`)}, // 2 s
		}
		s.OnRequest(func(r imds.Request) imds.Fault {
			if r.N <= len(faults) {
				return faults[r.N-1]
			}
			return imds.Fault{}
		})
		begin := time.Now()
		var failures []error
		id, err := c.Discover(t.Context(), func(err error) { failures = append(failures, err) })
		if err != nil || id.Name != "a" || id.VMID == "" {
			t.Fatalf("Discover = %+v, %v, want the identity of a", id, err)
		}
		if took, want := time.Since(begin), 12*time.Second; took != want {
			t.Errorf("it took %s, want %s", took, want)
		}
		if len(failures) != len(faults)-1 {
			t.Errorf("%d failures were reported, want %d: %v", len(failures), len(faults)-1, failures)
		}
		if n := vm.Stats().Requests; n != len(faults)+1 {
			t.Errorf("%d requests, want %d", n, len(faults)+1)
		}
	})
}

func TestDiscoverEndsWithTheContext(t *testing.T) {
	stopped := errors.New("stopped by the test")
	for name, tt := range map[string]struct {
		fault    imds.Fault
		failures int // the end of the context is none
	}{
		"while it hangs": {imds.Fault{Hang: true}, 0},
		"while it waits": {imds.Fault{Status: 429}, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, _, c := emulate(t, imds.Options{})
			s.OnRequest(func(imds.Request) imds.Fault { return tt.fault })
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(stopped) })
			begin := time.Now()
			failures := 0
			_, err := c.Discover(ctx, func(error) { failures++ })
			if failures != tt.failures {
				t.Errorf("%s: %d failures were reported, want %d", name, failures, tt.failures)
			}
			if !errors.Is(err, stopped) {
				t.Errorf("%s: Discover = %v, want the cause of the context", name, err)
			}
			if took := time.Since(begin); took != time.Second {
				t.Errorf("%s: it took %s, want 1s", name, took)
			}
		})
	}
}

func TestNames(t *testing.T) {
	tests := []struct {
		name      string
		resources []string
		want      bool
	}{
		// Uniform: <scale set>_<number>
		{"workers_3", []string{"workers_3"}, true},
		{"workers_3", []string{"WORKERS_3"}, true},
		{"Workers_3", []string{"workers_3"}, true},
		{"workers_3", []string{"workers_1", "workers_2", "workers_3"}, true},
		{"workers_3", []string{"workers_30"}, false},
		{"workers_30", []string{"workers_3"}, false},
		{"workers_3", []string{"workers"}, false},
		{"workers_3", []string{"other_3"}, false},
		{"workers_3", []string{"3"}, false},
		{"workers_3", []string{"workers-3"}, false},
		// Flexible: <scale set>_<8 characters>
		{"workers_1a2b3c4d", []string{"workers_1A2B3C4D"}, true},
		{"workers_1a2b3c4d", []string{"workers_1a2b3c4e"}, false},
		// single
		{"build-vm", []string{"Build-VM"}, true},
		{"build-vm", []string{"build-vm2", "a-build-vm"}, false},
		// none
		{"workers_3", nil, false},
		{"workers_3", []string{""}, false},
		{"", []string{""}, false},
		{"", []string{"workers_3"}, false},
	}
	for _, tt := range tests {
		e := Event{Resources: tt.resources}
		if got := e.Names(Identity{Name: tt.name, ScaleSet: "workers"}); got != tt.want {
			t.Errorf("event for %q names %q: %t, want %t", tt.resources, tt.name, got, tt.want)
		}
	}
}
