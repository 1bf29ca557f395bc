//go:build integration

package incidents

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/spotworker/spotworker/internal/deployment"
	"github.com/spotworker/spotworker/internal/lab"
	"github.com/spotworker/spotworker/internal/lab/emulator/imds"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/lab/labtest"
	"github.com/spotworker/spotworker/internal/producer"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/internal/test/need"
)

var (
	record = flag.Bool("record", false, "record the incidents: some ten minutes")
	calm   = flag.Duration("calm", 10*time.Minute, "for how long the calm time is recorded")
)

// The incident begins after so many scrapes, and is scraped so often: five minutes and one.
const (
	ticksBefore = 12
	ticksAfter  = 24
)

// TestRecord records the incidents, all at the same time.
func TestRecord(t *testing.T) {
	need.Flag(t, "record", *record)
	programs, err := labtest.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	alerts, err := os.ReadFile(rules(t))
	if err != nil {
		t.Fatal(err)
	}
	for name, i := range incidents() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ticks := ticksBefore + ticksAfter
			if i.begin == nil {
				ticks = int(*calm / every)
			}
			s := newScene(t, programs.Worker, i)
			s.run(ticks)
			s.recording.write(t, name, ticks, func(series string) bool { return asks(string(alerts), series) })
			if name == "calm" {
				s.recording.write(t, "sample", min(ticks, sampleTicks), func(string) bool { return true })
			}
		})
	}
}

// sampleTicks is how much of the calm time is kept with all metrics, for the dashboard.
const sampleTicks = 16

// asks reports whether alerts ask for the metric of a series.
func asks(alerts, series string) bool {
	name, labels, _ := strings.Cut(series, "{")
	if strings.Contains(labels, `le="`) && !strings.Contains(labels, `le="1"`) {
		return false // no alert asks for another bucket
	}
	return slices.Contains(regexp.MustCompile(`spotworker_[a-z_]+`).FindAllString(alerts, -1), name)
}

// scene is a small deployment that jobs are put into, and that is scraped.
type scene struct {
	t         *testing.T
	incident  incident
	local     *lab.Local
	fleet     *lab.Fleet
	stores    *deployment.Stores
	folder    string
	kind      atomic.Value // of the jobs that are put, a string
	stopped   atomic.Bool  // no jobs are put
	recording *recording
	lines     atomic.Int64 // logged by all workers

	mu        sync.Mutex
	addresses map[string]string // of /metrics, by VM
	vms       map[string]*lab.VM
	started   int
	put       int
}

// kinds are the kinds of jobs in a scene. A VM whose flag file is there fails its jobs, or
// about half of them; a job of kind stuck stops reporting when the scene's flag file is there.
const kinds = `{"kinds": {
	"work":  {"command": ["sh", "-c", "[ ! -e %[1]s ] || exit 1; [ ! -e %[1]s.half ] || [ $(($$ %% 2)) = 0 ] || exit 1; sleep 2"], ` +
	`"backoff": "1s"},
	"long":  {"command": ["sh", "-c", "for i in $(seq 300); do echo $i >$TMPDIR/c; mv $TMPDIR/c $SPOTWORKER_CHECKPOINT; ` +
	`sleep 1; [ ! -e $SPOTWORKER_STOP ] || exit 75; done"]},
	"stuck": {"command": ["sh", "-c", "while [ ! -e %[2]s ]; do echo '{}' >>$SPOTWORKER_PROGRESS; sleep 1; done; sleep 3600"]},
	"bad":   {"command": ["false"], "max_failures": 1}
}}`

func newScene(t *testing.T, worker string, i incident) *scene {
	t.Helper()
	local, err := lab.StartLocal(lab.LocalConfig{})
	if err != nil {
		t.Fatal(err)
	}
	s := &scene{
		t: t, incident: i, local: local, folder: t.TempDir(), addresses: map[string]string{}, vms: map[string]*lab.VM{},
		recording: &recording{series: map[string][]string{}},
	}
	if i.begin != nil {
		s.recording.onset = ticksBefore
	}
	s.kind.Store("work")
	account, err := local.Account()
	if err != nil {
		t.Fatal(err)
	}
	names, err := azure.NamesFor(azure.DefaultPrefix, "")
	if err != nil {
		t.Fatal(err)
	}
	s.stores = deployment.StoresOf(account, names)
	containers := map[string]*container.Client{}
	for _, name := range []string{names.Records, names.Payloads, names.Workers, names.Control, names.Outputs} {
		containers[name] = account.Container(name)
	}
	if err := producer.Create(t.Context(), s.stores.AllQueues(), containers); err != nil {
		t.Fatal(err)
	}
	s.fleet = lab.NewFleet(lab.FleetConfig{
		Worker: worker, ConnectionString: local.ConnectionString, Endpoint: local.Endpoint, Logs: s.folder, Listen: "127.0.0.1:0",
		ArgsFor: s.args, OnLine: s.line, StorageFor: s.storageFor,
	})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*lab.HandOver)
		defer cancel()
		local.Storage.OnCall(nil)
		_ = s.fleet.Close(ctx) // some were broken on purpose
		_ = local.Close()
	})
	for range max(i.vms, 2) {
		s.start()
	}
	return s
}

