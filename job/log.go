package job

import (
	"context"
	"log/slog"
)

type loggerKey struct{}

// Logger returns the logger of the job whose handler got ctx: every line has the job's
// id, kind and generation, beside those of the worker. Without a worker, as in a test,
// it is [slog.Default].
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
