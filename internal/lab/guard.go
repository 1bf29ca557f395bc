package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
)

// ErrNotLocal says that a process was not started because it could have reached
// something that is not on this machine.
var ErrNotLocal = errors.New("not a loopback address")

// checkMetadata reports why a worker must not be started with that metadata
// endpoint. On a VM in Azure the default one is the VM's real metadata service:
// a worker of the lab that asked it could read, and acknowledge, real events.
// "none" is refused too, since the lab's workers are to get notices.
func checkMetadata(endpoint string) error {
	if err := checkLoopback(endpoint); err != nil {
		return fmt.Errorf("metadata endpoint %q: %w", endpoint, err)
	}
	return nil
}

// CheckStorage reports why a process of the lab must not be given that connection string:
// it names no endpoint for one of the services, and so means the public cloud,
// or one that is not on this machine. The error does not repeat the string,
// which holds a key.
func CheckStorage(connectionString string) error {
	named := map[string]string{}
	for part := range strings.SplitSeq(connectionString, ";") {
		if key, value, ok := strings.Cut(part, "="); ok {
			named[strings.ToLower(strings.TrimSpace(key))] = value
		}
	}
	for _, key := range []string{"BlobEndpoint", "QueueEndpoint"} {
		if err := checkLoopback(named[strings.ToLower(key)]); err != nil {
			return fmt.Errorf("%s of the connection string: %w", key, err)
		}
	}
	return nil
}

// checkLoopback accepts IP literals only: a name, localhost too, would first be
// sent to a resolver.
func checkLoopback(endpoint string) error {
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "http" || u.User != nil {
		return fmt.Errorf("%w: want http://127.0.0.1:PORT/", ErrNotLocal)
	}
	address, err := netip.ParseAddr(u.Hostname())
	if err != nil || !address.IsLoopback() {
		return ErrNotLocal
	}
	return nil
}
