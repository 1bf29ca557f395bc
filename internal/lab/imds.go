package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/emulator/imds/scenario"
)

// IMDSConfig describes a metadata service alone, on which a scenario is played.
type IMDSConfig struct {
	// Scenario is the name of one that comes with the program, or of a file.
	Scenario string

	// MetadataPort is a port of 127.0.0.1; 0 is one that is free.
	MetadataPort int
}

// DefaultIMDSConfig is what `lab imds` does without flags.
func DefaultIMDSConfig() IMDSConfig {
	return IMDSConfig{Scenario: "eviction", MetadataPort: DefaultMetadataPort}
}

// LoadScenario returns the scenario that comes with the program under that name,
// else the one in the file of that name.
func LoadScenario(name string) (scenario.Scenario, error) {
	if _, ok := scenario.ReadyText(name); ok {
		return scenario.Load(name)
	}
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return scenario.Scenario{}, fmt.Errorf("%s is neither a file nor one of the scenarios %s", name, strings.Join(scenario.Ready(), ", "))
	}
	if err != nil {
		return scenario.Scenario{}, err
	}
	return scenario.Parse(name, text)
}

// WriteScenarios prints the scenarios that come with the program, and what
// happens in each.
func WriteScenarios(out io.Writer) error {
	for _, name := range scenario.Ready() {
		s, err := scenario.Load(name)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%-18s", name)
		for i, line := range wrap(s.About, tellWidth) {
			if i > 0 {
				fmt.Fprintf(out, "%-18s", "")
			}
			fmt.Fprintln(out, line)
		}
	}
	return nil
}

// IMDS plays a scenario on a metadata service on 127.0.0.1, until ctx ends or
// the scenario does. To out it writes the addresses, what it serves and what
// clients do. The error wraps a [*PortTakenError] if something else listens on
// the port.
func IMDS(ctx context.Context, s scenario.Scenario, port int, out io.Writer) error {
	listener, err := net.Listen("tcp", loopback(port)) //nolint:noctx // listening on loopback does not wait
	if err != nil {
		return fmt.Errorf("start the metadata emulator: %w", portTaken(err))
	}
	writeIMDSGuide(out, s, "http://"+listener.Addr().String())
	told := newTeller(out)
	player := scenario.New(s, func(line string) { told.say("%s", line) })
	door := &http.Server{Handler: orFirst(s.VMs[0].Name, player.Server().Handler()), ReadHeaderTimeout: time.Minute}
	var serving sync.WaitGroup
	serving.Go(func() { _ = door.Serve(listener) }) // returns when the door is closed
	player.Run(ctx)
	err = door.Close()
	serving.Wait()
	for _, line := range player.Summary() {
		told.say("%s", line)
	}
	return err
}

// orFirst serves paths that name no VM as the first VM's, for clients that are
// told a host and a port but no path.
func orFirst(vm string, service http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", service)
	first := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		named := r.Clone(r.Context())
		named.URL.Path = "/vms/" + vm + r.URL.Path
		service.ServeHTTP(w, named)
	})
	mux.Handle("/metadata/", first)
	mux.Handle("/msi/", first)
	return mux
}

// writeIMDSGuide prints where the VMs' services are, and how to try one.
func writeIMDSGuide(out io.Writer, s scenario.Scenario, base string) {
	var b strings.Builder
	fmt.Fprintf(&b, "\nAn instance metadata service is up on 127.0.0.1, until Ctrl-C.\n%s\n\n", strings.Join(wrap(s.About, tellWidth), "\n"))
	for _, vm := range s.VMs {
		fmt.Fprintf(&b, "    %-12s %s/vms/%s\n", vm.Name, base, vm.Name)
	}
	fmt.Fprintf(&b, "\nPaths without /vms/ are those of %s. Try:\n\n", s.VMs[0].Name)
	fmt.Fprintf(&b, "    curl -H Metadata:true '%s/metadata/scheduledevents?api-version=2020-07-01'\n\n", base)
	if s.FromFirstCall {
		b.WriteString("Times count from the first request for scheduled events.\n\n")
	}
	fmt.Fprint(out, b.String())
}
