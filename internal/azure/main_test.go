package azure

import (
	"net/http"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// answer is a transport that gives every request the same answer.
type answer func(*http.Request) (*http.Response, error)

// Do implements policy.Transporter.
func (a answer) Do(r *http.Request) (*http.Response, error) { return a(r) }
