package web

import (
	"crypto/rand"
	"crypto/subtle"
	"net"
	"net/http"
	"slices"
	"sync"
)

// policy is the content security policy of all responses: the page's own files and nothing
// else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// guard admits the requests of one browser: the browser in which the address with the token
// was opened first. Behind a proxy that signs people in it admits whom the proxy names.
type guard struct {
	user    string   // the proxy's header; empty without a proxy
	hosts   []string // values of Host that are this server's
	cookie  string   // its name; cookies of one host are shared by all ports
	session string   // its value
	form    string   // a token in forms, which pages of other sites cannot read

	mu    sync.Mutex
	token string // empty once it was used
}

// newGuard returns the guard of a server with that address, behind a proxy if user is its header.
func newGuard(at *net.TCPAddr, user string) *guard {
	_, port, _ := net.SplitHostPort(at.String())
	return &guard{
		user:    user,
		hosts:   []string{at.String(), net.JoinHostPort("localhost", port)},
		cookie:  "spotworker_" + port,
		session: rand.Text(), form: rand.Text(), token: rand.Text(),
	}
}

// wrap returns next behind the guard. refuse writes a response that says why.
func (g *guard) wrap(next http.Handler, refuse func(http.ResponseWriter, string)) http.Handler { //nolint:cyclop // a table of cases
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "same-origin") // with no-referrer a form of the page itself has no origin
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		switch given := r.URL.Query().Get("token"); {
		case g.user != "" && len(r.Header.Values(g.user)) != 1:
			refuse(w, "This page is for people whom the proxy before it has signed in: header "+g.user+" must be there once.")
		case g.user != "" && r.Method != http.MethodGet && r.Method != http.MethodHead:
			http.Error(w, "This page is read-only.", http.StatusMethodNotAllowed)
		case g.user != "":
			next.ServeHTTP(w, r)
		case !slices.Contains(g.hosts, r.Host): // DNS rebinding
			refuse(w, "This server answers to its own address alone.")
		case !g.isOwnOrigin(r):
			refuse(w, "This request came from another site.")
		case g.isSignedIn(r):
			next.ServeHTTP(w, r)
		case r.Method == http.MethodGet && r.URL.Path == "/" && given != "" && g.use(given):
			g.signIn(w)
		case given != "":
			refuse(w, "This address was used, and works once. Start spotctl web again for a new one.")
		default:
			refuse(w, "Open the address that spotctl web printed, in the browser that you want to use.")
		}
	})
}

// signedIn returns who the proxy says has signed in; empty without a proxy.
func (g *guard) signedIn(r *http.Request) string {
	if g.user == "" {
		return ""
	}
	return line(r.Header.Get(g.user))
}

// isOwnOrigin reports whether a request comes from the page itself, or from nowhere as an
// address that is typed in. A request that may change something must name its origin.
func (g *guard) isOwnOrigin(r *http.Request) bool {
	switch origin := r.Header.Get("Origin"); r.Method {
	case http.MethodGet, http.MethodHead:
		return origin == "" || origin == "http://"+r.Host
	default:
		site := r.Header.Get("Sec-Fetch-Site") // browsers send it; other programs need not
		return origin == "http://"+r.Host && (site == "" || site == "same-origin")
	}
}

// isForm reports whether a token is the token of the session's forms.
func (g *guard) isForm(token string) bool {
	return subtle.ConstantTimeCompare([]byte(token), []byte(g.form)) == 1
}

func (g *guard) isSignedIn(r *http.Request) bool {
	c, err := r.Cookie(g.cookie)
	return err == nil && subtle.ConstantTimeCompare([]byte(c.Value), []byte(g.session)) == 1
}

// use reports whether the token is right, and was not used before.
func (g *guard) use(token string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.token == "" || subtle.ConstantTimeCompare([]byte(token), []byte(g.token)) != 1 {
		return false
	}
	g.token = ""
	return true
}

// signIn sets the cookie and leads to the page. A redirect would not do: after a click in
// another site a browser sends no strict cookie with it.
func (g *guard) signIn(w http.ResponseWriter) {
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // not Secure: it is for http on loopback
		Name: g.cookie, Value: g.session, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode,
	})
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write([]byte(`<!doctype html><meta http-equiv="refresh" content="0;url=/"><title>spotworker</title>`))
}
