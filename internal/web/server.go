package web

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"time"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/host/connections"
	"github.com/spotworker/spotworker/internal/overview"
	"github.com/spotworker/spotworker/internal/overview/spent"
)

// Config says the deployment and how to show it.
type Config struct {
	// Title names the deployment, and Version this program.
	Title, Version string

	// Client reads single jobs.
	Client *client.Client

	// Read reads the deployment, as [overview.ReadEach] does. Default: the deployment of
	// Client.
	Read Reader

	// Explain returns an error of storage for people. Required.
	Explain func(error) string

	// Listen is the address to serve at, which must be a loopback address, unless UserHeader is set.
	// Default: 127.0.0.1 with a free port.
	Listen string

	// UserHeader is the header in which a proxy before the server names the person who has signed
	// in. The page is then for all of them, and read-only. The proxy must replace the header in
	// requests, and nobody else may reach the server. Empty without a proxy.
	UserHeader string

	// AllowChanges lets the page change the deployment. Control is the name of the container
	// with the requests to workers, for people.
	AllowChanges bool
	Control      string

	// Price prices the time of jobs, in Currency, on VMs with so many slots; nil without prices.
	// Slots is how many a VM has; 0 takes the number from the heartbeats.
	Price    func(sum spent.Sum, slots float64) spent.Money
	Currency string
	Slots    int

	// Every is the time between two reads while a page is open. Default 5 s.
	Every time.Duration
}

// Reader reads a deployment. It calls each with every job, and may first call early with queues and
// workers.
type Reader func(ctx context.Context, each func(client.Job), early func(overview.Snapshot)) (overview.Snapshot, error)

// Server serves the page.
type Server struct {
	config     Config
	listener   net.Listener
	guard      *guard
	feed       *feed
	jobs       *jobReader
	waiting    *waitingReader
	selections selections
	pages      *template.Template
	changes    *changes
}

//go:embed static
var static embed.FS

// contentID is in the addresses of the style and the script, so that browsers may keep them.
var contentID = func() string {
	all := sha256.New()
	for _, name := range []string{"script.js", "style.css"} {
		content, err := static.ReadFile("static/" + name)
		if err != nil {
			panic(err) // it is part of the program
		}
		_, _ = all.Write(content)
	}
	return hex.EncodeToString(all.Sum(nil)[:8])
}()

//go:embed templates
var templates embed.FS

// Listen opens the listener. It calls no storage.
func Listen(c Config) (*Server, error) {
	if c.Listen == "" {
		c.Listen = "127.0.0.1:0"
	}
	if c.Every <= 0 {
		c.Every = 5 * time.Second
	}
	if c.Read == nil {
		c.Read = func(ctx context.Context, each func(client.Job), early func(overview.Snapshot)) (overview.Snapshot, error) {
			return overview.ReadEach(ctx, c.Client, each, early)
		}
	}
	at, err := net.ResolveTCPAddr("tcp", c.Listen)
	if err != nil {
		return nil, err
	}
	if err := c.check(at.IP); err != nil {
		return nil, err
	}
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", c.Listen)
	if err != nil {
		return nil, err
	}
	s := &Server{config: c, listener: listener, guard: newGuard(listener.Addr().(*net.TCPAddr), c.UserHeader), changes: newChanges()}
	s.feed = newFeed(c.Every, s.read)
	s.jobs = &jobReader{client: c.Client, explain: c.Explain, keep: c.Every * 9 / 10}
	s.waiting = &waitingReader{client: c.Client, keep: c.Every * 9 / 10}
	s.pages = template.Must(template.New("").Funcs(s.functions()).ParseFS(templates, "templates/*.html"))
	return s, nil
}

// headerName is the form of a header's name.
var headerName = regexp.MustCompile(`^[A-Za-z0-9-]+$`)

