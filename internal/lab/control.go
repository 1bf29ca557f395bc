package lab

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

// verb is what `lab up` is told to do with a VM.
type verb string

const (
	verbEvict    verb = "evict"
	verbWithdraw verb = "withdraw"
)

// order is a verb on its way to the loop of `lab up`.
type order struct {
	verb   verb
	vm     string
	answer chan<- answer
}

// answer is what came of an order: a sentence, or why not.
type answer struct {
	said string
	err  error
}

// control is the door through which other processes give orders: POST
// /lab/<verb>?vm=<name>.
type control struct {
	orders chan order
	over   chan struct{} // closed when nobody takes orders any more
}

func newControl() *control {
	return &control{orders: make(chan order), over: make(chan struct{})}
}

// controlHeader must be on every order. A web page of another origin cannot
// send it without asking first, which is refused.
const controlHeader = "X-Spotworker-Lab"

// ServeHTTP implements [http.Handler].
func (c *control) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	verb := verb(strings.TrimPrefix(r.URL.Path, "/lab/"))
	if verb != verbEvict && verb != verbWithdraw {
		http.Error(w, "there is no such order", http.StatusNotFound)
		return
	}
	if r.Method != http.MethodPost || r.Header.Get(controlHeader) == "" {
		http.Error(w, "an order is a POST with the header "+controlHeader, http.StatusBadRequest)
		return
	}
	a := c.give(r.Context(), verb, r.URL.Query().Get("vm"))
	switch {
	case errors.Is(a.err, errEnding):
		http.Error(w, a.err.Error(), http.StatusServiceUnavailable)
		return
	case a.err != nil:
		http.Error(w, a.err.Error(), http.StatusConflict)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]string{"said": a.said}) // a client that is gone has read enough
}

// errEnding is the answer to orders that nobody takes any more.
var errEnding = errors.New("lab up is ending")

// give gives an order and waits for the answer.
func (c *control) give(ctx context.Context, verb verb, vm string) answer {
	answered := make(chan answer, 1)
	select {
	case c.orders <- order{verb, vm, answered}:
		return <-answered
	case <-c.over:
		return answer{err: errEnding}
	case <-ctx.Done():
		return answer{err: context.Cause(ctx)}
	}
}

// orderTimeout bounds one order.
const orderTimeout = 10 * time.Second

// EvictAt has the `lab up` whose metadata service has that port announce the
// eviction of a VM, and returns what it says.
func EvictAt(ctx context.Context, metadataPort int, vm string) (string, error) {
	return sendOrder(ctx, metadataPort, verbEvict, vm)
}

// WithdrawAt has it withdraw the announcement, which is possible until the VM is
// taken away.
func WithdrawAt(ctx context.Context, metadataPort int, vm string) (string, error) {
	return sendOrder(ctx, metadataPort, verbWithdraw, vm)
}

func sendOrder(ctx context.Context, port int, verb verb, vm string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, orderTimeout)
	defer cancel()
	address := fmt.Sprintf("http://%s/lab/%s?vm=%s", loopback(port), verb, url.QueryEscape(vm))
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, nil)
	if err != nil {
		return "", err
	}
	request.Header.Set(controlHeader, "1")
	transport := &http.Transport{Proxy: nil, DialContext: (&net.Dialer{}).DialContext, DisableKeepAlives: true}
	reply, err := (&http.Client{Transport: transport}).Do(request)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return "", fmt.Errorf("nothing answers on port %d of 127.0.0.1: start lab up first, or give its --metadata-port", port)
	}
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", verb, vm, err)
	}
	defer reply.Body.Close()
	return readAnswer(reply)
}

// maxAnswer bounds an answer, in bytes.
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
		return "", fmt.Errorf("what answers there is not lab up (%s)", reply.Status)
	}
	return a.Said, nil
}
