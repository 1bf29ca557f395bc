package storage

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// Addresses are where Listen serves. An empty one is a port of 127.0.0.1 that
// the system chooses.
type Addresses struct {
	Blob, Queue string
}

// listeners are the HTTP doors that are open.
type listeners struct {
	mu      sync.Mutex
	servers []*http.Server
	loops   sync.WaitGroup // one for each listener
	conns   sync.WaitGroup // one for each connection
}

// Listen serves both services over HTTP on loopback addresses and returns the
// connection string for clients in any process. It refuses an address that
// other machines could reach. Close ends it.
func (s *Server) Listen(at Addresses) (connectionString string, err error) {
	blob, queue, err := listenBoth(at)
	if err != nil {
		return "", err
	}
	s.doors.open(blob, s.Blob())
	s.doors.open(queue, s.Queue())
	return s.ConnectionStringAt(s.endpoints("http", blob.Addr().String(), queue.Addr().String())), nil
}

// ListenTLS is Listen over TLS, for clients with tokens. Like Azure Storage it
// speaks HTTP/1.1 only. A server may have doors of both kinds; Close ends all of
// them.
func (s *Server) ListenTLS(at Addresses, config *tls.Config) (Endpoints, error) {
	blob, queue, err := listenBoth(at)
	if err != nil {
		return Endpoints{}, err
	}
	config = config.Clone()
	config.NextProtos = []string{"http/1.1"}
	s.doors.open(tls.NewListener(blob, config), s.Blob())
	s.doors.open(tls.NewListener(queue, config), s.Queue())
	return s.endpoints("https", blob.Addr().String(), queue.Addr().String()), nil
}

func listenBoth(at Addresses) (blob, queue net.Listener, err error) {
	if blob, err = listenLoopback(at.Blob); err != nil {
		return nil, nil, fmt.Errorf("listen for the blob service: %w", err)
	}
	if queue, err = listenLoopback(at.Queue); err != nil {
		_ = blob.Close()
		return nil, nil, fmt.Errorf("listen for the queue service: %w", err)
	}
	return blob, queue, nil
}

// Close ends what Listen and ListenTLS started: it cuts all connections and returns when
// their goroutines have ended. The account itself stays as it is.
func (s *Server) Close() error { return s.doors.close() }

func listenLoopback(addr string) (net.Listener, error) {
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	tcp, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		return nil, err
	}
	if !tcp.IP.IsLoopback() {
		return nil, fmt.Errorf("%s is not a loopback address: the emulator has no business on a network", addr)
	}
	return net.ListenTCP("tcp", tcp)
}

// open serves h on l until close.
func (d *listeners) open(l net.Listener, h http.Handler) {
	ctx, cancel := context.WithCancel(context.Background())
	srv := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: time.Minute,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnState:         d.track,
	}
	d.mu.Lock()
	d.servers = append(d.servers, srv)
	d.mu.Unlock()
	d.loops.Go(func() {
		defer cancel()
		_ = srv.Serve(l) // returns when close closes the server
	})
}

// track counts the connections whose goroutines are alive.
func (d *listeners) track(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		d.conns.Add(1)
	case http.StateClosed, http.StateHijacked:
		d.conns.Done()
	case http.StateActive, http.StateIdle:
	}
}

func (d *listeners) close() error {
	d.mu.Lock()
	servers := d.servers
	d.servers = nil
	d.mu.Unlock()
	var errs []error
	for _, srv := range servers {
		errs = append(errs, srv.Close())
	}
	d.loops.Wait()
	d.conns.Wait()
	return errors.Join(errs...)
}
