package web

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/client/clienttest"
	"github.com/spotworker/spotworker/internal/overview"
	"github.com/spotworker/spotworker/internal/overview/spent"
	"github.com/spotworker/spotworker/job"
)

// hostile is a text that a page must neither run nor show as it is.
const hostile = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>\u202egpj.exe\x00"

// long is a text of a MiB.
var long = strings.Repeat("x", 1<<20)

// rig is a server of a deployment that a test describes.
type rig struct {
	*Server
	handler http.Handler
	reads   atomic.Int64
	jobs    atomic.Pointer[[]client.Job]
	down    atomic.Bool
}

// setup starts a server, whose feed reads until the test ends.
func setup(t *testing.T, every time.Duration, jobs ...client.Job) *rig {
	t.Helper()
	r := &rig{}
	r.jobs.Store(&jobs)
	r.start(t, Config{Title: hostile, Client: clienttest.New(t, job.Kinds{"echo": job.HandlerFunc(echo)}), Explain: error.Error,
		Every: every, Read: r.read})
	return r
}

// setupOf starts a server.
func setupOf(t *testing.T, c Config) *rig {
	t.Helper()
	r := &rig{}
	r.start(t, c)
	return r
}

func (r *rig) start(t *testing.T, c Config) {
	t.Helper()
	s, err := Listen(c)
	if err != nil {
		t.Fatal(err)
	}
	r.Server, r.handler = s, s.handler()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); s.feed.run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-ended
		s.changes.end()
		_ = s.listener.Close()
	})
}

func echo(ctx context.Context, j *job.Job) ([]byte, error) {
	job.Logger(ctx).ErrorContext(ctx, hostile)
	job.Logger(ctx).InfoContext(ctx, "long", slog.String("text", long))
	j.Report(job.Progress{Fraction: 0.5, Text: hostile})
	return []byte(hostile), nil
}

func (r *rig) read(_ context.Context, each func(client.Job), _ func(overview.Snapshot)) (overview.Snapshot, error) {
	r.reads.Add(1)
	if r.down.Load() {
		return overview.Snapshot{}, errors.New("connection refused " + hostile)
	}
	s := overview.Snapshot{At: time.Now(), Jobs: overview.Jobs{ByStatus: map[client.Status]int{}}}
	for _, j := range *r.jobs.Load() {
		s.Jobs.ByStatus[j.Status]++
		if j.Status == client.StatusRunning {
			s.Jobs.Running = append(s.Jobs.Running, j)
		}
		each(j)
	}
	return s, nil
}

// get asks for a page as the signed-in browser.
func (r *rig) get(t *testing.T, path string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	t.Helper()
	return r.serve(httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil), change)
}

// serve makes a request as the signed-in browser, with changes.
func (r *rig) serve(request *http.Request, change []func(*http.Request)) *httptest.ResponseRecorder {
	request.Host = r.guard.hosts[0]
	request.AddCookie(&http.Cookie{Name: r.guard.cookie, Value: r.guard.session})
	for _, c := range change {
		c(request)
	}
	w := httptest.NewRecorder()
	r.handler.ServeHTTP(w, request)
	return w
}

