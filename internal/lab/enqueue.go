package lab

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
)

// enqueue runs the producer, which puts a digest job on the queue for every blob
// of the container, and makes the queues and containers that it needs. It returns
// how many job ids the producer confirmed.
func enqueue(ctx context.Context, producer, connectionString, container string) (int, error) {
	if err := checkStorage(connectionString); err != nil {
		return 0, fmt.Errorf("start the producer: %w", err)
	}
	cmd := exec.CommandContext(ctx, producer, "digests", "--container="+container) //nolint:gosec // the binary was built by us
	cmd.Env = environment(connectionString)
	cmd.SysProcAttr = apart()
	var ids, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &ids, &said
	if err := cmd.Run(); err != nil {
		return 0, fmt.Errorf("enqueue with the producer: %w: %s", err, bytes.TrimSpace(said.Bytes()))
	}
	return len(bytes.Fields(ids.Bytes())), nil
}
