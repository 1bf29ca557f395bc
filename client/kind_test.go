package client

import (
	"context"
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/job"
)

// doc is the result of the jobs that seed leaves.
type doc struct{ Of string }

// TestKindResult: the typed errors of a client come through, and a record of another kind is
// an error of its own, whatever its status.
func TestKindResult(t *testing.T) {
	b := setup(t)
	for _, status := range []Status{StatusRunning, StatusOpen, StatusDone, StatusPoison, StatusCancelled} {
		b.seed(t, string(status), status)
	}
	b.seedNewer(t, "newer")
	right, wrong := Kind[string, doc]{Name: "k"}, Kind[string, doc]{Name: "other"}
	for id, want := range map[string]error{
		"running": ErrNotFinished, "open": ErrNotFinished, "done": nil, "poison": ErrPoison, "cancelled": ErrCancelled,
		"absent": ErrNotFound, "newer": ErrNewerVersion,
	} {
		got, err := right.Result(t.Context(), b.Client, id)
		if !errors.Is(err, want) || (got.Of == id) != (want == nil) {
			t.Errorf("Result of %s = %+v, %v, want %v", id, got, err, want)
		}
		_, err = wrong.Result(t.Context(), b.Client, id)
		other, ok := errors.AsType[*OtherKindError](err)
		if known := id != "absent" && id != "newer"; ok != known || ok && *other != (OtherKindError{ID: id, Kind: "k", Want: "other"}) {
			t.Errorf("Result of %s, of another kind = %v", id, err)
		}
	}
	for id, want := range map[string]error{"done": nil, "poison": ErrPoison, "cancelled": ErrCancelled, "newer": ErrNewerVersion} {
		if got, err := right.Wait(t.Context(), b.Client, id); !errors.Is(err, want) || (got.Of == id) != (want == nil) {
			t.Errorf("Wait for %s = %+v, %v, want %v", id, got, err, want)
		}
		_, err := wrong.Wait(t.Context(), b.Client, id)
		if ok := errors.As(err, new(*OtherKindError)); ok != (id != "newer") {
			t.Errorf("Wait for %s, of another kind = %v", id, err)
		}
	}
	if _, err := (Kind[string, int]{Name: "k"}).Result(t.Context(), b.Client, "done"); err == nil || !strings.Contains(err.Error(), "as int") {
		t.Errorf("Result of another type = %v, want an error that names it", err)
	}
}

// TestKindResultOfBytes: a result that is bytes is as it is, and one of an interface may be
// missing.
func TestKindResultOfBytes(t *testing.T) {
	b := setup(t)
	b.seed(t, "a", StatusDone)
	if got, err := (Kind[string, []byte]{Name: "k"}).Result(t.Context(), b.Client, "a"); string(got) != `{"of":"a"}` || err != nil {
		t.Errorf("Result as bytes = %q, %v", got, err)
	}
	b.seed(t, "running", StatusRunning)
	if got, err := (Kind[string, []byte]{Name: "k"}).Result(t.Context(), b.Client, "running"); got != nil || !errors.Is(err, ErrNotFinished) {
		t.Errorf("Result of a running job as bytes = %q, %v, want ErrNotFinished", got, err)
	}
	if got, err := (Kind[string, any]{Name: "k"}).Result(t.Context(), b.Client, "running"); got != nil || !errors.Is(err, ErrNotFinished) {
		t.Errorf("Result of a running job as any = %v, %v, want ErrNotFinished", got, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (Kind[string, []byte]{Name: "k"}).Wait(ended, b.Client, "running"); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait whose context ended = %v, want that", err)
	}
	if got, err := decodeResult[any](nil, nil); got != nil || err != nil {
		t.Errorf("no result as any = %v, %v, want none", got, err)
	}
	if got, err := decodeResult[int](nil, nil); err == nil {
		t.Errorf("no result as int = %v, want an error", got)
	}
}

// TestKindPut: a chosen id is one job, an empty one is a new one, and an id that another kind
// has used is refused.
func TestKindPut(t *testing.T) {
	b := setup(t)
	b.seed(t, "used", StatusDone)
	k := Kind[job.Input, doc]{Name: "copy"}
	if id, err := k.Put(t.Context(), b.Client, "mine", job.Input{Container: "c"}); id != "mine" || err != nil {
		t.Errorf("Put = %q, %v, want the chosen id", id, err)
	}
	one, err := k.Put(t.Context(), b.Client, "", job.Input{})
	two, err2 := k.Put(t.Context(), b.Client, "", job.Input{})
	if one == "" || one == two || err != nil || err2 != nil {
		t.Errorf("Put without an id = %q, %q, %v, %v, want two new ones", one, two, err, err2)
	}
	if _, err := k.Put(t.Context(), b.Client, "used", job.Input{}); !errors.Is(err, ErrOtherWork) {
		t.Errorf("Put of a used id = %v, want ErrOtherWork", err)
	}
	if _, err := k.Put(t.Context(), b.Client, ".", job.Input{}); err == nil {
		t.Error("Put of an id that is not valid gives no error")
	}
	text := ""
	for _, m := range b.server.Messages(b.stores.Names.Queue) {
		decoded, err := base64.StdEncoding.DecodeString(m.Text)
		if err != nil {
			t.Fatal(err)
		}
		text += string(decoded)
	}
	if !strings.Contains(text, `"kind":"copy"`) || !strings.Contains(text, `{"container":"c"}`) {
		t.Errorf("messages = %s, want the kind and the payload as JSON", text)
	}
}
