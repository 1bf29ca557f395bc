package client

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spotworker/spotworker/internal/fleet/presence"
)

// TestSteering: requests come with their names, in order.
func TestSteering(t *testing.T) {
	b := setup(t)
	if _, err := b.Pause(t.Context(), []string{"b", "a"}, SteerOptions{Reason: "why"}); err != nil {
		t.Fatal(err)
	}
	s, err := b.Steering(t.Context())
	if err != nil || len(s.PausedKinds) != 2 || s.PausedKinds[0].Name != "a" || s.PausedKinds[1].Name != "b" ||
		s.PausedKinds[0].Reason != "why" || s.PausedKinds[0].By != "test@desk" || s.PausedKinds[0].At.IsZero() {
		t.Errorf("Steering = %+v, %v, want a and b with the reason", s, err)
	}
}

// TestSteerErrors: each error of a request can be told apart.
func TestSteerErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		if _, err := b.Pause(t.Context(), []string{"nobody"}, SteerOptions{KnownOnly: true}); !errors.Is(err, ErrUnknownName) {
			t.Errorf("Pause of an unknown kind = %v, want ErrUnknownName", err)
		}
		err := b.stores.Workers.Write(t.Context(), presence.Presence{Worker: "w", State: "process", Steered: true})
		if err != nil {
			t.Fatal(err)
		}
		s, err := b.Pause(t.Context(), nil, SteerOptions{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := b.WaitFollowed(ctx, s, func([]string) {}); !errors.Is(err, ErrNotFollowed) {
			t.Errorf("WaitFollowed of a worker that does not follow = %v, want ErrNotFollowed", err)
		}
		control := b.stores.Account.Container(b.stores.Names.Control).NewBlockBlobClient("control")
		if _, err := control.UploadBuffer(t.Context(), []byte(`{"v":99}`), nil); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Steering(t.Context()); !errors.Is(err, ErrNewerVersion) {
			t.Errorf("Steering by a newer version = %v, want ErrNewerVersion", err)
		}
		lost, err := Open(Options{Account: "contoso", Credential: credential{}, Transport: lost{}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = lost.Steering(t.Context())
		if !errors.Is(err, ErrNoAccount) || !errors.As(err, new(*net.DNSError)) {
			t.Errorf("Steering without a network = %v, want ErrNoAccount", err)
		}
	})
}