// check returns an error for who would reach the page.
func (c Config) check(at net.IP) error {
	switch {
	case c.UserHeader == "" && !at.IsLoopback():
		return fmt.Errorf("%s is not a loopback address, and the page is for this machine alone: ssh -L forwards it, and --read-only serves it "+
			"to a proxy that signs people in", c.Listen)
	case c.UserHeader != "" && c.AllowChanges:
		return errors.New("a page for several people is read-only: it cannot allow changes")
	case c.UserHeader != "" && !headerName.MatchString(c.UserHeader):
		return fmt.Errorf("%q is not the name of a header", c.UserHeader)
	}
	return nil
}

// read reads the deployment, with errors in words.
func (s *Server) read(ctx context.Context, each func(client.Job), early func(overview.Snapshot)) (overview.Snapshot, error) {
	found, err := s.config.Read(ctx, each, func(part overview.Snapshot) {
		part.Explain(s.config.Explain)
		early(part)
	})
	found.Explain(s.config.Explain)
	if err != nil {
		err = errors.New(s.config.Explain(err))
	}
	return found, err
}

// Address returns the address to open, with the token, which works once. Behind a proxy it is the
// address for the proxy, without a token.
func (s *Server) Address() string {
	if s.config.UserHeader != "" {
		return "http://" + s.guard.hosts[0] + "/"
	}
	return "http://" + s.guard.hosts[0] + "/?token=" + url.QueryEscape(s.guard.token)
}

// maxConnections bounds the open connections. Each tab holds one for its stream and opens a few for
// what it loads: 256 are dozens of tabs.
const maxConnections = 256

// Serve serves until ctx ends.
func (s *Server) Serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	server := &http.Server{
		Handler: s.handler(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		WriteTimeout: 2 * readLimit,                                     // streams and outputs have a time of their own
		BaseContext:  func(net.Listener) context.Context { return ctx }, // streams end with it
	}
	connections.Limit(server, maxConnections)
	read := make(chan struct{})
	go func() { defer close(read); s.feed.run(ctx) }()
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	err := server.Serve(s.listener)
	stop()
	cancel()
	s.changes.end()
	<-read
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// handler routes requests behind the guard.
func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /static/", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("of") == contentID {
			w.Header().Set("Cache-Control", "private, max-age=31536000, immutable")
		}
		http.FileServerFS(static).ServeHTTP(w, r)
	})
	mux.HandleFunc("GET /favicon.ico", func(w http.ResponseWriter, r *http.Request) { // asked for by a page without the layout
		http.ServeFileFS(w, r, static, "static/icon.svg")
	})
	mux.HandleFunc("GET /stream", s.stream)
	mux.HandleFunc("GET /rows", s.rows)
	mux.HandleFunc("GET /job/{id}/result", s.result)
	mux.HandleFunc("GET /job/{id}/log", s.log)
	mux.HandleFunc("GET /job/{id}/output", s.output)
	if s.config.AllowChanges {
		mux.HandleFunc("GET /change", s.asked)
		mux.HandleFunc("POST /change", s.make)
		mux.HandleFunc("POST /ask", s.askedOfRows)
		mux.HandleFunc("POST /put", s.put)
	}
	mux.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) {
		p := s.page(r.Context(), r.URL)
		p.User = s.guard.signedIn(r)
		s.show(w, p)
	})
	return s.guard.wrap(mux, s.refuse)
}

// refuse says why a request is refused.
func (s *Server) refuse(w http.ResponseWriter, why string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(http.StatusForbidden)
	_, _ = io.WriteString(w, why+"\n")
}

// page is the data of the templates.
type page struct {
	view
	Status  int // of HTTP
	Name    string
	Title   string
	Tab     string
	Address string
	Body    any

	Deployment, Version string
	Every               time.Duration
	Form                string // the token of forms; empty if the page changes nothing
	User                string // who has signed in to the proxy; empty without one
}

