package monitor

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/host/connections"
	"github.com/spotworker/spotworker/internal/telemetry/health"
)

// Time-outs of the server. Probes and scrapes are short, and come from nearby.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 10 * time.Second
	writeTimeout      = 30 * time.Second
	idleTimeout       = 10 * time.Second
	maxHeader         = 16 << 10

	// closeGrace is how long an active request may take when the worker ends.
	closeGrace = time.Second
)

// maxConnections bounds the open connections. Two health probes and two scrapers need four.
const maxConnections = 64

// Config has the content and the address of a server.
type Config struct {
	// Address is HOST:PORT; port 0 is any free port.
	Address string

	// Health returns the health of this moment.
	Health func() health.Report

	// Metrics answers requests for /metrics.
	Metrics http.Handler

	// Log receives a line when the health that a probe sees changes.
	Log *slog.Logger
}

// Server serves requests until it is closed.
type Server struct {
	listener net.Listener
	http     *http.Server
	serving  sync.WaitGroup
}

// Listen starts a server. It returns the system's error if the address is not
// available.
func Listen(c Config) (*Server, error) {
	listener, err := net.Listen("tcp", c.Address) //nolint:noctx // listening on an IP address does not wait
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", c.Address, err)
	}
	mux := http.NewServeMux()
	health := &healthz{check: c.Health, log: c.Log, healthy: true}
	mux.Handle("GET /healthz", health)
	mux.HandleFunc("GET /livez", health.serveLive)
	mux.Handle("GET /metrics", c.Metrics)
	s := &Server{listener: listener, http: &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeader,
		ErrorLog:       slog.NewLogLogger(c.Log.Handler(), slog.LevelDebug), // broken connections are theirs
	}}
	connections.Limit(s.http, maxConnections)
	s.serving.Go(func() { _ = s.http.Serve(listener) }) // returns when Close closes the listener
	return s, nil
}

// Address returns the address that the server listens on, with the port that
// was chosen.
func (s *Server) Address() string { return s.listener.Addr().String() }

// Close stops the server. Active requests have a second to finish.
func (s *Server) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeGrace)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		_ = s.http.Close() // cuts off the remaining requests
	}
	s.serving.Wait()
}
