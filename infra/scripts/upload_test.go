package scripts

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/test/need"
	"github.com/spotworker/spotworker/internal/test/proof"
)

func TestDeployRefusesAnotherPackageOfTheSameVersion(t *testing.T) {
	proof.Only(t, "each run of deploy.sh is hundreds of processes")
	t.Parallel()
	a := newSubscription(t)
	if said, _, err := a.deploy("--yes"); err != nil {
		t.Fatalf("deploy: %v\n%s", err, said)
	}
	a.pack("package.tar.gz", "RELEASE=1.2.4-0123456789ab\nARCHITECTURE=amd64\n")
	said, calls, err := a.deploy("--yes")
	if err == nil || !strings.Contains(said, "set APPLICATION_VERSION to a higher one") {
		t.Errorf("deploy of another package = %v, want a refusal; it said:\n%s", err, said)
	}
	if got := changing(calls); slices.Contains(got, "deployment group create Workers true") {
		t.Errorf("the scale set was deployed all the same: %q", got)
	}
}

// TestDeployOverwritesNoPackage: a package that a list does not show yet stays as it is.
// VMs that have it would otherwise keep another one.
func TestDeployOverwritesNoPackage(t *testing.T) {
	proof.Only(t, "each run of deploy.sh is hundreds of processes")
	t.Parallel()
	a := newSubscription(t)
	a.write(blobNote("1.0.0/spotworker.tar.gz"), "other", 0o600)
	a.write("stale", "", 0o600)
	said, calls, err := a.deploy("--yes")
	if err == nil || !strings.Contains(said, "BlobAlreadyExists") || a.read(blobNote("1.0.0/spotworker.tar.gz")) != "other" {
		t.Errorf("deploy over another package = %v, want a failure that keeps it; it said:\n%s", err, said)
	}
	if got := strings.Join(changing(calls), ", "); strings.Contains(got, "Application") {
		t.Errorf("a version was made of another package: %s", got)
	}
}

// TestDeployVerifiesTheSignature: with ALLOWED_SIGNERS a package without a good
// signature of one of them is not uploaded.
func TestDeployVerifiesTheSignature(t *testing.T) {
	proof.Only(t, "each run of deploy.sh is hundreds of processes")
	keygen := need.Command(t, "ssh-keygen")
	run := func(t *testing.T, arguments ...string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), keygen, arguments...).CombinedOutput(); err != nil {
			t.Fatalf("ssh-keygen %q: %v: %s", arguments, err, out)
		}
	}
	signed := func(t *testing.T, a *subscription, key, namespace string) {
		t.Helper()
		run(t, "-Y", "sign", "-f", filepath.Join(a.folder, key), "-n", namespace, a.pkg)
	}
	for _, c := range []struct {
		name    string
		prepare func(t *testing.T, a *subscription)
		want    string // in the output; empty where it deploys
	}{
		{"signed", func(t *testing.T, a *subscription) { signed(t, a, "release", "spotworker-package") }, ""},
		{"without a signature", func(*testing.T, *subscription) {}, "has no signature"},
		{"changed", func(t *testing.T, a *subscription) {
			signed(t, a, "release", "spotworker-package")
			a.pack("package.tar.gz", "RELEASE=1.2.3-0123456789ab\nARCHITECTURE=amd64\nCHANGED=yes\n")
		}, "by release@example.com does not match"},
		{"exchanged later", func(t *testing.T, a *subscription) {
			signed(t, a, "release", "spotworker-package")
			a.pack("exchanged.tar.gz", "RELEASE=1.2.3-0123456789ab\nARCHITECTURE=amd64\nCHANGED=yes\n")
		}, "by release@example.com does not match"},
		{"signed for something else", func(t *testing.T, a *subscription) { signed(t, a, "release", "git") }, "does not match"},
		{"signed by somebody else", func(t *testing.T, a *subscription) { signed(t, a, "other", "spotworker-package") }, "is of no signer in"},
		{"damaged signature", func(_ *testing.T, a *subscription) { a.write("package.tar.gz.sig", "garbage", 0o600) }, "cannot be read"},
		{"no list", func(_ *testing.T, a *subscription) { a.env = []string{"ALLOWED_SIGNERS=/nowhere"} }, "there is no such file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := newSubscription(t)
			for _, key := range []string{"release", "other"} {
				run(t, "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(a.folder, key))
			}
			public, err := os.ReadFile(filepath.Join(a.folder, "release.pub"))
			if err != nil {
				t.Fatal(err)
			}
			a.write("signers", "release@example.com "+string(public), 0o600)
			a.env = []string{"ALLOWED_SIGNERS=" + filepath.Join(a.folder, "signers")}
			c.prepare(t, a)
			said, calls, err := a.deploy("--yes")
			if strings.Contains(said, "No principal matched") || strings.Contains(said, "parse signature") {
				t.Errorf("a person reads the words of ssh-keygen:\n%s", said)
			}
			if c.want == "" {
				if err != nil || !strings.Contains(said, "is signed by release@example.com") || !slices.Equal(changing(calls), everyStep) {
					t.Errorf("deploy = %v after %q, want every step; it said:\n%s", err, changing(calls), said)
				}
				return
			}
			if uploads := strings.Contains(strings.Join(changing(calls), ","), "storage blob upload"); c.name == "exchanged later" {
				if err == nil || !strings.Contains(said, c.want) || uploads {
					t.Errorf("deploy = %v after %q, want a failure with %q before the upload; it said:\n%s", err, changing(calls), c.want, said)
				}
				return
			}
			if err == nil || !strings.Contains(said, c.want) || len(changing(calls)) > 0 {
				t.Errorf("deploy = %v after %q, want a failure with %q before any change; it said:\n%s", err, changing(calls), c.want, said)
			}
		})
	}
}

