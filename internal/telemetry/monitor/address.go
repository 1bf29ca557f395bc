package monitor

import (
	"fmt"
	"net"
	"strconv"
)

const (
	// Auto is the address derived from the worker's instance: a free port of
	// loopback if the instance is not a number.
	Auto = "auto"

	// None disables the server.
	None = "none"

	// BasePort is the port of instance 0; others follow it in order.
	BasePort = 8810

	// MaxInstance is the largest instance with a fixed port.
	MaxInstance = 99
)

// port returns the port of an instance, 0 for an instance that is no number.
func port(instance string) int {
	n, err := strconv.ParseUint(instance, 10, 16)
	if err != nil || n > MaxInstance {
		return 0
	}
	return BasePort + int(n)
}

// Address returns the address to listen on that a person asked for, as HOST:PORT,
// [Auto] or [None]; empty for none. Instance tells the workers on one VM apart.
func Address(asked, instance string) (string, error) {
	switch asked {
	case None:
		return "", nil
	case Auto:
		return net.JoinHostPort("127.0.0.1", strconv.Itoa(port(instance))), nil
	}
	_, number, err := net.SplitHostPort(asked)
	if err != nil {
		return "", fmt.Errorf("%q is not an address: give HOST:PORT as in 127.0.0.1:%d, %s or %s", asked, BasePort, Auto, None)
	}
	if _, err := strconv.ParseUint(number, 10, 16); err != nil {
		return "", fmt.Errorf("%q has no port from 0 to 65535", asked)
	}
	return asked, nil
}
