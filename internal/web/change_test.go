package web

import (
	"context"
	"errors"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/client/clienttest"
	"github.com/spotworker/spotworker/internal/overview"
	"github.com/spotworker/spotworker/job"
)

// setupChanges is a server that may change a deployment in memory. Jobs of the kind stay run until
// they are stopped, jobs of echo succeed, and jobs of bad are given up at once.
func setupChanges(t *testing.T) *rig {
	t.Helper()
	c := clienttest.New(t, job.Kinds{
		"echo": job.HandlerFunc(echo),
		"stay": job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) { <-ctx.Done(); return nil, context.Cause(ctx) }),
		"bad": job.HandlerFunc(func(context.Context, *job.Job) ([]byte, error) {
			return nil, job.Permanent(errors.New("bad " + hostile))
		}),
	})
	deadline := time.Now().Add(30 * time.Second)
	for workers, _ := c.Workers(t.Context()); len(workers) == 0; workers, _ = c.Workers(t.Context()) {
		if time.Now().After(deadline) {
			t.Fatal("no heartbeat")
		}
		time.Sleep(5 * time.Millisecond)
	}
	return setupOf(t, Config{Title: "test", Client: c, Explain: error.Error, Every: time.Hour, AllowChanges: true, Control: "control",
		Read: func(ctx context.Context, each func(client.Job), early func(overview.Snapshot)) (overview.Snapshot, error) {
			return overview.ReadEach(ctx, c, each, early)
		}})
}

// putAndWait puts a job and waits until its record has a status.
func (r *rig) putAndWait(t *testing.T, id, kind string, status client.Status) {
	t.Helper()
	if _, err := r.config.Client.Put(t.Context(), client.Spec{ID: id, Kind: kind}); err != nil {
		t.Fatal(err)
	}
	r.await(t, id, status)
}

func (r *rig) await(t *testing.T, id string, status client.Status) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		j, err := r.config.Client.Get(t.Context(), id)
		if err == nil && j.Status == status && (status != client.StatusPoison || r.hasPoison(t, id)) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("job %s is %s (%v), want %s", id, j.Status, err, status)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// hasPoison reports whether the poison queue has a job's message, which a worker puts after it has
// written the record.
func (r *rig) hasPoison(t *testing.T, id string) bool {
	t.Helper()
	messages, _, _ := r.config.Client.PeekPoison(t.Context())
	return slices.ContainsFunc(messages, func(m client.PoisonMessage) bool { return m.JobID == id })
}

var hidden = regexp.MustCompile(`<input type="hidden" name="([a-z]+)" value="([^"]*)">`)

// ask loads the question of a change and returns its page and the hidden fields of its form.
func (r *rig) ask(t *testing.T, address string) (string, url.Values) {
	t.Helper()
	w := r.get(t, address)
	fields := url.Values{}
	for _, m := range hidden.FindAllStringSubmatch(w.Body.String(), -1) {
		fields.Set(m[1], html.UnescapeString(m[2]))
	}
	return w.Body.String(), fields
}

// post sends a form as the page does.
func (r *rig) post(t *testing.T, path string, fields url.Values, change ...func(*http.Request)) *httptest.ResponseRecorder {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(fields.Encode()))
	request.Header.Set("Origin", "http://"+r.guard.hosts[0])
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return r.serve(request, change)
}

// confirm answers a question with yes, and returns the page with the outcome.
func (r *rig) confirm(t *testing.T, address string, more ...string) string {
	t.Helper()
	page, fields := r.ask(t, address)
	if fields.Get("key") == "" {
		t.Fatalf("%s asks nothing:\n%s", address, page)
	}
	for i := 0; i+1 < len(more); i += 2 {
		fields.Set(more[i], more[i+1])
	}
	w := r.post(t, "/change", fields)
	if w.Code != http.StatusSeeOther {
		t.Fatalf("%s: status %d: %s", address, w.Code, w.Body)
	}
	return r.made(t, w)
}

