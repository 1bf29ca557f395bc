package workercmd

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// exposedUsers reach one address, or are not asked with success.
type exposedUsers struct {
	reach  atomic.Value // string
	barred atomic.Value // string
}

func (u *exposedUsers) CanReach(at netip.AddrPort) (bool, error) {
	if u.reach.Load() == "broken" {
		return false, errors.New("no socket")
	}
	return u.reach.Load() == at.String(), nil
}

func (u *exposedUsers) Bar(reason error) {
	if reason == nil {
		u.barred.Store("")
		return
	}
	u.barred.Store(reason.Error())
}

// TestExposureIsFollowed: from a minute after the service, or the agent that connections to it are
// redirected to, is reached, no program starts, until it is blocked again. A check without an
// answer changes nothing.
func TestExposureIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &exposedUsers{}
		u.reach.Store("")
		u.barred.Store("")
		var told []string
		e := &exposure{
			users: u, ids: "60578-61183", at: exposedAt(netip.MustParseAddrPort("169.254.169.254:80")),
			told: func(at string) { told = append(told, at) }, log: slog.New(slog.DiscardHandler),
		}
		ctx, cancel := context.WithCancel(t.Context())
		go e.watch(ctx)
		for _, step := range []struct{ reach, barred string }{
			{"", ""}, {"127.0.0.1:3080", "127.0.0.1:3080"}, {"broken", "127.0.0.1:3080"},
			{"169.254.169.254:80", "169.254.169.254:80"}, {"", ""}, {"broken", ""},
		} {
			u.reach.Store(step.reach)
			time.Sleep(exposureEvery)
			synctest.Wait()
			if got, _ := u.barred.Load().(string); (got == "") != (step.barred == "") || !strings.Contains(got, step.barred) {
				t.Errorf("a minute after %q is reached programs are barred with %q, want %q", step.reach, got, step.barred)
			}
		}
		cancel()
		synctest.Wait()
		if want := []string{"127.0.0.1:3080", "169.254.169.254:80", ""}; !slices.Equal(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
	})
}
