// Package imds is `lab imds`: an instance metadata service alone, on which a
// scenario of scheduled events is played, for any software that watches them.
package imds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/lab"
	"github.com/spotworker/spotworker/internal/lab/emulator/imds/scenario"
	"github.com/spotworker/spotworker/internal/lab/text"
	"github.com/spotworker/spotworker/internal/text/charset"
)

// LoadScenario returns the built-in scenario of that name, else the one in the
// file of that name.
func LoadScenario(name string) (scenario.Scenario, error) {
	if _, ok := scenario.ReadyText(name); ok {
		return scenario.Load(name)
	}
	content, err := charset.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return scenario.Scenario{}, fmt.Errorf("%s is neither a file nor one of the scenarios %s", name, strings.Join(scenario.Ready(), ", "))
	}
	if err != nil {
		return scenario.Scenario{}, err
	}
	return scenario.Parse(name, content)
}

// WriteScenarios lists the built-in scenarios and what happens in each.
func WriteScenarios(out io.Writer) error {
	for _, name := range scenario.Ready() {
		s, err := scenario.Load(name)
		if err != nil {
			return err
		}
		for _, line := range text.Wrap(s.About, text.Width) {
			fmt.Fprintf(out, "%-18s%s\n", name, line)
			name = ""
		}
	}
	return nil
}

// Run plays a scenario on a metadata service on 127.0.0.1 until ctx or the scenario ends.
// It prints the addresses, the events and the actions of clients. The error wraps a
// [*lab.PortTakenError] if the port is in use.
func Run(ctx context.Context, s scenario.Scenario, port int, out io.Writer) error {
	listener, err := lab.Listen(port)
	if err != nil {
		return fmt.Errorf("start the metadata emulator: %w", err)
	}
	writeGuide(out, s, "http://"+listener.Addr().String())
	narrator := text.NewNarrator(out)
	player := scenario.New(s, func(line string) { narrator.Say("%s", line) })
	server := &http.Server{Handler: withDefaultVM(s.VMs[0].Name, player.Server().Handler()), ReadHeaderTimeout: time.Minute}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) }) // returns when the server is closed
	player.Run(ctx)
	err = server.Close()
	serving.Wait()
	for _, line := range player.Summary() {
		narrator.Say("%s", line)
	}
	return err
}

// withDefaultVM serves paths that name no VM as the paths of one VM, for clients that are
// configured with a host and a port but no path.
func withDefaultVM(vm string, service http.Handler) http.Handler {
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

// writeGuide prints the addresses of the VMs' services, and a command to try.
func writeGuide(out io.Writer, s scenario.Scenario, base string) {
	var b strings.Builder
	fmt.Fprintf(&b, "\nAn instance metadata service is up on 127.0.0.1, until Ctrl-C.\n%s\n\n", strings.Join(text.Wrap(s.About, text.Width),
		"\n"))
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