func (s *scene) flagFile(vm string) string { return filepath.Join(s.folder, vm+".flag") }
func (s *scene) setFlag(vm string)         { _ = os.WriteFile(s.flagFile(vm), nil, 0o644) }
func (s *scene) scratch(vm string) string  { return filepath.Join(s.folder, vm+"-scratch") }

func (s *scene) args(vm string) []string {
	file := filepath.Join(s.folder, vm+".json")
	text := fmt.Sprintf(kinds, s.flagFile(vm), s.flagFile("scene"))
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		s.t.Error(err)
	}
	if err := os.MkdirAll(s.scratch(vm), 0o755); err != nil {
		s.t.Error(err)
	}
	if s.incident.prepare != nil {
		s.incident.prepare(s, vm)
	}
	return []string{"--kinds-file=" + file, "--concurrency=2", "--scratch=" + s.scratch(vm)}
}

// storageFor returns how a VM reaches storage.
func (s *scene) storageFor(vm string) string {
	if s.incident.storageFor == nil {
		return s.local.ConnectionString
	}
	return s.incident.storageFor(s, vm)
}

// line takes the address of /metrics from a worker's log, and counts the lines logged by
// default, beside the two lines of every job.
func (s *scene) line(vm string, line []byte) {
	var l struct{ Level, Msg, Address string }
	if json.Unmarshal(line, &l) != nil {
		return
	}
	if l.Level != "DEBUG" && l.Msg != "job started" && l.Msg != "job committed" {
		s.lines.Add(1)
	}
	if l.Msg == "health and metrics are served" {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.addresses[vm] = l.Address
	}
}

func (s *scene) start() {
	s.mu.Lock()
	s.started++
	name := lab.VMName(s.started)
	s.mu.Unlock()
	s.local.Metadata.AddVM(imds.VM{Name: name, ScaleSet: lab.ScaleSet})
	vm, err := s.fleet.Start(name)
	if err != nil {
		s.t.Error(err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.vms[name] = vm
}

// kill kills the oldest worker and forgets its address.
func (s *scene) kill() {
	for _, vm := range s.fleet.Running() {
		vm.Kill()
		s.mu.Lock()
		delete(s.addresses, vm.Name)
		s.mu.Unlock()
		return
	}
}

// run puts a job every 2 s and scrapes every 15 s.
func (s *scene) run(ticks int) {
	ctx, cancel := context.WithCancel(s.t.Context())
	var feeding sync.WaitGroup
	defer feeding.Wait()
	defer cancel()
	feeding.Go(func() {
		for ticker := time.NewTicker(2 * time.Second); ctx.Err() == nil; {
			select {
			case <-ticker.C:
			case <-ctx.Done():
			}
			if !s.stopped.Load() {
				s.putJobs(ctx, 1)
			}
		}
	})
	if s.incident.atFirst != nil {
		s.incident.atFirst(ctx, s)
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for tick := range ticks {
		<-ticker.C
		s.scrape(tick)
		if tick+1 == s.recording.onset {
			s.lines.Store(0)
			feeding.Go(func() { s.incident.begin(ctx, s) })
		}
		if s.incident.each != nil {
			s.incident.each(s, tick)
		}
	}
	s.t.Logf("%.1f lines a minute of all workers, beside those of jobs that start and are committed",
		float64(s.lines.Load())/(time.Duration(ticks-s.recording.onset)*every).Minutes())
}

func (s *scene) putJobs(ctx context.Context, n int) {
	for range n {
		s.mu.Lock()
		s.put++
		id := fmt.Sprintf("job-%d", s.put)
		s.mu.Unlock()
		payload, err := queue.JSONPayload([]byte("1"))
		if err == nil {
			err = s.stores.Queue.Put(ctx, queue.Envelope{ID: id, Kind: s.kind.Load().(string), Payload: payload, EnqueuedAt: time.Now().UTC()}, 0)
		}
		_ = err // storage may be broken on purpose
	}
}

func (s *scene) scrape(tick int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	client := http.Client{Timeout: 5 * time.Second}
	for vm, address := range s.addresses {
		reply, err := client.Get("http://" + address + "/metrics")
		if err != nil {
			continue
		}
		body, err := io.ReadAll(reply.Body)
		_ = reply.Body.Close()
		if err == nil {
			s.recording.add(tick, vm, string(body))
		}
	}
}

// refuse makes storage refuse those calls.
func (s *scene) refuse(which func(storage.Call) bool, f storage.Fault) {
	s.local.Storage.OnCall(func(c storage.Call) storage.Fault {
		if which(c) {
			return f
		}
		return storage.Fault{}
	})
}

// wrongClock returns a connection string of storage whose clock is wrong by an hour once
// on is set, as a VM sees it whose own clock has jumped.
func wrongClock(s *scene, on *atomic.Bool) string {
	connection := s.local.ConnectionString
	for _, endpoint := range regexp.MustCompile(`http://[0-9.:]+`).FindAllString(connection, -1) {
		target, err := url.Parse(endpoint)
		if err != nil {
			s.t.Error(err)
			continue
		}
		proxy := &httputil.ReverseProxy{
			Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target); r.Out.Host = r.In.Host },
			ModifyResponse: func(r *http.Response) error {
				if on.Load() {
					r.Header.Set("Date", time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat))
				}
				return nil
			},
		}
		server := httptest.NewServer(proxy)
		s.t.Cleanup(server.Close)
		connection = strings.Replace(connection, endpoint, server.URL, 1)
	}
	return connection
}