// show writes a page.
func (s *Server) show(w http.ResponseWriter, p *page) {
	html, err := s.render("layout", p)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(p.Status)
	_, _ = w.Write([]byte(html)) //nolint:gosec // made by html/template
}

func (s *Server) render(name string, data any) (template.HTML, error) {
	var b bytes.Buffer
	err := s.pages.ExecuteTemplate(&b, name, data)
	return template.HTML(b.String()), err //nolint:gosec // made by html/template
}

// region renders a part of a page that changes while the page is open.
func (s *Server) region(name string, p *page) (template.HTML, error) {
	html, err := s.render(name, p)
	return template.HTML(`<div id="` + name + `" class="region">` + string(html) + `</div>`), err //nolint:gosec // made by html/template
}

// regions are the parts of the pages that change, by the page's name.
var regions = map[string][]string{
	"now":     {"read", "problems", "tiles", "charts", "queues", "kinds", "running", "evictions"},
	"jobs":    {"read", "counts"},
	"job":     {"read", "job-head", "job-story", "job-facts", "job-log"},
	"waiting": {"read", "waiting"},
	"workers": {"read", "steer", "vms"},
	"poison":  {"read", "groups"},
	"costs":   {"read", "costs-all"},
	"changed": {"read", "outcome"},
	"put":     {"read"},
	"missing": {"read"},
}

// ages are the texts of times, which the script keeps right.
var ages = regexp.MustCompile(`(<time [^>]*>)[^<]*`)

// heartbeatEvery is how often a stream without news says that it is there.
const heartbeatEvery = 15 * time.Second

// writeLimit is how long a browser may take to read a part of a stream.
const writeLimit = 30 * time.Second

// stream sends the regions of a page that changed, after each read. If there are mostStreams others,
// it sends all regions and ends; the browser asks again after the time between two reads.
func (s *Server) stream(w http.ResponseWriter, r *http.Request) {
	at, err := url.Parse(r.URL.Query().Get("page"))
	if err != nil || at.IsAbs() || at.Host != "" {
		s.refuse(w, "This is no page.")
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	out, ctx := http.NewResponseController(w), r.Context()
	send := func(text string) bool {
		_ = out.SetWriteDeadline(time.Now().Add(writeLimit)) // a recorder in tests has none
		_, err := io.WriteString(w, text)
		return err == nil && out.Flush() == nil
	}
	stays, leave := s.feed.join()
	defer leave()
	sent := map[string][sha256.Size]byte{}
	for {
		_, next := s.feed.now()
		changed, err := s.differences(s.page(ctx, at), sent)
		if err != nil {
			return
		}
		data, err := json.Marshal(map[string]any{"regions": changed, "ends": !stays})
		if err != nil || !stays && !send(fmt.Sprintf("retry: %d\n", s.config.Every.Milliseconds())) {
			return
		}
		if len(changed) > 0 && !send("data: "+string(data)+"\n\n") || !stays {
			return
		}
		if !awaitRead(ctx, next, send) {
			return
		}
	}
}

// awaitRead waits for the next read, with a sign of life for the browser from time to time. It
// reports false if the stream has ended.
func awaitRead(ctx context.Context, next <-chan struct{}, send func(string) bool) bool {
	for {
		select {
		case <-next:
			return true
		case <-time.After(heartbeatEvery):
			if !send(": here\n\n") {
				return false
			}
		case <-ctx.Done():
			return false
		}
	}
}

// differences returns the regions of a page that differ from the sent ones.
func (s *Server) differences(p *page, sent map[string][sha256.Size]byte) (map[string]template.HTML, error) {
	changed := map[string]template.HTML{}
	for _, name := range regions[p.Name] {
		html, err := s.region(name, p)
		if err != nil {
			return nil, err
		}
		if sum := sha256.Sum256(ages.ReplaceAll([]byte(html), []byte("$1"))); sent[name] != sum {
			sent[name], changed[name] = sum, html
		}
	}
	return changed, nil
}