func withHeader(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

// TestGuard: only the signed-in browser gets an answer, at the server's own address and from
// its own pages.
func TestGuard(t *testing.T) {
	r := setup(t, time.Hour)
	own := r.guard.hosts[0]
	for _, row := range []struct {
		name   string
		change func(*http.Request)
		want   int
	}{
		{"its own page", func(*http.Request) {}, http.StatusOK},
		{"its own script", withHeader("Origin", "http://"+own), http.StatusOK},
		{"localhost", func(r *http.Request) { r.Host = strings.Replace(own, "127.0.0.1", "localhost", 1) }, http.StatusOK},
		{"another site", withHeader("Origin", "https://evil.example"), http.StatusForbidden},
		{"a sandboxed frame", withHeader("Origin", "null"), http.StatusForbidden},
		{"DNS rebinding", func(r *http.Request) { r.Host = "evil.example:80" }, http.StatusForbidden},
		{"another port", func(r *http.Request) { r.Host = "127.0.0.1:1" }, http.StatusForbidden},
		{"no cookie", func(r *http.Request) { r.Header.Del("Cookie") }, http.StatusForbidden},
		{"a wrong cookie", withHeader("Cookie", r.guard.cookie+"=x"), http.StatusForbidden},
		{"a form without origin", func(r *http.Request) { r.Method = http.MethodPost }, http.StatusForbidden},
		{"a form of another site", func(r *http.Request) { r.Method = http.MethodPost; r.Header.Set("Origin", "https://evil.example") },
			http.StatusForbidden},
		{"a change", func(r *http.Request) { r.Method = http.MethodPost; r.Header.Set("Origin", "http://"+own) },
			http.StatusMethodNotAllowed},
	} {
		w := r.get(t, "/", row.change)
		if w.Code != row.want {
			t.Errorf("%s: status %d, want %d", row.name, w.Code, row.want)
		}
		h := w.Header()
		if csp := h.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") {
			t.Errorf("%s: policy %q", row.name, csp)
		}
		if h.Get("Cache-Control") != "no-store" || h.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: headers %v", row.name, h)
		}
	}
}

// TestToken: the address signs in one browser, once.
func TestToken(t *testing.T) {
	r := setup(t, time.Hour)
	open := func(address string) *httptest.ResponseRecorder {
		return r.get(t, strings.TrimPrefix(address, "http://"+r.guard.hosts[0]), func(r *http.Request) { r.Header.Del("Cookie") })
	}
	address := r.Address()
	if w := open("/?token=wrong"); w.Code != http.StatusForbidden || w.Header().Get("Set-Cookie") != "" {
		t.Errorf("a wrong token: %d", w.Code)
	}
	w := open(address)
	cookie := w.Header().Get("Set-Cookie")
	for _, want := range []string{"HttpOnly", "SameSite=Strict", r.guard.session} {
		if !strings.Contains(cookie, want) {
			t.Errorf("the cookie %q has no %s", cookie, want)
		}
	}
	if w := open(address); w.Code != http.StatusForbidden || w.Header().Get("Set-Cookie") != "" {
		t.Errorf("a used token: %d", w.Code)
	}
	if w := open("/?token="); w.Code != http.StatusForbidden {
		t.Errorf("an empty token after its use: %d", w.Code)
	}
}

// TestListen: addresses that other machines reach are refused.
func TestListen(t *testing.T) {
	for _, address := range []string{"0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:80"} {
		if s, err := Listen(Config{Listen: address}); err == nil {
			_ = s.listener.Close()
			t.Errorf("Listen at %s succeeded", address)
		}
	}
	for _, row := range []struct {
		c  Config
		ok bool
	}{{Config{UserHeader: "X-Forwarded-User"}, true}, {Config{UserHeader: "X-Forwarded-User", AllowChanges: true}, false},
		{Config{UserHeader: "X User"}, false}} {
		if err := row.c.check(net.IPv4zero); (err == nil) != row.ok {
			t.Errorf("check of %+v = %v", row.c, err)
		}
	}
}

