package vmpackage

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/test/need"
	"github.com/spotworker/spotworker/internal/test/proof"
)

// TestSign: each package gets a signature that OpenSSH verifies, for this purpose
// alone, and a package that is made without a key keeps no old one.
func TestSign(t *testing.T) {
	proof.Only(t, "it signs whole packages")
	need.Command(t, "ssh-keygen")
	c, keys := tiny(t), t.TempDir()
	c.SigningKey = filepath.Join(keys, "key")
	if out, err := exec.CommandContext(t.Context(), "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "release", "-f",
		c.SigningKey).CombinedOutput(); err != nil {
		t.Fatalf("ssh-keygen: %v: %s", err, out)
	}
	public, err := os.ReadFile(c.SigningKey + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	signers := filepath.Join(keys, "signers")
	if err := os.WriteFile(signers, append([]byte("release@example.com "), public...), 0o600); err != nil {
		t.Fatal(err)
	}
	verify := func(namespace, path, signature string) error {
		cmd := exec.CommandContext(t.Context(), "ssh-keygen", "-Y", "verify", "-f", signers, "-I", "release@example.com", "-n", namespace, "-s",
			signature)
		var err error
		if cmd.Stdin, err = os.Open(path); err != nil {
			t.Fatal(err)
		}
		return cmd.Run()
	}

	made, err := Make(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	path := made[0].Path
	if err := verify(SignatureNamespace, path, path+SignatureSuffix); err != nil {
		t.Errorf("verify the package = %v, want nil", err)
	}
	if err := verify("git", path, path+SignatureSuffix); err == nil {
		t.Error("verify the package as a commit = nil, want an error")
	}
	if err := verify(SignatureNamespace, filepath.Join(c.Out, sumsName), path+SignatureSuffix); err == nil {
		t.Error("verify another file with the package's signature = nil, want an error")
	}

	key := c.SigningKey
	c.SigningKey = filepath.Join(keys, "missing")
	if _, err := Make(t.Context(), c); err == nil || !strings.Contains(err.Error(), "with "+c.SigningKey) {
		t.Errorf("Make with a key that is not there = %v, want an error that names it", err)
	}
	c.SigningKey = key
	if _, err := Make(t.Context(), c); err != nil { // there is a signature again
		t.Fatal(err)
	}
	c.SigningKey = ""
	if _, err := Make(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path + SignatureSuffix); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("old signature after Make without a key: %v, want that it is gone", err)
	}
}
