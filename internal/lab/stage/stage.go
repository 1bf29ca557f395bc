package stage

import (
	"net/http"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/lab"
	"github.com/spotworker/spotworker/internal/lab/emulator/imds"
	"github.com/spotworker/spotworker/internal/storage/azure"
)

// Config describes a stage.
type Config struct {
	// Worker is the program of the workers, and Args its arguments beside those of the fleet.
	Worker string
	Args   []string

	// Logs is the folder of the workers' logs.
	Logs string

	// Visibility is how long workers hide the messages that they claim and renew.
	Visibility time.Duration

	// ConnectionString is for a storage account, on loopback. Default: the emulator.
	ConnectionString string

	// OnLine and OnEnd are the hooks of [lab.FleetConfig].
	OnLine func(vm string, line []byte)
	OnEnd  func(vm *lab.VM, err error)
}

// Stage is a local Azure with workers. It is safe for concurrent use.
type Stage struct {
	Local    *lab.Local
	Names    azure.Names
	Recorder *Recorder
	Fleet    *lab.Fleet

	// ConnectionString is for the storage account itself, without a proxy.
	ConnectionString string

	transport *http.Transport
	over      chan struct{} // closed at the end

	mu      sync.Mutex
	started int
	present map[string]*VM // by name
}

// VM is a simulated VM: a worker process and its proxy.
type VM struct {
	Name   string
	Proxy  *Proxy
	Worker *lab.VM

	args []string
}

// Open starts a local Azure without a VM.
func Open(c Config) (s *Stage, err error) {
	s = &Stage{
		Recorder: NewRecorder(c.Visibility), ConnectionString: c.ConnectionString, over: make(chan struct{}),
		transport: upstream(c.ConnectionString == ""), present: map[string]*VM{},
	}
	if s.Names, err = azure.NamesFor(azure.DefaultPrefix, ""); err != nil {
		return nil, err
	}
	if s.Local, err = lab.StartLocal(lab.LocalConfig{}); err != nil {
		return nil, err
	}
	if s.ConnectionString == "" {
		s.ConnectionString = s.Local.ConnectionString
	}
	s.Fleet = lab.NewFleet(lab.FleetConfig{
		Worker: c.Worker, Endpoint: s.Local.Endpoint, Args: c.Args, Logs: c.Logs, OnLine: c.OnLine, OnEnd: c.OnEnd,
		StorageFor: func(vm string) string { return s.vm(vm).Proxy.connectionString },
		ArgsFor:    func(vm string) []string { return s.vm(vm).args },
	})
	return s, nil
}

// Close stops the local Azure and the proxies. The caller has ended the workers.
func (s *Stage) Close() error {
	close(s.over)
	s.mu.Lock()
	for _, v := range s.present {
		v.Proxy.close()
	}
	s.mu.Unlock()
	err := s.Local.Close()
	s.transport.CloseIdleConnections()
	return err
}

// Start starts a worker with some slots on a VM of its own. restricted says that it has the kind
// that others lack, and args are its further arguments.
func (s *Stage) Start(slots int, restricted bool, args ...string) (v *VM, err error) {
	s.mu.Lock()
	s.started++
	v = &VM{Name: lab.VMName(s.started), args: args}
	s.mu.Unlock()
	if v.Proxy, err = startProxy(v.Name, s.ConnectionString, s.Names, s.Recorder, s.transport, s.over); err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.present[v.Name] = v
	s.mu.Unlock()
	s.Recorder.started(v.Name, slots, restricted)
	s.Local.Metadata.AddVM(imds.VM{Name: v.Name, ScaleSet: lab.ScaleSet})
	if v.Worker, err = s.Fleet.Start(v.Name); err != nil {
		s.Remove(v)
		return nil, err
	}
	return v, nil
}

// Started returns how many VMs were started so far.
func (s *Stage) Started() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.started
}

// Remove removes a VM whose worker has ended.
func (s *Stage) Remove(v *VM) {
	s.mu.Lock()
	delete(s.present, v.Name)
	s.mu.Unlock()
	s.Local.Metadata.RemoveVM(v.Name)
	v.Proxy.close()
}

func (s *Stage) vm(name string) *VM {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.present[name]
}
