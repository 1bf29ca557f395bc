// Package sample has a function for each kind of mistake, which its tests notice, and one
// named Weak whose tests do not notice it.
package sample

import (
	"context"
	"errors"
	"time"
)

// Small is true up to 9.
func Small(n int) bool { return n < 10 }

// WeakSmall is tested far from its limit.
func WeakSmall(n int) bool { return n < 10 }

// Both needs both, with a closure in the condition.
func Both(a bool, b func() bool) bool {
	switch {
	case a && b():
		return true
	}
	return false
}

// WeakBoth is tested with equal values only.
func WeakBoth(a, b bool) bool { return a || b }

// Save returns the error of a write.
func Save(write func() error) error {
	if err := write(); err != nil {
		return err
	}
	return nil
}

// WeakSave is tested with a write that succeeds.
func WeakSave(write func() error) error {
	if err := write(); err != nil {
		return errors.Join(errors.New("save"), err)
	}
	return nil
}

const (
	size    = 1 << 20
	timeout = 2 * time.Second
)

// Size has a number of bytes.
func Size() int64 { return size }

// Timeout has a time.
func Timeout() time.Duration { return max(timeout, 0) }

// WeakTimeout is tested to be above zero.
func WeakTimeout() time.Duration { return 3 * time.Millisecond }

// Head cuts a text.
func Head(text string, n int) string { return text[:n] }

// Writes writes in order.
func Writes(ctx context.Context, write func(context.Context, string) error) error {
	if err := write(ctx, "state"); err != nil {
		return err
	}
	if err := write(ctx, "record"); err != nil {
		return err
	}
	return nil
}

// Log is a list of texts.
type Log struct {
	Texts []string
	Dirty bool
}

func (l *Log) add(text string) { l.Texts = append(l.Texts, text) }

// WeakWrites is tested for the number of texts.
func (l *Log) WeakWrites() {
	l.add("state") // first
	l.add("record")
	l.Dirty = true
}

// Options are of a request.
type Options struct {
	IfMatch     *string
	IfNoneMatch string // nil does not compile
}

// Replace replaces one version.
func Replace(etag *string) Options { return Options{IfMatch: etag, IfNoneMatch: "*"} }

// WeakReplace is tested for its other header.
func WeakReplace(etag *string) Options { return Options{IfMatch: etag, IfNoneMatch: "*"} }

// Counter counts down.
type Counter struct{ Left int }

// Down loops if the change is missing.
func (c *Counter) Down() {
	for c.Left > 0 {
		c.Left--
	}
}

// Unused is tested nowhere.
func Unused(done <-chan bool) bool {
	select {
	case v := <-done:
		return !v
	default:
	}
	return false
}
