package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
)

// ErrNotLocal reports that a process was not started because it could have
// reached something beyond this machine.
var ErrNotLocal = errors.New("not a loopback address")

// checkMetadata returns an error unless a metadata endpoint is on loopback. A
// worker of the lab that used the default endpoint on a VM in Azure could read
// and acknowledge the VM's real events. "none" is refused too: the lab's workers
// must get notices.
func checkMetadata(endpoint string) error {
	if err := checkLoopback(endpoint); err != nil {
		return fmt.Errorf("metadata endpoint %q: %w", endpoint, err)
	}
	return nil
}

// CheckStorage returns an error unless a connection string names endpoints on
// loopback for blobs and queues. A service without an endpoint is the one in the
// public cloud. The error does not repeat the string, which holds a key.
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

// checkLoopback accepts IP literals only: any name, even localhost, would first
// go to a resolver.
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
