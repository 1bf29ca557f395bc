package up

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"testing"
)

// TestWeb: the guide ends with the address of a page that shows the deployment.
func TestWeb(t *testing.T) {
	c := upOnAnyPorts()
	c.Web, c.Files = true, 0
	r := startUp(t, c)
	address := r.out.Until(t, `this address works once:\n\n    (http://127\.0\.0\.1:\d+/\?token=\w+)\n\n$`)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar}
	read := func(address string) string {
		t.Helper()
		response, err := browser.Get(address)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s, %v: %s", address, response.Status, err, body)
		}
		return string(body)
	}
	read(address)
	page := read(strings.Split(address, "?")[0])
	for _, want := range []string{"the local Azure of lab up", "spotworker-jobs", "Changes are allowed"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	if strings.Contains(page, "stopped answering") || strings.Contains(page, "not be read") {
		t.Errorf("the page could not be read:\n%s", page)
	}
	browser.CloseIdleConnections()
}