// TestTeam: behind a proxy everyone whom it names sees the page, under any host, and nobody changes
// anything. Who comes without the proxy's header sees nothing.
func TestTeam(t *testing.T) {
	const header = "X-MS-CLIENT-PRINCIPAL-NAME"
	r := setupOf(t, Config{Title: "team", Client: clienttest.New(t, job.Kinds{}), Explain: error.Error, Every: time.Hour, UserHeader: header})
	serve := func(method, path string, change ...func(*http.Request)) *httptest.ResponseRecorder {
		request := httptest.NewRequestWithContext(t.Context(), method, path, nil)
		request.Host = "jobs.example"
		for _, c := range change {
			c(request)
		}
		w := httptest.NewRecorder()
		r.handler.ServeHTTP(w, request)
		return w
	}
	ann := withHeader(header, "ann@example.com <b>")
	w := serve(http.MethodGet, "/", ann)
	if body := w.Body.String(); w.Code != http.StatusOK || !strings.Contains(body, "ann@example.com &lt;b&gt;") ||
		strings.Contains(body, "--allow-changes") {
		t.Errorf("GET / = %d, want a page with the user:\n%s", w.Code, body)
	}
	twice := func(r *http.Request) { r.Header.Add(header, "forged"); r.Header.Add(header, "ann") }
	for name, change := range map[string]func(*http.Request){
		"no header": func(*http.Request) {}, "another header": withHeader("X-Forwarded-User", "ann"), "two": twice,
		"the cookie": func(q *http.Request) { q.AddCookie(&http.Cookie{Name: r.guard.cookie, Value: r.guard.session}) },
	} {
		for _, path := range []string{"/", "/static/style.css", "/stream?page=/", "/?token=" + r.guard.token} {
			if w := serve(http.MethodGet, path, change); w.Code != http.StatusForbidden {
				t.Errorf("%s: GET %s = %d, want 403", name, path, w.Code)
			}
		}
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch} {
		for _, path := range []string{"/", "/change", "/put", "/job/a/log"} {
			if w := serve(method, path, ann); w.Code != http.StatusMethodNotAllowed {
				t.Errorf("%s %s = %d, want 405", method, path, w.Code)
			}
		}
	}
	if w := serve(http.MethodGet, "/change?do=cancel&id=b", ann); w.Code != http.StatusNotFound {
		t.Errorf("GET /change = %d, want 404", w.Code)
	}
	if address := r.Address(); strings.Contains(address, "token") {
		t.Errorf("the address for the proxy is %s, want no token", address)
	}
}

// poisoned is a job with a hostile text in every field that a job or an operator sets.
func poisoned(id string, status client.Status) client.Job {
	now := time.Now()
	return client.Job{ID: id, Kind: hostile, Group: hostile, Status: status, Text: hostile + strings.Repeat("x", 1<<20), Reason: hostile,
		Owner: hostile, Fraction: 0.5, Deliveries: 1, CreatedAt: now, UpdatedAt: now, EndedAt: now, ReadAt: now}
}

// TestHostileTexts: no page has a tag, a quote that ends an attribute, or a mark that reverses
// text from storage, and none becomes long by a long text.
func TestHostileTexts(t *testing.T) {
	r := setup(t, time.Hour, poisoned("a", client.StatusPoison), poisoned("b", client.StatusRunning), poisoned("c", client.StatusDone))
	id, err := r.config.Client.Put(t.Context(), client.Spec{ID: "real", Kind: "echo"})
	if err == nil {
		_, err = r.config.Client.Wait(t.Context(), id)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/", "/jobs", "/jobs?kind=%3Cscript%3E&id=%22%3E%3Cimg+src=x%3E", "/rows?from=0", "/workers",
		"/poison", "/costs", "/job/real", "/job/%3Cscript%3E", "/%3Cscript%3E", "/stream-of-nothing"} {
		body := r.get(t, path).Body.String()
		for _, bad := range []string{"<script>", "<img", "\u202e", "\x00", "onerror=alert(1)>"} {
			if strings.Contains(body, bad) {
				t.Errorf("%s has %q", path, bad)
			}
		}
		if len(body) > 200_000 {
			t.Errorf("%s has %d bytes", path, len(body))
		}
	}
	w := r.get(t, "/job/real/result")
	if body := w.Body.String(); body != hostile || w.Header().Get("Content-Type") != "application/octet-stream" ||
		!strings.HasPrefix(w.Header().Get("Content-Disposition"), "attachment") {
		t.Errorf("the result is %q with %v, want a file", body, w.Header())
	}
	if body := r.get(t, "/job/real/log").Body.String(); !strings.Contains(body, "alert(1)") || strings.ContainsAny(body, "\u202e\x00") {
		t.Errorf("the log is %q, want the line without what a terminal obeys", body)
	}
}

