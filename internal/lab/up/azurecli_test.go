package up

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/spotworker/spotworker/internal/lab"
	"github.com/spotworker/spotworker/internal/lab/emulator/imds"
	"github.com/spotworker/spotworker/internal/test/need"
)

// recordingCLI stands for the Azure CLI: it records its arguments, one call a line,
// and its environment.
const recordingCLI = `#!/bin/sh
echo "$*" >>"$HOME/calls"
echo "$AZURE_CONFIG_DIR $REQUESTS_CA_BUNDLE $https_proxy $no_proxy ${AZURE_STORAGE_CONNECTION_STRING-none}" >>"$HOME/environment"
[ "$1" != login ] || [ -z "${REFUSE-}" ] || exit 1
[ "$1 $2" != "cloud register" ] || [ ! -e "$AZURE_CONFIG_DIR" ] || exit 3
[ "$1 $2" != "cloud register" ] || [ "${PROFILES-all}" = all ] || case $* in *--profile*) exit 2 ;; esac
mkdir -p "$AZURE_CONFIG_DIR"
`

// scripted is the script of a `lab up`, and a stand-in for az beside it.
type scripted struct {
	*up
	t    *testing.T
	home string
	az   string
}

func script(t *testing.T, change ...func(*Config)) *scripted {
	t.Helper()
	need.NotOn(t, "windows", "needs a POSIX shell")
	c := upOnAnyPorts()
	for _, f := range change {
		f(&c)
	}
	u := newUp(c, &bytes.Buffer{})
	if err := u.open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := u.close(); err != nil {
			t.Error(err)
		}
	})
	s := &scripted{up: u, t: t, home: t.TempDir()}
	if err := os.WriteFile(filepath.Join(s.home, "az"), []byte(recordingCLI), 0o700); err != nil {
		t.Fatal(err)
	}
	authority, err := u.local.WriteAuthority(u.folder)
	if err != nil {
		t.Fatal(err)
	}
	if s.az, err = u.writeAzureCLI(authority); err != nil {
		t.Fatal(err)
	}
	return s
}

// run runs the script in an environment that would lead az elsewhere.
func (s *scripted) run(environment []string, arguments ...string) {
	s.t.Helper()
	if said, err := s.command(environment, arguments...).CombinedOutput(); err != nil || len(said) > 0 {
		s.t.Fatalf("az %q = %v, %s, want no error and no word", arguments, err, said)
	}
}

func (s *scripted) command(environment []string, arguments ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Minute) // a busy machine is slow, not stuck
	s.t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, s.az, arguments...)
	cmd.Env = append(environment, "PATH="+s.home+":"+os.Getenv("PATH"), "HOME="+s.home,
		"AZURE_CONFIG_DIR=/elsewhere", lab.ConnectionStringVariable+"=elsewhere", "https_proxy=http://elsewhere", "no_proxy=*")
	return cmd
}

func (s *scripted) recorded(name string) []string {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.home, name))
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// TestAzureCLISignsInOnce: the first command registers the cloud and signs in,
// the others do not.
func TestAzureCLISignsInOnce(t *testing.T) {
	s := script(t)
	s.run(nil, "vm", "list")
	s.run(nil, "group", "show", "--name", "rg")
	guid := regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	got := guid.ReplaceAllString(strings.Join(s.recorded("calls"), "\n"), "GUID")
	want := strings.Join([]string{
		"cloud register --name lab --endpoint-resource-manager " + s.local.ManagerURL +
			" --suffix-storage-endpoint storage.localhost --only-show-errors --profile 2020-09-01-hybrid",
		"cloud set --name lab --only-show-errors",
		"login --service-principal --username GUID --password any --tenant GUID --only-show-errors --output none",
		"vm list",
		"group show --name rg",
	}, "\n")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("calls of az (-want +got):\n%s", diff)
	}
}

// TestAzureCLISignsInAgain: after a sign-in that failed the next command starts with
// an empty configuration, as the cloud cannot be registered twice.
func TestAzureCLISignsInAgain(t *testing.T) {
	s := script(t)
	if err := s.command([]string{"REFUSE=login"}, "vm", "list").Run(); err == nil {
		t.Error("az continues without being signed in")
	}
	s.run(nil, "vm", "list")
	if calls := s.recorded("calls"); len(calls) != 7 || !strings.HasPrefix(calls[3], "cloud register ") || calls[6] != "vm list" {
		t.Errorf("calls of az = %q, want a sign-in that fails and one more, and then the command", calls)
	}
}

