package job

import (
	"context"
	"log/slog"
)

type loggerKey struct{}

// Logger returns the logger of the job whose handler got ctx: every line has the job's
// id, kind and generation, in addition to the attributes of the worker. Lines of level
// info and above are also kept with the job ("spotctl logs"). Without a worker, as in a
// test, it is [slog.Default].
func Logger(ctx context.Context) *slog.Logger {
	if log, ok := ctx.Value(loggerKey{}).(*slog.Logger); ok {
		return log
	}
	return slog.Default()
}

// WithLogger returns a context whose [Logger] is log. The worker calls it, and so may a
// test.
func WithLogger(ctx context.Context, log *slog.Logger) context.Context {
	return context.WithValue(ctx, loggerKey{}, log)
}

type printerKey struct{}

// Print adds a line to the kept output of the job whose handler got ctx, which "spotctl
// logs" shows, and not to the worker's log. It is for the output of programs that a
// handler runs; source says where the line is from, such as stdout. The line may have
// any bytes; one that ends with a carriage return is replaced by the next of its source,
// as in a progress bar. Print keeps none of them, and may be called from many goroutines.
// Without a worker, as in a test, it does nothing.
func Print(ctx context.Context, source string, line []byte) {
	if add, ok := ctx.Value(printerKey{}).(func(string, []byte)); ok {
		add(source, line)
	}
}

// WithPrinter returns a context in which [Print] calls add. The worker calls it, and so
// may a test.
func WithPrinter(ctx context.Context, add func(source string, line []byte)) context.Context {
	return context.WithValue(ctx, printerKey{}, add)
}