// follow reads the events of a page's stream.
func (r *rig) follow(t *testing.T, page string) (next func() map[string]string) {
	t.Helper()
	server := httptest.NewUnstartedServer(r.handler)
	server.Start()
	ctx, cancel := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/stream?page="+page, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Host = r.guard.hosts[0]
	request.AddCookie(&http.Cookie{Name: r.guard.cookie, Value: r.guard.session})
	response, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = response.Body.Close()
		server.Close()
	})
	lines := bufio.NewReader(response.Body)
	return func() map[string]string {
		t.Helper()
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if data, ok := strings.CutPrefix(line, "data: "); ok {
				var event struct{ Regions map[string]string }
				if err := json.Unmarshal([]byte(data), &event); err != nil {
					t.Fatal(err)
				}
				return event.Regions
			}
		}
	}
}

// TestDifferences: a stream sends all regions once, and then the changed regions; many tabs make
// one read.
func TestDifferences(t *testing.T) {
	j := poisoned("b", client.StatusRunning)
	r := setup(t, time.Hour, j)
	next := r.follow(t, "/")
	for range 5 {
		r.follow(t, "/jobs")()
	}
	if first := next(); len(first) != len(regions["now"]) {
		t.Errorf("the first event has %d regions, want %d", len(first), len(regions["now"]))
	}
	if n := r.reads.Load(); n != 1 {
		t.Errorf("6 tabs made %d reads, want 1", n)
	}
	j.Fraction = 0.75
	r.jobs.Store(&[]client.Job{j})
	r.feed.again()
	changed := next()
	if !strings.Contains(changed["running"], "75%") || changed["queues"] != "" || changed["kinds"] != "" {
		t.Errorf("changed regions are %v, want running and not queues and kinds", changed)
	}
}

// TestOutage: while storage does not answer, a page says since when and shows the last state.
func TestOutage(t *testing.T) {
	r := setup(t, time.Hour, poisoned("b", client.StatusRunning))
	next := r.follow(t, "/")
	next()
	r.down.Store(true)
	r.feed.again()
	said := func(want string) (read string) {
		for range 3 { // an event of a read that had begun before may come first
			if read = next()["read"]; strings.Contains(read, want) {
				break
			}
		}
		return read
	}
	if read := said("Storage stopped"); !strings.Contains(read, "Storage stopped answering") || strings.Contains(read, "<script>") {
		t.Errorf("the event says %q, want since when", read)
	}
	body := r.get(t, "/").Body.String()
	if !strings.Contains(body, "Storage stopped answering") || !strings.Contains(body, `href="/job/b"`) {
		t.Error("the page lacks the outage or the last state")
	}
	r.down.Store(false)
	r.feed.again()
	if read := said("Live"); !strings.Contains(read, "Live") {
		t.Errorf("after the outage the event says %q", read)
	}
}

// TestWindows: a window of 100,000 jobs is small, sorted and filtered.
func TestWindows(t *testing.T) {
	var jobs []client.Job
	for i := range 100_000 {
		jobs = append(jobs, client.Job{ID: fmt.Sprintf("job-%06d", i), Kind: []string{"a", "b"}[i%2], Status: client.StatusDone,
			ReadAt: time.Now()})
	}
	r := setup(t, time.Hour, jobs...)
	w := r.get(t, "/rows?kind=b&sort=id&from=49990&count=1000")
	body := w.Body.String()
	if w.Header().Get("Rows-Total") != "50000" || strings.Count(body, "<tr ") != 10 || !strings.Contains(body, "job-099999") {
		t.Errorf("total %s, %d rows, want 50000 and 10", w.Header().Get("Rows-Total"), strings.Count(body, "<tr "))
	}
	if n := strings.Count(r.get(t, "/rows?count=100000").Body.String(), "<tr "); n != mostRows {
		t.Errorf("a window has %d rows, want %d", n, mostRows)
	}
	began := time.Now()
	page := r.get(t, "/jobs").Body.Len()
	t.Logf("first page of 100,000 jobs: %d bytes in %s", page, time.Since(began).Round(time.Millisecond))
}

