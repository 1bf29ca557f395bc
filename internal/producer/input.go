package producer

import (
	"context"
	"fmt"
	"io"
	"os"
)

// Interruptible returns a reader of in whose reads end with ctx, which those of
// a terminal or a pipe cannot. The goroutine that reads in ends with in, or with
// its first byte after ctx ended; where that never comes, with the process.
func Interruptible(ctx context.Context, in io.Reader) io.Reader {
	reader, writer := io.Pipe()
	context.AfterFunc(ctx, func() { _ = writer.CloseWithError(context.Cause(ctx)) })
	go func() {
		_, err := io.Copy(writer, in)
		_ = writer.CloseWithError(err) // nil is the end of the input
	}()
	return reader
}

// Spool copies in to a temporary file, for an input that must be read twice.
// remove closes and deletes it.
func Spool(in io.Reader) (file *os.File, remove func(), err error) {
	file, err = os.CreateTemp("", "producer-*.jsonl")
	if err != nil {
		return nil, nil, fmt.Errorf("keep the input: %w", err)
	}
	remove = func() {
		_ = file.Close()
		_ = os.Remove(file.Name())
	}
	if _, err = io.Copy(file, in); err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		remove()
		return nil, nil, fmt.Errorf("keep the input: %w", err)
	}
	return file, remove, nil
}
