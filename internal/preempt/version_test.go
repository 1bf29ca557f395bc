package preempt

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/lab/emulator/imds"
)

// auto returns an emulated service and a client that finds its version itself.
func auto(t *testing.T, options imds.Options) (*imds.Server, *imds.Guest, *Client) {
	t.Helper()
	s := imds.New(options)
	vm := s.AddVM(imds.VM{Name: "a"})
	return s, vm, inProcess(t, vm, asDeployed)
}

// versions lists the versions that the VM's requests about events asked for.
func versions(vm *imds.Guest) []string {
	var list []string
	for _, r := range vm.Stats().Recent {
		if strings.HasSuffix(r.Path, "/scheduledevents") {
			list = append(list, r.Version)
		}
	}
	return list
}

// TestVersionIsFoundAndKept: the newest version is asked for first, the older
// one from then on where that is not served.
func TestVersionIsFoundAndKept(t *testing.T) {
	const newest, general = "2024-07-09", "2020-07-01"
	for _, tt := range []struct {
		name    string
		preview bool
		options []Option
		want    []string
	}{
		{"served", true, nil, []string{newest, newest, newest}},
		{"not served", false, nil, []string{newest, general, general, general}},
		{"not wanted", true, []Option{only(general)}, []string{general, general, general}},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, vm, c := auto(t, imds.Options{PreviewEvents: tt.preview})
			for _, o := range tt.options {
				o(c)
			}
			id := s.Schedule(imds.Event{Type: "Preempt", Resources: []string{"a"}})
			for range 2 {
				if doc, err := c.Events(t.Context()); err != nil || len(doc.Events) != 1 || doc.Date.IsZero() {
					t.Fatalf("%s: Events = %+v, %v, want a dated document with one event", tt.name, doc, err)
				}
			}
			if err := c.Acknowledge(t.Context(), id); err != nil {
				t.Errorf("%s: Acknowledge = %v, want nil", tt.name, err)
			}
			if diff := cmp.Diff(tt.want, versions(vm)); diff != "" {
				t.Errorf("%s: versions asked for (-want +got):\n%s", tt.name, diff)
			}
			if got, last := c.version.get(), tt.want[len(tt.want)-1]; got != last {
				t.Errorf("%s: version in use = %s, want %s", tt.name, got, last)
			}
		})
	}
}

// TestVersionGivenIsNotLeft: a version that is set is used or fails, without a fallback.
func TestVersionGivenIsNotLeft(t *testing.T) {
	_, vm, c := auto(t, imds.Options{})
	only(newestEvents)(c)
	if _, err := c.Events(t.Context()); !isUnsupported(err) {
		t.Errorf("Events in a version that is not served = %v, want 404", err)
	}
	if got := versions(vm); !slices.Equal(got, []string{newestEvents}) {
		t.Errorf("versions asked for = %v, want the one given, once", got)
	}
}

// TestPassingRefusalChangesNothing: a 404 that has nothing to do with the
// version does not cost the newest one.
func TestPassingRefusalChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, c := auto(t, imds.Options{PreviewEvents: true})
		s.OnRequest(func(imds.Request) imds.Fault { return imds.Fault{Status: http.StatusNotFound} })
		if _, err := c.Events(t.Context()); !isUnsupported(err) {
			t.Errorf("Events = %v, want 404", err)
		}
		s.OnRequest(nil)
		if _, err := c.Events(t.Context()); err != nil || c.version.get() != newestEvents {
			t.Errorf("Events = %v in version %s, want nil in %s", err, c.version.get(), newestEvents)
		}
	})
}

// TestVersionThatIsTakenAway: a VM may move to a host that does not serve the
// preview; it must not be blind there.
func TestVersionThatIsTakenAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, vm, c := auto(t, imds.Options{PreviewEvents: true})
		begin := time.Now()
		s.OnRequest(func(r imds.Request) imds.Fault {
			if r.Version == newestEvents && time.Since(begin) > 10*time.Second {
				return imds.Fault{Status: http.StatusNotFound}
			}
			return imds.Fault{}
		})
		if took := preemptAfter(t, s, c, 11*time.Second); took < 0 || took > time.Second {
			t.Errorf("eviction was seen within %s, want at most 1s", took)
		}
		if busiest := vm.Stats().BusiestSecond; busiest > budgetRequests {
			t.Errorf("%d requests in one second, want at most %d", busiest, budgetRequests)
		}
	})
}

// TestTroubleWhileTheVersionIsNotKnown: for any failure, the fallback stays within the
// budget and does not keep an eviction from being seen.
func TestTroubleWhileTheVersionIsNotKnown(t *testing.T) {
	for name, fault := range troubles {
		synctest.Test(t, func(t *testing.T) {
			s, vm, c := auto(t, imds.Options{})
			end := time.Now().Add(30 * time.Second)
			s.OnRequest(func(imds.Request) imds.Fault {
				if time.Now().Before(end) {
					return fault
				}
				return imds.Fault{}
			})
			took := preemptAfter(t, s, c, 30*time.Second)
			if took < 0 || took > 2500*time.Millisecond {
				t.Errorf("%s: eviction was seen %s after the trouble, want within 2.5s", name, took)
			}
			if busiest := vm.Stats().BusiestSecond; busiest > budgetRequests {
				t.Errorf("%s: %d requests in one second, want at most %d", name, busiest, budgetRequests)
			}
		})
	}
}
