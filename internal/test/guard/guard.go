// Package guard keeps tests on this machine.
//
// The code under test talks to a metadata service at a fixed address that
// answers on every cloud VM, build agents included. A test that reached it by
// mistake would read, and could acknowledge, the real events of the machine it
// runs on. Two guards prevent that:
//
//   - [Loopback] checks an endpoint before it is used;
//   - [Transport] and [DialContext] refuse, at the moment of dialling, every
//     address that is not loopback, for any configuration.
//
// Both accept IP literals only. A name, localhost too, would first be sent to
// a resolver, and the resolver is itself an address outside the test.
package guard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"testing"
	"time"
)

// None is the metadata endpoint that stands for "there is no metadata
// service". It is never dialled, so [Loopback] accepts it.
const None = "none"

// ErrNotLoopback is the error of a connection, or an endpoint, refused because
// its address is not a loopback IP literal.
var ErrNotLoopback = errors.New("not a loopback address")

// Loopback returns the endpoint as it was given and fails the test at once
// unless it is [None] or an http or https URL whose host is a loopback IP
// literal, such as http://127.0.0.1:8080/vms/a or http://[::1]:8080.
func Loopback(t testing.TB, endpoint string) string {
	t.Helper()
	if err := check(endpoint); err != nil {
		t.Fatalf("metadata endpoint %q: %v: tests may use a loopback URL or %q only", endpoint, err, None)
	}
	return endpoint
}

func check(endpoint string) error {
	if endpoint == None {
		return nil
	}
	u, err := url.Parse(endpoint)
	if err != nil {
		return err
	}
	if u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("not an http or https URL")
	}
	return checkHost(u.Hostname())
}

// checkHost wants a literal: netip does not resolve, so nothing is sent to
// find out.
func checkHost(host string) error {
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return fmt.Errorf("%w: %q is not an IP literal", ErrNotLoopback, host)
	}
	if !ip.Unmap().IsLoopback() {
		return fmt.Errorf("%w: %s", ErrNotLoopback, ip)
	}
	return nil
}

// Transport returns a new HTTP transport that dials through [DialContext] and
// uses no proxy. The caller closes its idle connections when the test ends.
func Transport() *http.Transport {
	return &http.Transport{
		DialContext:     DialContext,
		IdleConnTimeout: 10 * time.Second,
	}
}

// DialContext connects to address, an IP literal with a port, if it is
// loopback. Anything else gets an error that wraps [ErrNotLoopback], before
// any packet is sent and before any name is looked up.
func DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("dial %s %s: %w", network, address, err)
	}
	if err := checkHost(host); err != nil {
		return nil, fmt.Errorf("dial %s %s: %w", network, address, err)
	}
	var d net.Dialer
	return d.DialContext(ctx, network, address)
}