// TestAzureCLIInPath: with its folder in PATH the script does not find itself.
func TestAzureCLIInPath(t *testing.T) {
	s := script(t)
	cmd := s.command(nil, "vm", "list")
	cmd.Env = append(cmd.Env, "PATH="+strings.Join([]string{s.folder, s.home, s.folder, os.Getenv("PATH")}, ":"))
	if said, err := cmd.CombinedOutput(); err != nil || len(said) > 0 {
		t.Fatalf("az = %v, %s, want no error and no word", err, said)
	}
	if calls := s.recorded("calls"); calls[len(calls)-1] != "vm list" {
		t.Errorf("calls of az = %q, want the command last", calls)
	}
}

// TestAzureCLIWithoutOldProfiles: an az that no longer has the profile
// is registered without one.
func TestAzureCLIWithoutOldProfiles(t *testing.T) {
	s := script(t)
	s.run([]string{"PROFILES=latest"}, "vm", "list")
	calls := s.recorded("calls")
	if len(calls) != 5 || strings.Contains(calls[1], "--profile") || !strings.HasPrefix(calls[1], "cloud register ") {
		t.Errorf("calls of az = %q, want a second registration without a profile", calls)
	}
}

// TestAzureCLIStaysHere: in any environment az has a configuration of its own and a proxy
// that leads nowhere, and knows no other account.
func TestAzureCLIStaysHere(t *testing.T) {
	s := script(t)
	s.run(nil, "vm", "list")
	want := strings.Join([]string{
		filepath.Join(s.folder, "azure"), filepath.Join(s.folder, "ca.pem"), "http://127.0.0.1:1", "localhost,127.0.0.1",
		s.local.ConnectionString,
	}, " ")
	for _, got := range s.recorded("environment") {
		if got != want {
			t.Errorf("the environment of az is %s, want %s", got, want)
		}
	}
}

func TestEvictArguments(t *testing.T) {
	u := newUp(upOnAnyPorts(), &bytes.Buffer{})
	if err := u.open(); err != nil {
		t.Fatal(err)
	}
	defer u.close()
	for _, test := range []struct {
		vm   imds.VM
		want string
	}{
		{imds.VM{Name: "spot_12", ScaleSet: "spot"}, "vmss simulate-eviction --resource-group rg --name spot --instance-id 12"},
		{imds.VM{Name: "spot_1234abcd", ScaleSet: "spot"}, "vm simulate-eviction --resource-group rg --name spot_1234abcd"},
		{imds.VM{Name: "alone", ResourceGroup: "other"}, "vm simulate-eviction --resource-group other --name alone"},
	} {
		u.local.Metadata.AddVM(test.vm)
		if got := u.evictArguments(test.vm.Name); got != test.want {
			t.Errorf("arguments for %s = %s, want %s", test.vm.Name, got, test.want)
		}
	}
}

// TestManagerEvicts calls the resource manager of a lab up as az does.
func TestManagerEvicts(t *testing.T) {
	home := t.TempDir()
	if err := os.WriteFile(filepath.Join(home, "az"), []byte(recordingCLI), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", home+string(os.PathListSeparator)+os.Getenv("PATH"))
	c := upOnAnyPorts()
	c.Flexible, c.EvictionDelay = true, 0
	r := startUp(t, c)
	az := r.out.Until(t, `(/\S+/az) vm simulate-eviction --resource-group spotworker --name spotworker-spot_00000001\n`)
	script, err := os.ReadFile(az)
	if err != nil {
		t.Fatal(err)
	}
	manager := regexp.MustCompile(`https://localhost:\d+`).FindString(string(script))
	client := trusting(t, filepath.Join(filepath.Dir(az), "ca.pem"))
	reply, err := client.PostForm(manager+"/adfs/oauth2/token", url.Values{
		"grant_type": {"client_credentials"}, "client_id": {uuid.NewString()}, "client_secret": {"any"},
		"resource": {"https://management.azure.com/"},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	var signedIn struct {
		Token string `json:"access_token"`
	}
	if err := json.NewDecoder(reply.Body).Decode(&signedIn); err != nil {
		t.Fatal(err)
	}
	evict := manager + "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/spotworker/providers/Microsoft.Compute" +
		"/virtualMachines/spotworker-spot_00000001/simulateEviction?api-version=2020-06-01"
	for _, want := range []string{
		`Eviction notice: Preempt of spotworker-spot_00000001`,
		`The resource manager was asked to evict spotworker-spot_00000001, but`,
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, evict, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+signedIn.Token)
		reply, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		if _ = reply.Body.Close(); reply.StatusCode != http.StatusNoContent {
			t.Fatalf("simulateEviction = %s, want 204", reply.Status)
		}
		r.out.Until(t, want)
	}
}

// trusting is a client that trusts that authority alone.
func trusting(t *testing.T, authority string) *http.Client {
	t.Helper()
	certificate, err := os.ReadFile(authority)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(certificate)
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true,
	}}
}