// TestDeployConfigurationInPackage: the fallback for where the gallery cannot read
// a configuration.
func TestDeployConfigurationInPackage(t *testing.T) {
	proof.Only(t, "each run of deploy.sh is hundreds of processes")
	t.Parallel()
	a := newSubscription(t)
	a.env = []string{"CONFIGURATION_IN=Package", "GOCACHE=" + goEnv(t, "GOCACHE"), "GOMODCACHE=" + goEnv(t, "GOMODCACHE")}
	a.env = append(a.env, "PATH="+a.folder+":"+os.Getenv("PATH"))
	said, calls, err := a.deploy("--yes")
	if err != nil {
		t.Fatalf("deploy: %v\n%s", err, said)
	}
	uploads := 0
	for _, call := range calls {
		if strings.Contains(call, "storage blob upload") {
			uploads++
		}
		if strings.Contains(call, "deployment group create") && !strings.Contains(call, "configurationIn=Package") {
			t.Errorf("%q does not say where the configuration is", call)
		}
	}
	if uploads != 1 {
		t.Errorf("%d files were uploaded, want the package alone:\n%s", uploads, said)
	}
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", name).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

func TestDeployWaitsForRoles(t *testing.T) {
	t.Parallel()
	a := newSubscription(t)
	a.write("refuse", "", 0o600)
	said, calls, err := a.deploy("--yes")
	if err != nil || !strings.Contains(said, "not allowed yet") {
		t.Errorf("deploy while roles are on their way = %v, want patience; it said:\n%s", err, said)
	}
	if got := changing(calls); !slices.Equal(got, everyStep) {
		t.Errorf("it made %q, want %q", got, everyStep)
	}
}

// TestDeployWithinTheRegion: where addresses have no effect, deploy does not only blame them.
func TestDeployWithinTheRegion(t *testing.T) {
	proof.Only(t, "each run of deploy.sh is hundreds of processes")
	t.Parallel()
	a := newSubscription(t)
	a.write("refused", "", 0o600)
	said, calls, err := a.deploy("--yes")
	if err == nil || slices.Contains(changing(calls), "storage blob upload") {
		t.Errorf("deploy = %v after %q, want a failure before the upload", err, changing(calls))
	}
	for _, want := range []string{"in Azure in westeurope", "addresses have no effect", "otherSubnets", "storageFirewall: false"} {
		if !strings.Contains(said, want) {
			t.Errorf("the message does not say %q:\n%s", want, said)
		}
	}
}
