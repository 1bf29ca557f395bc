package sample

import (
	"errors"
	"slices"
	"testing"
	"time"

	"context"
)

func check(t *testing.T, ok bool) {
	t.Helper()
	if !ok {
		t.Error("wrong")
	}
}

func TestLimits(t *testing.T) {
	check(t, Small(9) && !Small(10))
	check(t, WeakSmall(-100) && !WeakSmall(100))
	check(t, Head("text", 2) == "te")
}

func TestConditions(t *testing.T) {
	yes, no := func() bool { return true }, func() bool { return false }
	check(t, Both(true, yes) && !Both(true, no) && !Both(false, yes))
	check(t, WeakBoth(true, true) && !WeakBoth(false, false))
}

func TestErrors(t *testing.T) {
	failed := errors.New("failed")
	check(t, Save(func() error { return failed }) == failed)
	check(t, WeakSave(func() error { return nil }) == nil)
}

func TestUnits(t *testing.T) {
	check(t, Size() == 1_048_576)
	check(t, Timeout() == 2*time.Second)
	check(t, WeakTimeout() > 0)
}

func TestOrder(t *testing.T) {
	var written []string
	err := Writes(context.Background(), func(_ context.Context, text string) error {
		written = append(written, text)
		if text == "record" {
			return errors.ErrUnsupported
		}
		return nil
	})
	check(t, slices.Equal(written, []string{"state", "record"}) && err == errors.ErrUnsupported)
	var l Log
	l.WeakWrites()
	check(t, len(l.Texts) == 2)
}

func TestHeaders(t *testing.T) {
	etag := "1"
	check(t, Replace(&etag).IfMatch == &etag)
	check(t, WeakReplace(&etag).IfNoneMatch == "*")
}

func TestLoop(t *testing.T) {
	c := Counter{3}
	c.Down()
	check(t, c.Left == 0)
}

// TestBroken fails without a mutant. It judges none.
func TestBroken(t *testing.T) { check(t, Unused(nil)) }