// TestKindsShareTime: each kind has its part of the handlers' time, also of time that was lost.
func TestKindsShareTime(t *testing.T) {
	kind := func(name string, kept, lost time.Duration) overview.Kind {
		return overview.Kind{KindActivity: client.KindActivity{Kind: name, Committed: kept, FailedTime: lost / 2, Redone: lost / 2}}
	}
	s := &state{activity: overview.Activity{Kinds: []overview.Kind{kind("a", time.Hour, time.Hour), kind("b", time.Hour, 0), kind("c", 0, 0)}}}
	var got []string
	for _, k := range nowOf(view{state: s}).Kinds {
		got = append(got, k.Time)
	}
	if want := []string{"67%", "33%", ""}; !slices.Equal(got, want) {
		t.Errorf("parts of the time = %q, want %q", got, want)
	}
}

// TestMoney: with prices the page of costs has money, by the slots of the heartbeats or the given
// ones; without either it says why not.
func TestMoney(t *testing.T) {
	j := poisoned("a", client.StatusDone)
	j.Kind, j.Cost = "train", client.Cost{Useful: 2 * time.Hour}
	price := func(sum spent.Sum, slots float64) spent.Money {
		return spent.Money{Cost: fmt.Sprintf("%.2f", sum.Total()/3600/slots*0.5), Saved: "7.5 %"}
	}
	for _, row := range []struct {
		name    string
		price   func(spent.Sum, float64) spent.Money
		slots   int
		workers []client.Worker
		want    string
	}{
		{"no prices", nil, 4, nil, ""},
		{"given slots", price, 4, nil, "0.25"},
		{"slots of heartbeats", price, 0, []client.Worker{{Name: "w", State: "process", Activity: &client.Activity{Slots: 2}}}, "0.50"},
		{"no slots", price, 0, nil, ""},
	} {
		r := setupOf(t, Config{Client: clienttest.New(t, nil), Explain: error.Error, Every: time.Hour, Price: row.price, Currency: "EUR",
			Slots: row.slots, Read: func(_ context.Context, each func(client.Job), _ func(overview.Snapshot)) (overview.Snapshot, error) {
				each(j)
				return overview.Snapshot{At: time.Now(), Workers: row.workers}, nil
			}})
		body := r.get(t, "/costs").Body.String()
		if got := strings.Contains(body, "EUR"); got != (row.want != "") {
			t.Errorf("%s: the page has a currency: %v", row.name, got)
		}
		if row.want != "" && (strings.Count(body, row.want) < 2 || !strings.Contains(body, "7.5 %")) {
			t.Errorf("%s: the page lacks %s twice:\n%s", row.name, row.want, body)
		}
		if why := strings.Contains(body, "Money is left out"); why != (row.price != nil && row.want == "") {
			t.Errorf("%s: the page says that money is left out: %v", row.name, why)
		}
	}
}

// TestCallsOf: a worker's calls are told if some failed or were slow.
func TestCallsOf(t *testing.T) {
	for _, c := range []struct {
		findings *client.Findings
		want     string
	}{
		{nil, ""},
		{&client.Findings{Calls: 120}, ""},
		{&client.Findings{Calls: 1200, FailedCalls: 3}, "1,200 calls in the last minute: 3 failed"},
		{&client.Findings{Calls: 120, SlowCalls: 90}, "120 calls in the last minute: 90 over 1 s"},
		{&client.Findings{Calls: 120, SlowCalls: 90, FailedCalls: 3}, "120 calls in the last minute: 3 failed, 90 over 1 s"},
	} {
		if got := callsOf(c.findings); got != c.want {
			t.Errorf("callsOf(%+v) = %q, want %q", c.findings, got, c.want)
		}
	}
}
