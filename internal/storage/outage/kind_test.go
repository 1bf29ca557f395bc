package outage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
)

// answer is the error of a call that the service answered.
func answer(status int, code string) error {
	return fmt.Errorf("save checkpoint: %w", &azcore.ResponseError{StatusCode: status, ErrorCode: code})
}

// TestOf: which errors show a fault of the account.
func TestOf(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  error
		want Kind
	}{
		{"none", nil, None},
		{"no connection", &Unanswered{errors.New("connection reset")}, Unreachable},
		{"no token", fmt.Errorf("read: %w", &Unanswered{errors.New("sign in: no token")}), Unreachable},
		{"no answer in time", context.DeadlineExceeded, Unreachable},
		{"a reply that was cut off", io.ErrUnexpectedEOF, Unreachable},
		{"no such host", &net.DNSError{Err: "no such host", IsNotFound: true}, Unreachable},
		{"cancelled by the caller", &Unanswered{context.Canceled}, None},
		{"an error of the service", answer(500, "InternalError"), Unreachable},
		{"a proxy's page", answer(503, ""), Unreachable},
		{"too busy", answer(503, "ServerBusy"), Throttled},
		{"too many requests", answer(429, "TooManyRequests"), Throttled},
		{"no role", answer(403, "AuthorizationPermissionMismatch"), Denied},
		{"a token that is refused", answer(401, "InvalidAuthenticationInfo"), Denied},
		{"an immutable blob", answer(403, "BlobImmutableDueToPolicy"), None},
		{"no queue", answer(404, "QueueNotFound"), Missing},
		{"a container that is being deleted", answer(409, "ContainerBeingDeleted"), Missing},
		{"no blob", answer(404, "BlobNotFound"), None},
		{"a conflict", answer(412, "ConditionNotMet"), None},
		{"an error of this program", errors.New("state is damaged"), None},
	} {
		if got := Of(tt.err); got != tt.want {
			t.Errorf("%s: Of = %d, want %d", tt.name, got, tt.want)
		}
		want := slog.LevelWarn
		if tt.want != None {
			want = slog.LevelDebug
		}
		if got := Level(tt.err, slog.LevelWarn); got != want {
			t.Errorf("%s: Level = %s, want %s", tt.name, got, want)
		}
	}
}

// TestGist: two tries that met the same fault have one gist.
func TestGist(t *testing.T) {
	first := fmt.Errorf("reach queue jobs: %w", &Unanswered{errors.New("read udp 10.0.0.4:41234->10.0.0.2:53: i/o timeout")})
	second := fmt.Errorf("reach queue jobs: %w", &Unanswered{errors.New("read udp 10.0.0.4:50001->10.0.0.2:53: i/o timeout")})
	other := fmt.Errorf("reach queue jobs: %w", &azcore.ResponseError{StatusCode: 403, ErrorCode: "AuthorizationFailure"})
	if Gist(first) != Gist(second) || Gist(first) == Gist(other) {
		t.Errorf("gists = %q, %q, %q, want the first two alike", Gist(first), Gist(second), Gist(other))
	}
}
