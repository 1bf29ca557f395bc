package preempt

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/spotworker/spotworker/internal/lab/emulator/imds"
	"github.com/spotworker/spotworker/internal/test/guard"
)

// only makes a client ask for scheduled events in one version.
func only(version string) Option {
	return func(c *Client) { c.version.set(version, "") }
}

// asDeployed makes a client ask for scheduled events as a worker does.
func asDeployed(c *Client) { c.version.set(newestEvents, generalEvents) }

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// noon is a moment of the service's clock.
var noon = time.Date(2026, time.March, 9, 12, 0, 0, 0, time.UTC)

// inProcess returns a client of the VM's emulated service, without sockets. It
// asks in one version, so that its requests can be counted, unless options say
// otherwise.
func inProcess(t *testing.T, vm *imds.Guest, options ...Option) *Client {
	t.Helper()
	options = append([]Option{WithTransport(vm.RoundTripper()), only(generalEvents)}, options...)
	c, err := NewClient(guard.Loopback(t, "http://127.0.0.1"), options...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// emulate returns an emulated service with the VM "a", and a client of it.
func emulate(t *testing.T, options imds.Options) (*imds.Server, *imds.Guest, *Client) {
	t.Helper()
	s := imds.New(options)
	vm := s.AddVM(imds.VM{Name: "a"})
	return s, vm, inProcess(t, vm)
}
