package lab

import (
	"errors"
	"fmt"
	"net"
	"syscall"
)

// PortTakenError says that something else listens on a port.
type PortTakenError struct {
	Port int
	Err  error
}

func (e *PortTakenError) Error() string {
	return fmt.Sprintf("port %d of 127.0.0.1 is taken, perhaps by another lab up or by Azurite: end that, or choose another port", e.Port)
}

// Unwrap returns what the system said.
func (e *PortTakenError) Unwrap() error { return e.Err }

// portTaken returns a [*PortTakenError] in place of an error that means that.
func portTaken(err error) error {
	op, ok := errors.AsType[*net.OpError](err)
	if !ok || !errors.Is(err, syscall.EADDRINUSE) {
		return err
	}
	port := 0
	if at, ok := op.Addr.(*net.TCPAddr); ok {
		port = at.Port
	}
	return &PortTakenError{Port: port, Err: err}
}

// loopback is the address of a port, 0 for one that the system chooses.
func loopback(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
