package workercmd

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/spotworker/spotworker/internal/retry"
)

// exposureEvery is how often the firewall is tried again. Firewalls are reloaded, and the agent
// of the Metadata Security Protocol may start later than the worker.
const exposureEvery = time.Minute

// programUsers are the users of jobs' programs.
type programUsers interface {
	CanReach(at netip.AddrPort) (bool, error)
	Bar(reason error)
}

// exposure watches that the users of jobs' programs do not reach the metadata service. There they
// could ask for the identity's tokens, and use up the five requests a second that the service
// answers, so that the worker hears of no eviction.
type exposure struct {
	users programUsers
	ids   string           // of the users, for people
	at    []netip.AddrPort // of the service
	told  func(at string)  // for heartbeat and health; empty while none is reached
	log   *slog.Logger
}

// exposedAt are the addresses at which programs could reach the service. The Metadata Security
// Protocol redirects connections to a port of its agent, whose own address the firewall has to
// block then.
func exposedAt(service netip.AddrPort) []netip.AddrPort {
	if service.Addr() != netip.AddrFrom4([4]byte{169, 254, 169, 254}) {
		return []netip.AddrPort{service}
	}
	return []netip.AddrPort{service, netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 3080)}
}

// reached is the error of users that reach the service at an address.
type reached struct {
	at  netip.AddrPort
	ids string
}

func (r *reached) Error() string {
	return fmt.Sprintf("programs with these user ids reach the metadata service at %s, which gives out this VM's tokens: "+
		"block it for them (the VM package does, with firewall.sh), for example: "+
		"nft add table inet spotworker; nft add chain inet spotworker output '{ type filter hook output priority 0; }'; "+
		"nft add rule inet spotworker output meta skuid %s ip daddr %s tcp dport %d reject", r.at, r.ids, r.at.Addr(), r.at.Port())
}

// check returns a [reached] if programs reach the service, and another error if that is not known.
func (e *exposure) check() error {
	for _, at := range e.at {
		switch is, err := e.users.CanReach(at); {
		case err != nil:
			return fmt.Errorf("check whether programs reach the metadata service: %w", err)
		case is:
			return &reached{at, e.ids}
		}
	}
	return nil
}

// watch checks each minute. While programs reach the service none is started: their jobs are left
// to other machines. A check that fails changes nothing.
func (e *exposure) watch(ctx context.Context) {
	var before *reached
	for retry.Sleep(ctx, exposureEvery) == nil {
		err := e.check()
		now, isReached := err.(*reached) //nolint:errorlint // returned as it is
		switch {
		case err != nil && !isReached:
			e.log.WarnContext(ctx, "not known whether programs reach the metadata service; it is checked again", "error", err)
		case isReached && (before == nil || *before != *now):
			e.users.Bar(now)
			e.told(now.at.String())
			e.log.ErrorContext(ctx, "no program of a job is started: its user would reach the metadata service", "error", now)
			before = now
		case !isReached && before != nil:
			e.users.Bar(nil)
			e.told("")
			e.log.InfoContext(ctx, "programs do not reach the metadata service any longer and are started again")
			before = nil
		}
	}
}