// made follows the redirect to the outcome, and waits until it is complete.
func (r *rig) made(t *testing.T, w *httptest.ResponseRecorder) string {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		page := r.get(t, w.Header().Get("Location")).Body.String()
		if !strings.Contains(page, "In progress") {
			return page
		}
		if time.Now().After(deadline) {
			t.Fatalf("the change does not end:\n%s", page)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func wantText(t *testing.T, what, page string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(page, text) {
			t.Errorf("%s lacks %q:\n%s", what, text, page)
		}
	}
}

// TestReadOnly: without the flag no page has a button, and the server refuses each change.
func TestReadOnly(t *testing.T) {
	r := setup(t, time.Hour, poisoned("a", client.StatusPoison), poisoned("b", client.StatusRunning))
	for _, path := range []string{"/", "/jobs?kind=x", "/job/a", "/workers", "/poison", "/job/none"} {
		body := r.get(t, path).Body.String()
		for _, bad := range []string{`method="post"`, "/change", "/put", r.guard.form} {
			if strings.Contains(body, bad) {
				t.Errorf("%s has %q", path, bad)
			}
		}
	}
	fields := url.Values{"session": {r.guard.form}, "key": {"x"}, "kind": {"echo"}}
	for _, path := range []string{"/change", "/put", "/ask", "/change?do=cancel&id=b"} {
		if w := r.post(t, path, fields); w.Code != http.StatusMethodNotAllowed {
			t.Errorf("POST %s: status %d, want 405", path, w.Code)
		}
		if w := r.get(t, path); w.Code != http.StatusNotFound {
			t.Errorf("GET %s: status %d, want 404", path, w.Code)
		}
	}
}

// TestSelectedRows: the selected rows of a list are cancelled, or replayed, together.
func TestSelectedRows(t *testing.T) {
	r := setupChanges(t)
	for _, id := range []string{"a", "b", "c"} {
		r.putAndWait(t, id, "stay", client.StatusRunning)
	}
	r.putAndWait(t, "dead", "bad", client.StatusPoison)
	_, next := r.feed.now()
	r.feed.again()
	<-next
	page, fields := r.ask(t, "/jobs")
	wantText(t, "the list", page, `<input type="checkbox" name="pick" value="a" aria-label="Select a">`, `id="picks"`)
	ask := func(do string, ids ...string) (string, int) {
		w := r.post(t, "/ask", url.Values{"session": fields["session"], "do": {do}, "pick": ids})
		for _, m := range hidden.FindAllStringSubmatch(w.Body.String(), -1) {
			fields.Set(m[1], html.UnescapeString(m[2]))
		}
		return w.Body.String(), w.Code
	}
	page, _ = ask("cancel", "a", "b")
	wantText(t, "the question", page, "Cancel the 2 jobs? This cannot be undone.")
	wantText(t, "the outcome", r.made(t, r.post(t, "/change", fields)), "2 cancelled")
	r.await(t, "a", client.StatusCancelled)
	r.await(t, "b", client.StatusCancelled)
	r.await(t, "c", client.StatusRunning)
	page, _ = ask("replay", "dead", "c")
	wantText(t, "the question", page, "Replay 2 jobs?")
	wantText(t, "the outcome", r.made(t, r.post(t, "/change", fields)), "1 replayed", "no message of c")
	r.putAndWait(t, "short", "echo", client.StatusDone)
	page, _ = ask("again", "a", "short", "c")
	wantText(t, "the question", page, "Run 3 jobs again from the beginning?")
	wantText(t, "the outcome", r.made(t, r.post(t, "/change", fields)), "2 replayed, 0 purged, 0 dropped, 1 refused")
	for do, ids := range map[string][]string{"cancel": nil, "purge": {"c"}} {
		if page, code := ask(do, ids...); code != http.StatusConflict {
			t.Errorf("%s of %v: status %d, want 409:\n%s", do, ids, code, page)
		}
	}
	fields.Set("session", "another")
	if _, code := ask("cancel", "c"); code != http.StatusForbidden {
		t.Errorf("status of a form of another session = %d, want 403", code)
	}
}

// TestRunAgain: the page of a job that has ended runs it again where something still has its payload,
// and otherwise says why it cannot.
func TestRunAgain(t *testing.T) {
	r := setupChanges(t)
	r.putAndWait(t, "empty", "echo", client.StatusDone)
	wantText(t, "the page", r.get(t, "/job/empty").Body.String(), `href="/change?do=again&amp;id=empty"`)
	if _, err := r.config.Client.Put(t.Context(), client.Spec{ID: "gone", Kind: "echo", Payload: 7}); err != nil {
		t.Fatal(err)
	}
	r.await(t, "gone", client.StatusDone)
	wantText(t, "the page", r.get(t, "/job/gone").Body.String(), "<button disabled>Run again…</button>", "payload is not kept any longer")
	wantText(t, "the outcome", r.confirm(t, "/change?do=again&id=gone"), "1 refused", "producer put --again")
}

// TestForgery: a change needs the cookie, the page's own origin, and the token of its session; a
// question is answered once.
func TestForgery(t *testing.T) {
	r, other := setupChanges(t), setupChanges(t)
	r.putAndWait(t, "stays", "stay", client.StatusRunning)
	_, fields := r.ask(t, "/change?do=cancel&id=stays")
	with := func(name, value string) url.Values {
		changed := url.Values{}
		for k, v := range fields {
			changed[k] = slices.Clone(v)
		}
		changed.Set(name, value)
		return changed
	}
	for _, row := range []struct {
		name   string
		fields url.Values
		change func(*http.Request)
		want   int
	}{
		{"a form of another site", fields, withHeader("Origin", "https://evil.example"), http.StatusForbidden},
		{"a page on another port", fields, withHeader("Origin", "http://127.0.0.1:1"), http.StatusForbidden},
		{"a sandboxed frame", fields, withHeader("Origin", "null"), http.StatusForbidden},
		{"no origin", fields, func(r *http.Request) { r.Header.Del("Origin") }, http.StatusForbidden},
		{"another site by the browser's word", fields, withHeader("Sec-Fetch-Site", "cross-site"), http.StatusForbidden},
		{"DNS rebinding", fields, func(r *http.Request) { r.Host = "evil.example"; r.Header.Set("Origin", "http://evil.example") },
			http.StatusForbidden},
		{"no cookie", fields, func(r *http.Request) { r.Header.Del("Cookie") }, http.StatusForbidden},
		{"the cookie of another session", fields, withHeader("Cookie", r.guard.cookie+"="+other.guard.session), http.StatusForbidden},
		{"the token of another session", with("session", other.guard.form), func(*http.Request) {}, http.StatusForbidden},
		{"no token", with("session", ""), func(*http.Request) {}, http.StatusForbidden},
		{"a guessed key", with("key", "x"), func(*http.Request) {}, http.StatusConflict},
		{"a question of another session", with("key", other.questionKey(t)), func(*http.Request) {}, http.StatusConflict},
		{"JSON", fields, withHeader("Content-Type", "application/json"), http.StatusForbidden},
		{"a form that is too long", with("reason", long), func(*http.Request) {}, http.StatusRequestEntityTooLarge},
	} {
		if w := r.post(t, "/change", row.fields, row.change); w.Code != row.want {
			t.Errorf("%s: status %d, want %d", row.name, w.Code, row.want)
		}
		if w := r.post(t, "/put", row.fields, row.change); w.Code < 400 {
			t.Errorf("%s: a job is put: status %d", row.name, w.Code)
		}
	}
	if w := r.post(t, "/change?"+fields.Encode(), nil); w.Code != http.StatusForbidden {
		t.Errorf("a token in the address: status %d, want 403", w.Code)
	}
	if j, err := r.config.Client.Get(t.Context(), "stays"); err != nil || j.Status != client.StatusRunning {
		t.Fatalf("the job is %s (%v), want running", j.Status, err)
	}
	if w := r.post(t, "/change", fields); w.Code != http.StatusSeeOther {
		t.Errorf("the page itself: status %d, want 303", w.Code)
	}
	if w := r.post(t, "/change", fields); w.Code != http.StatusConflict {
		t.Errorf("the same answer again: status %d, want 409", w.Code)
	}
}

// questionKey is the key of a question of this session.
func (r *rig) questionKey(t *testing.T) string {
	t.Helper()
	_, fields := r.ask(t, "/change?do=pause")
	return fields.Get("key")
}

// TestCancel: a job and a selection are cancelled as by the command. A job that has just ended is
// left alone, in the command's words.
func TestCancel(t *testing.T) {
	r := setupChanges(t)
	r.putAndWait(t, "one", "stay", client.StatusRunning)
	r.putAndWait(t, "ended", "echo", client.StatusDone)
	wantText(t, "the page of a job that runs", r.get(t, "/job/one").Body.String(), "Cancel…")
	page, _ := r.ask(t, "/change?do=cancel&id=one")
	wantText(t, "the question", page, "Cancel job one? This cannot be undone.", "It is running.")
	wantText(t, "the outcome", r.confirm(t, "/change?do=cancel&id=one", "reason", "a "+hostile), "Done.", "1 cancelled, 0 barred")
	r.await(t, "one", client.StatusCancelled)
	wantText(t, "the outcome of an ended job", r.confirm(t, "/change?do=cancel&id=ended"),
		"1 of 1 jobs were not cancelled; their lines say why", "1 over already")
	wantText(t, "the outcome without a job", r.confirm(t, "/change?do=cancel&id=no-such"), "1 unknown")

	for _, id := range []string{"two", "three"} {
		r.putAndWait(t, id, "stay", client.StatusRunning)
	}
	address := selectionOf(url.Values{"kind": {"stay"}}).CancelAddress()
	page, fields := r.ask(t, address)
	wantText(t, "the question", page, "Cancel 2 jobs: 0 open, 2 running? This cannot be undone.")
	r.putAndWait(t, "later", "stay", client.StatusRunning)
	wantText(t, "the outcome", r.made(t, r.post(t, "/change", fields)), "2 cancelled")
	r.await(t, "later", client.StatusRunning) // nobody was asked about it
	for query, want := range map[string]string{
		"": "nothing is chosen", "&status=done": "only jobs that are open or running can be cancelled",
		"&kind=stey": "no record has kind &#34;stey&#34; (did you mean &#34;stay&#34;?); nothing was cancelled",
		"&kind=echo": "no job is selected that has not ended; 1 that match have",
	} {
		page, fields := r.ask(t, "/change?do=cancel-selected"+query)
		wantText(t, "the selection "+query, page, want)
		if fields.Get("key") != "" {
			t.Errorf("the selection %q asks", query)
		}
	}
}

// TestPoison: a job, the jobs of a reason, and all are replayed and purged.
func TestPoison(t *testing.T) {
	r := setupChanges(t)
	for _, id := range []string{"p1", "p2", "p3"} {
		r.putAndWait(t, id, "bad", client.StatusPoison)
	}
	_, next := r.feed.now()
	r.feed.again()
	<-next
	wantText(t, "the page of a job", r.get(t, "/job/p1").Body.String(), "Replay…", "Purge…")
	wantText(t, "the outcome", r.confirm(t, "/change?do=purge&id=p1"), "0 replayed, 1 purged")
	r.await(t, "p1", client.StatusCancelled)
	wantText(t, "a second purge", r.confirm(t, "/change?do=purge&id=p1"), "the poison queue has no message of p1")

	v, _ := r.feed.now()
	if len(v.givenUp) != 1 {
		t.Fatalf("%d groups, want 1", len(v.givenUp))
	}
	key := groupKey(v.givenUp[0])
	wantText(t, "the page of reasons", r.get(t, "/poison").Body.String(), key)
	wantText(t, "the outcome of a group", r.confirm(t, "/change?do=replay&group="+key, "scratch", "1"), "2 replayed, 0 purged")
	page, fields := r.ask(t, "/change?do=purge")
	wantText(t, "the question", page, "Purge all of about ", "messages? This cannot be undone.")
	r.await(t, "p2", client.StatusPoison) // again, by its handler
	r.await(t, "p3", client.StatusPoison)
	wantText(t, "the outcome", r.made(t, r.post(t, "/change", fields)), "2 purged")
	if page, _ := r.ask(t, "/change?do=purge&group=nothing"); !strings.Contains(page, "no such job any longer") {
		t.Errorf("an unknown group: %s", page)
	}
}

// TestSteer: requests to workers, with the errors of the command, and their ends.
func TestSteer(t *testing.T) {
	r := setupChanges(t)
	page, _ := r.ask(t, "/change?do=pause&kind=echo")
	wantText(t, "the question", page, "Start no job of echo?")
	wantText(t, "the outcome", r.confirm(t, "/change?do=pause&kind=echo", "reason", hostile), "pause: running workers asked: ")
	wantText(t, "a kind that no worker has", r.confirm(t, "/change?do=pause&kind=ecko"), "nothing was paused")
	wantText(t, "a long reason", r.confirm(t, "/change?do=pause", "reason", strings.Repeat("x", 257)), "at most 256 are allowed")
	wantText(t, "a VM without a heartbeat", r.confirm(t, "/change?do=quarantine&vm=nowhere"), "nothing was quarantined")
	page, _ = r.ask(t, "/change?do=drain")
	wantText(t, "the question", page, "Drain all workers?")
	wantText(t, "the outcome", r.confirm(t, "/change?do=drain"), "drain: running workers asked: ")
	c := r.config.Client
	s, err := c.Steering(t.Context())
	if err != nil || s.AllDrained == nil || len(s.PausedKinds) != 1 || s.PausedKinds[0].Reason != hostile {
		t.Fatalf("Steering = %+v, %v", s, err)
	}
	for _, end := range []string{"/change?do=resume", "/change?do=unpause&kind=echo"} {
		r.confirm(t, end)
	}
	if s, err := c.Steering(t.Context()); err != nil || s.AllDrained != nil || len(s.PausedKinds) != 0 {
		t.Errorf("after the ends Steering = %+v, %v", s, err)
	}
	wantText(t, "an end of nothing", r.confirm(t, "/change?do=free&vm=nowhere"), "is not drained")
}

// TestPut: a job of the page runs. The form of an invalid job is shown again, with the reason.
func TestPut(t *testing.T) {
	r := setupChanges(t)
	_, fields := r.ask(t, "/put")
	put := func(set ...string) *httptest.ResponseRecorder {
		for i := 0; i < len(set); i += 2 {
			fields.Set(set[i], set[i+1])
		}
		return r.post(t, "/put", fields)
	}
	w := put("kind", "echo", "id", "mine", "payload", `{"a":`)
	if w.Code != http.StatusUnprocessableEntity {
		t.Errorf("half a payload: status %d, want 422", w.Code)
	}
	wantText(t, "the form", w.Body.String(), `value="mine"`, "{&#34;a&#34;:", `role="alert"`)
	if w := put("id", hostile); w.Code != http.StatusUnprocessableEntity || strings.Contains(w.Body.String(), "<script>alert") {
		t.Errorf("a hostile id: status %d: %s", w.Code, w.Body)
	}
	wantText(t, "the outcome", r.made(t, put("id", "mine", "payload", `{"a":1}`)), "Done.", "enqueued", "/job/mine")
	r.await(t, "mine", client.StatusDone)
	wantText(t, "the same job again", r.made(t, put()), "skipped")
	wantText(t, "other work", r.made(t, put("payload", "2")), "job mine was not enqueued; give it another id")
	wantText(t, "an unknown kind", r.made(t, put("id", "", "kind", "ecko")), "warning: ", "did you mean")
}

// TestHostileChanges: no question and no outcome has a tag or a mark of an address.
func TestHostileChanges(t *testing.T) {
	r := setupChanges(t)
	for _, do := range []string{"cancel", "replay", "purge", "requeue", "drain", "resume", "quarantine", "free", "pause", "unpause",
		"cancel-selected", hostile} {
		for _, text := range []string{hostile, long, long[:500], "../../x", "\u202e\x00"} {
			q := url.Values{"do": {do}}
			for _, name := range []string{"id", "group", "worker", "vm", "kind", "status"} {
				q.Set(name, text)
			}
			page, fields := r.ask(t, "/change?"+q.Encode())
			if fields.Get("key") != "" {
				page += r.made(t, r.post(t, "/change", fields))
			}
			for _, bad := range []string{"<script>alert", "<img", "\u202e", "\x00"} {
				if strings.Contains(page, bad) {
					t.Errorf("%.20s of %.20q has %q", do, text, bad)
				}
			}
			if len(page) > 200_000 {
				t.Errorf("%.20s of %.20q: %d bytes", do, text, len(page))
			}
		}
	}
}

// TestChangesAreBounded: questions and outcomes are forgotten, and a change that runs ends with the
// server.
func TestChangesAreBounded(t *testing.T) {
	c := newChanges()
	for range 100 {
		c.ask(&change{})
	}
	began := make(chan struct{})
	do := func(context.Context, changeOptions, *outcome) error { return nil }
	for range 100 {
		<-c.start(&change{do: do}, changeOptions{}, error.Error, func() {}).done
	}
	if len(c.pending) != mostPending || len(c.made) != mostMade {
		t.Errorf("%d questions and %d outcomes, want %d and %d", len(c.pending), len(c.made), mostPending, mostMade)
	}
	stays := func(ctx context.Context, _ changeOptions, _ *outcome) error {
		close(began)
		<-ctx.Done()
		return ctx.Err()
	}
	made := c.start(&change{do: stays}, changeOptions{}, error.Error, func() {})
	<-began
	c.end()
	if made.err == "" || !made.ended {
		t.Errorf("the outcome is %q, ended %v", made.err, made.ended)
	}
}
