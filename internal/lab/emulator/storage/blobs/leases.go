package blobs

import (
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage/protocol"
)

// lease keeps a blob from being written or deleted, "Lease Blob" in the REST
// documentation. The emulator has no writes under a lease: while one is held, it
// refuses them all. The zero value is none.
type lease struct {
	id       string
	broken   bool
	duration time.Duration // 0 for a lease that does not end
	until    time.Time     // zero for a lease that does not end
}

func (l lease) held(now time.Time) bool {
	return l.id != "" && !l.broken && (l.until.IsZero() || now.Before(l.until))
}

// renewed returns the lease as it is when its time begins again.
func (l lease) renewed(now time.Time) lease {
	if l.duration > 0 {
		l.until = now.Add(l.duration)
	}
	return l
}

// shown is the lease as replies and listings show it.
func (l lease) shown(now time.Time) (status, state string) {
	switch {
	case l.held(now):
		return "locked", "leased"
	case l.broken:
		return "unlocked", "broken"
	case l.id != "":
		return "unlocked", "expired"
	default:
		return "unlocked", "available"
	}
}

// checkLease refuses a write of a blob that is leased; v is nil where there is none.
func checkLease(v *version, now time.Time) error {
	if v != nil && v.lease.held(now) {
		return errLeaseIDMissing
	}
	return nil
}

// leaseBlob acquires, renews, releases or breaks a lease. It changes neither the
// blob's entity tag nor its time.
func (s *Service) leaseBlob(r *protocol.Request) (*protocol.Reply, error) {
	if action := r.Header.Get("x-ms-lease-action"); action == "change" {
		return nil, protocol.ErrNotImplemented.Because("lease action %q", action)
	}
	c, conds, err := s.target(r)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	old, err := c.existing(r, conds)
	if err != nil {
		return nil, err
	}
	next, status, err := old.lease.after(r)
	if err != nil {
		return nil, err
	}
	v := *old
	v.lease = next
	c.change(r.Rest).current = &v
	p := protocol.NewReply(status)
	p.Set("ETag", v.etag)
	p.SetTime("Last-Modified", v.modified)
	if status == http.StatusAccepted {
		p.Set("x-ms-lease-time", "0")
		return p, nil
	}
	p.Set("x-ms-lease-id", next.id)
	return p, nil
}

// after returns the lease as the request makes it, and the reply's status.
func (l lease) after(r *protocol.Request) (next lease, status int, err error) {
	action, id := r.Header.Get("x-ms-lease-action"), r.Header.Get("x-ms-lease-id")
	switch action {
	case "acquire":
		next, err = l.acquire(r)
		return next, http.StatusCreated, err
	case "renew", "release":
		if l.id == "" || l.id != id {
			return l, 0, errLeaseMismatch
		}
		if action == "release" {
			return lease{}, http.StatusOK, nil
		}
		if l.broken {
			return l, 0, errLeaseBroken
		}
		return l.renewed(r.Now), http.StatusOK, nil
	case "break":
		if period := r.Header.Get("x-ms-lease-break-period"); period != "0" {
			return l, 0, protocol.ErrNotImplemented.Because("a break of a lease after a time: give x-ms-lease-break-period 0")
		}
		if l.id == "" {
			return l, 0, errLeaseNotPresent
		}
		l.broken = true
		return l, http.StatusAccepted, nil
	case "":
		return l, 0, protocol.ErrMissingHeader.Because("x-ms-lease-action")
	default:
		return l, 0, protocol.ErrInvalidHeader.Because("x-ms-lease-action %q", action)
	}
}

// acquire makes a lease, or the same again.
func (l lease) acquire(r *protocol.Request) (lease, error) {
	const infinite, least, most = -1, 15, 60
	seconds, err := strconv.Atoi(r.Header.Get("x-ms-lease-duration"))
	if err != nil || seconds != infinite && (seconds < least || seconds > most) {
		return lease{}, protocol.ErrInvalidHeader.Because("x-ms-lease-duration %q is neither -1 nor 15 to 60",
			r.Header.Get("x-ms-lease-duration"))
	}
	id := r.Header.Get("x-ms-proposed-lease-id")
	if l.held(r.Now) && l.id != id {
		return lease{}, errLeasePresent
	}
	if id == "" {
		id = uuid.NewString()
	}
	next := lease{id: id}
	if seconds != infinite {
		next.duration = time.Duration(seconds) * time.Second
	}
	return next.renewed(r.Now), nil
}
