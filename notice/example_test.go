package notice_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"

	"github.com/spotworker/spotworker/internal/lab/emulator/imds"
	"github.com/spotworker/spotworker/notice"
)

// An HTTP server behind a load balancer. On a notice its health check fails, so that the load
// balancer sends no more requests, and the requests under way are finished. In place of the VM's
// metadata service the example asks an emulated one.
func Example_server() {
	azure := imds.New(imds.Options{})
	metadata := httptest.NewServer(azure.AddVM(imds.VM{Name: "web_0"}).Handler())
	defer metadata.Close()

	ctx, stop, err := notice.NotifyContext(context.Background(), notice.Options{Endpoint: metadata.URL})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()

	var leaving atomic.Bool
	site := http.NewServeMux()
	site.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		if leaving.Load() {
			http.Error(w, "leaving", http.StatusServiceUnavailable)
		}
	})
	server := httptest.NewServer(site)
	health := func() string {
		response, err := http.Get(server.URL + "/healthz")
		if err != nil {
			return err.Error()
		}
		defer response.Body.Close()
		return response.Status
	}

	fmt.Println("health check:", health())
	if _, err := azure.SimulateEviction("web_0"); err != nil {
		fmt.Println(err)
	}
	<-ctx.Done()
	leaving.Store(true)
	if e, ok := errors.AsType[*notice.Error](context.Cause(ctx)); ok {
		fmt.Println("notice:", e.Notice.Type, e.Notice.Action)
	}
	fmt.Println("health check:", health())
	server.Close() // waits for requests under way, as Shutdown does
	// Output:
	// health check: 200 OK
	// notice: Preempt leave
	// health check: 503 Service Unavailable
}
