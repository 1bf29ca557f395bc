package readahead

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

var object = []byte("0123456789abcdefghijklmnopqrstuvwxyz")

// TestReadsInOrder: later ranges that are answered first wait for their turn, as many
// are in flight as the budget allows, and all places are free at the end.
func TestReadsInOrder(t *testing.T) {
	for _, row := range []struct{ places, most int }{{0, 1}, {2, 3}, {100, 4}} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			flight, most := make(chan struct{}, 100), 0
			budget := NewBudget(row.places)
			r := New(ctx, Plan{Size: int64(len(object)), Length: 5, Ahead: 4, Budget: budget},
				func(_ context.Context, data []byte, offset int64) (int64, error) {
					flight <- struct{}{}
					time.Sleep(time.Duration(100-offset) * time.Millisecond) // later ones are faster
					<-flight
					copy(data, object[offset:])
					return offset, nil
				})
			var got bytes.Buffer
			for {
				synctest.Wait()
				next, err := r.Next()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil || next.Err != nil || next.Value != int64(got.Len()) {
					t.Fatalf("range at %d: %v, %v, value %d", got.Len(), err, next.Err, next.Value)
				}
				got.Write(next.Data)
				most = max(most, len(r.ranges)+1)
			}
			if got.String() != string(object) {
				t.Errorf("read %q, want %q", got.String(), object)
			}
			if most != row.most {
				t.Errorf("with %d places at most %d ranges were read at once, want %d", row.places, most, row.most)
			}
			cancel()
			synctest.Wait()
			if len(budget) != 0 {
				t.Errorf("%d places are still taken", len(budget))
			}
		})
	}
}

// TestFailedRange: an error is handed out with its range, when its turn comes.
func TestFailedRange(t *testing.T) {
	failure := errors.New("no answer")
	r := New(t.Context(), Plan{Size: 10, Length: 5, Ahead: 2, Budget: NewBudget(1)},
		func(_ context.Context, _ []byte, offset int64) (struct{}, error) {
			if offset == 5 {
				return struct{}{}, failure
			}
			return struct{}{}, nil
		})
	if next, err := r.Next(); err != nil || next.Offset != 0 || next.Err != nil {
		t.Errorf("first range: %v, %v", err, next)
	}
	if next, err := r.Next(); err != nil || next.Offset != 5 || !errors.Is(next.Err, failure) {
		t.Errorf("second range: %v, %v, want the failure", err, next)
	}
}

// TestEnd: when the context ends, the reader stops with its cause and frees the budget
// once nothing is in flight.
func TestEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := errors.New("evicted")
		ctx, cancel := context.WithCancelCause(t.Context())
		budget := NewBudget(3)
		r := New(ctx, Plan{Size: 100, Length: 5, Ahead: 4, Budget: budget}, func(ctx context.Context, _ []byte, _ int64) (struct{}, error) {
			<-ctx.Done()
			time.Sleep(time.Second) // the call takes a while to end
			return struct{}{}, ctx.Err()
		})
		time.AfterFunc(time.Minute, func() { cancel(cause) })
		if _, err := r.Next(); !errors.Is(err, cause) {
			t.Errorf("error %v, want %v", err, cause)
		}
		if len(budget) != 3 {
			t.Errorf("%d places are taken while calls are in flight, want 3", len(budget))
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if len(budget) != 0 {
			t.Errorf("%d places are still taken", len(budget))
		}
	})
}
