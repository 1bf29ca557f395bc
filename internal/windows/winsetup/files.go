package winsetup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spotworker/spotworker/internal/host/sandbox"
	"github.com/spotworker/spotworker/internal/windows/winservice"
)

const unfinishedPrefix = ".unfinished."

// errLasting marks an error that waiting does not help against.
var errLasting = errors.New("it stays so")

func (s *Setup) executable(release string) string {
	return filepath.Join(s.release(release), Executable)
}

// arguments returns the command line of a service. Paths name the release and not
// one in use, so that a worker has its programs to its end. Every version knows
// these flags: an update that is undone gives them to the version before.
func (s *Setup) arguments(release, service string, instance int) []string {
	args := []string{"service", "run", "--name", service, "--environment-file", filepath.Join(s.release(release), "package.env")}
	if service != Service {
		args = append(args, "--environment-file", filepath.Join(s.release(release), fmt.Sprintf("instance-%d.env", instance)))
	}
	return append(args, "--environment-file", s.data(ConfigurationFile), "--log-file", s.logOf(service))
}

// packageSettings returns the files of settings that follow from the package and
// the VM.
func (d *deployment) packageSettings() map[string]string {
	settings := "SPOTWORKER_SCRATCH=" + d.data("scratch") + "\n"
	if d.pack.kinds {
		settings += "SPOTWORKER_KINDS_FILE=" + filepath.Join(d.release(d.pack.release), filepath.FromSlash(kindsFile)) + "\n"
	}
	files := map[string]string{"package.env": settings}
	for i := range maxInstances {
		files[fmt.Sprintf("instance-%d.env", i)] = fmt.Sprintf("SPOTWORKER_INSTANCE=%d\nSPOTWORKER_RUNTIME_DIR=%s\n", i, d.data("run"))
	}
	return files
}

// place copies this release completely or not at all. It removes the folders that
// an interrupted installation left.
func (d *deployment) place(ctx context.Context) error {
	old, err := filepath.Glob(filepath.Join(d.Programs, unfinishedPrefix+"*"))
	if err != nil {
		return err
	}
	for _, folder := range old {
		if err := d.insist(ctx, func() error { return removeTree(folder) }); err != nil {
			return err
		}
	}
	if _, err := os.Stat(d.release(d.pack.release)); err == nil {
		return nil
	}
	unfinished := d.release(fmt.Sprintf("%s%d", unfinishedPrefix, os.Getpid()))
	if err := d.fill(unfinished); err != nil {
		return errors.Join(err, removeTree(unfinished))
	}
	return d.insist(ctx, func() error { return os.Rename(unfinished, d.release(d.pack.release)) })
}

// fill copies the package's files into a folder.
func (d *deployment) fill(folder string) error {
	for _, name := range d.pack.files {
		name = filepath.FromSlash(name)
		if err := copyFile(filepath.Join(d.Package, name), filepath.Join(folder, name)); err != nil {
			return err
		}
	}
	for name, text := range d.packageSettings() {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil { //nolint:gosec // no secret
			return err
		}
	}
	return nil
}

func copyFile(from, to string) (err error) {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil { //nolint:gosec // its access list is inherited
		return err
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o755) //nolint:gosec // programs of jobs are among them
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		return errors.Join(err, out.Close())
	}
	if err := out.Sync(); err != nil {
		return errors.Join(err, out.Close())
	}
	return out.Close()
}

// configure writes worker.env and makes the workers' folders. Only SYSTEM,
// administrators and the workers read the file, since it may hold the key of an
// emulator.
func (d *deployment) configure(ctx context.Context) error {
	if err := os.MkdirAll(d.Data, 0o755); err != nil { //nolint:gosec // Protect follows
		return err
	}
	if err := d.Protect(d.Data, winservice.Access{Services: d.config.services}); err != nil {
		return err
	}
	for _, name := range []string{"logs", "scratch", "run"} {
		if err := os.MkdirAll(d.data(name), 0o755); err != nil { //nolint:gosec // as above
			return err
		}
		if err := d.Protect(d.data(name), winservice.Access{Services: d.config.services, Change: true}); err != nil {
			return err
		}
	}
	there, err := os.ReadFile(d.data(ConfigurationFile))
	switch {
	case err == nil:
		if err := os.WriteFile(d.data(backupName), there, 0o600); err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	unfinished := d.data(ConfigurationFile + ".new")
	if err := os.WriteFile(unfinished, d.config.text, 0o600); err != nil {
		return err
	}
	return d.insist(ctx, func() error { return os.Rename(unfinished, d.data(ConfigurationFile)) })
}

// tidy removes releases that were replaced, and duplicates: the platform keeps a
// folder for each version with the package and its files. What cannot be removed
// now, the next version removes.
func (d *deployment) tidy(ctx context.Context) {
	_ = removeFile(d.data(backupName))
	entries, _ := os.ReadDir(d.Programs)
	for _, entry := range entries {
		if entry.IsDir() && entry.Name() != d.pack.release {
			if err := d.insist(ctx, func() error { return removeTree(d.release(entry.Name())) }); err != nil {
				d.say("release %s is left for the next version to remove: %v", entry.Name(), err)
			}
		}
	}
	if !strings.Contains(d.Package, "Microsoft.CPlat.Core.VMApplicationManagerWindows") {
		return
	}
	versions := filepath.Dir(d.Package)
	entries, _ = os.ReadDir(versions)
	for _, entry := range entries {
		version := filepath.Join(versions, entry.Name())
		if _, err := os.Stat(filepath.Join(version, ReleaseFile)); err == nil && version != d.Package {
			removeAllBut(version, "stdout", "stderr")
		}
	}
}

// removeAllBut empties a folder, except for files of these names.
func removeAllBut(folder string, keep ...string) {
	entries, _ := os.ReadDir(folder)
	for _, entry := range entries {
		kept := false
		for _, name := range keep {
			kept = kept || entry.Name() == name
		}
		if !kept {
			_ = removeTree(filepath.Join(folder, entry.Name())) // the platform removes the folder some day
		}
	}
}

// removeTree removes a file or a folder that may be missing, with all that is in it.
func removeTree(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return removeFile(path)
	}
	return sandbox.RemoveTree(path)
}

// removeFile removes a file that may be missing.
func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
