package vmpackage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
)

// SignatureNamespace is the purpose of packages' signatures. A signature of the same
// key for another purpose, such as a commit, does not pass as a package's signature.
const SignatureNamespace = "spotworker-package"

// SignatureSuffix follows a package's name in the name of its signature.
const SignatureSuffix = ".sig"

// sign writes a detached signature beside a file, with OpenSSH: any key that git
// signs commits with will do, and ssh-keygen is wherever packages are made. Without
// a key it removes an old signature, which is of another package.
func sign(ctx context.Context, key, path string) error {
	if err := os.Remove(path + SignatureSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if key == "" {
		return nil
	}
	//nolint:gosec // a command of ours with the caller's key
	cmd := exec.CommandContext(ctx, "ssh-keygen", "-Y", "sign", "-f", key, "-n", SignatureNamespace, path)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said // it asks for a passphrase on the terminal
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("sign %s with %s: %w: %s", path, key, err, strings.TrimSpace(said.String()))
	}
	return nil
}
