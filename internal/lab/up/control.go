package up

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"
)

// action is the action of an order.
type action string

const (
	actionEvict    action = "evict"
	actionWithdraw action = "withdraw"
	actionStop     action = "stop"
	actionStart    action = "start"
)

// exists reports whether there is such an action.
func (a action) exists() bool {
	return a == actionEvict || a == actionWithdraw || a == actionStop || a == actionStart
}

// order is a request to the controller.
type order struct {
	action action
	vm     string // its name; empty for the storage account
	answer chan<- answer
}

// answer is the reply to an order: a sentence for people, or an error.
type answer struct {
	said string
	err  error
}

// control accepts orders from other processes, as POST /lab/<action>?vm=<name>.
type control struct {
	orders chan order
	closed chan struct{} // closed when the controller has stopped
}

func newControl() *control {
	return &control{orders: make(chan order), closed: make(chan struct{})}
}

// controlHeader must be on every order. A browser does not send it from a page
// of another origin without a preflight request, which is refused.
const controlHeader = "X-Spotworker-Lab"

// ServeHTTP implements [http.Handler].
func (c *control) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	action := action(strings.TrimPrefix(r.URL.Path, "/lab/"))
	if !action.exists() {
		http.Error(w, "there is no such order", http.StatusNotFound)
		return
	}
	if r.Method != http.MethodPost || r.Header.Get(controlHeader) == "" {
		http.Error(w, "an order is a POST with the header "+controlHeader, http.StatusBadRequest)
		return
	}
	a := c.give(r.Context(), action, r.URL.Query().Get("vm"))
	switch {
	case errors.Is(a.err, errEnding):
		http.Error(w, a.err.Error(), http.StatusServiceUnavailable)
		return
	case a.err != nil:
		http.Error(w, a.err.Error(), http.StatusConflict)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]string{"said": a.said}) // fails only if the client is gone
}

// errEnding is the answer to an order after the controller has stopped.
var errEnding = errors.New("lab up is ending")

// give sends an order to the controller and waits for the answer.
func (c *control) give(ctx context.Context, action action, vm string) answer {
	answered := make(chan answer, 1)
	select {
	case c.orders <- order{action, vm, answered}:
		return <-answered
	case <-c.closed:
		return answer{err: errEnding}
	case <-ctx.Done():
		return answer{err: context.Cause(ctx)}
	}
}

// orderTimeout is the time limit of one order.
const orderTimeout = 10 * time.Second

// Evict announces the eviction of a VM of the `lab up` whose metadata service
// has that port, and returns its answer.
func Evict(ctx context.Context, metadataPort int, vm string) (string, error) {
	return sendOrder(ctx, metadataPort, actionEvict, vm)
}

// Withdraw withdraws the announcement, which is possible until the VM is gone.
func Withdraw(ctx context.Context, metadataPort int, vm string) (string, error) {
	return sendOrder(ctx, metadataPort, actionWithdraw, vm)
}

// Stop lets the storage account of the `lab up` answer no call, and returns the answer of
// `lab up`.
func Stop(ctx context.Context, metadataPort int) (string, error) {
	return sendOrder(ctx, metadataPort, actionStop, "")
}

// Start lets the storage account answer again.
func Start(ctx context.Context, metadataPort int) (string, error) {
	return sendOrder(ctx, metadataPort, actionStart, "")
}

func sendOrder(ctx context.Context, port int, action action, vm string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, orderTimeout)
	defer cancel()
	address := fmt.Sprintf("http://127.0.0.1:%d/lab/%s?vm=%s", port, action, url.QueryEscape(vm))
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, nil)
	if err != nil {
		return "", err
	}
	request.Header.Set(controlHeader, "1")
	transport := &http.Transport{Proxy: nil, DialContext: (&net.Dialer{}).DialContext, DisableKeepAlives: true}
	reply, err := (&http.Client{Transport: transport}).Do(request)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return "", fmt.Errorf("nothing listens on port %d of 127.0.0.1: start lab up first, or give its --metadata-port", port)
	}
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", action, vm, err)
	}
	defer reply.Body.Close()
	return readAnswer(reply)
}

// maxAnswer is the largest answer that is read, in bytes.
const maxAnswer = 4 << 10

func readAnswer(reply *http.Response) (string, error) {
	body, err := io.ReadAll(io.LimitReader(reply.Body, maxAnswer))
	if err != nil {
		return "", fmt.Errorf("read the answer of lab up: %w", err)
	}
	var a struct{ Said string }
	switch {
	case reply.StatusCode == http.StatusConflict:
		return "", errors.New(strings.TrimSpace(string(body)))
	case reply.StatusCode != http.StatusOK || json.Unmarshal(body, &a) != nil || a.Said == "":
		return "", fmt.Errorf("the server on that port is not lab up (%s)", reply.Status)
	}
	return a.Said, nil
}
