package checkpoint

import (
	"errors"
	"fmt"
	"io"
)

// Why a state cannot be saved. Nothing of it is recorded.
var (
	// ErrTooLarge means that the state is larger than [MaxStream].
	ErrTooLarge = errors.New("state is too large")

	// ErrUnreadable means that the handler's stream returned an error or panicked.
	ErrUnreadable = errors.New("state cannot be read")
)

// stream is a state that a handler reports as a stream. The stream is the handler's code,
// and the worker runs other jobs too: its errors and panics are returned in an error that
// wraps [ErrUnreadable], and a state that does not end in [ErrTooLarge].
type stream struct {
	from  io.ReadCloser
	limit int64 // bytes
	read  int64 // bytes
}

// open opens the stream of a state that has at most limit bytes.
func open(from func() (io.ReadCloser, error), limit int64) (s *stream, err error) {
	defer recoverPanic(&err)
	switch state, err := from(); {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	case state == nil:
		return nil, fmt.Errorf("%w: there is no stream", ErrUnreadable)
	default:
		return &stream{from: state, limit: limit}, nil
	}
}

// Read implements [io.Reader].
func (s *stream) Read(p []byte) (n int, err error) {
	defer recoverPanic(&err)
	n, err = s.from.Read(p)
	if n < 0 || n > len(p) {
		return 0, fmt.Errorf("%w: it says that it has read %d bytes of %d", ErrUnreadable, n, len(p))
	}
	if s.read += int64(n); s.read > s.limit {
		return n, fmt.Errorf("%w: it has more than %d bytes", ErrTooLarge, s.limit)
	}
	if err == nil || err == io.EOF { // only io.EOF itself is the end of a state
		return n, err
	}
	return n, fmt.Errorf("%w: %w", ErrUnreadable, err)
}

// close closes the stream, which was read as far as it is needed.
func (s *stream) close() {
	var panicked error
	defer recoverPanic(&panicked)
	_ = s.from.Close()
}

// recoverPanic turns a panic of the handler's code into an error.
func recoverPanic(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%w: it panicked: %v", ErrUnreadable, p)
	}
}
