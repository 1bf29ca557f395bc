//go:build integration && linux

package programs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/lab/labtest"
	"github.com/spotworker/spotworker/internal/lab/labworker"
	"github.com/spotworker/spotworker/internal/lab/trial"
	"github.com/spotworker/spotworker/internal/test/need"
)

// TestMain lets the test binary be the worker of a trial.
func TestMain(m *testing.M) {
	labworker.WorkerMain()
	labtest.Main(m)
}

// kind are the settings of a kind.
type kind map[string]any

// try evicts a kind, and wants it to be interruptible: to have the same outputs in the end,
// and to continue from the checkpoints that it made.
func try(t *testing.T, settings kind, payload string, evictions int) {
	t.Helper()
	text, err := json.Marshal(map[string]any{"kinds": map[string]any{"program": settings}})
	if err != nil {
		t.Fatal(err)
	}
	c := trial.DefaultConfig()
	c.KindsFile, c.Payload = write(t, t.TempDir(), "kinds.json", string(text)), payload
	c.Evictions, c.Timeout = evictions, 10*time.Minute
	var out labtest.Output
	report, err := trial.Run(t.Context(), c, &out)
	if err != nil || !report.Interruptible {
		t.Fatalf("Run = %v, want it to be interruptible\n%s", err, out.String())
	}
	resumed := false
	for _, e := range report.Evictions {
		resumed = resumed || e.Redone < e.After-0.5
	}
	if !resumed {
		t.Errorf("no run continued from a checkpoint\n%s", out.String())
	}
	t.Log(out.String())
}

func write(t *testing.T, folder, name, text string) string {
	t.Helper()
	file := filepath.Join(folder, name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func output(t *testing.T, folder string, words ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), words[0], words[1:]...)
	cmd.Dir = folder
	said, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%q = %v: %s", words, err, said)
	}
	return string(said)
}

// TestLAMMPS simulates a melting crystal. LAMMPS is ended by SIGTERM, and continues from the
// restart file of the highest step.
func TestLAMMPS(t *testing.T) {
	lmp := need.Command(t, "lmp")
	t.Parallel()
	const run = `
neighbor 0.3 bin
neigh_modify every 20 delay 0 check no
fix 1 all nve
thermo 1000
restart 1000 md.*.restart
run 12000 upto
write_data final.data nocoeff
`
	folder := t.TempDir()
	resume := write(t, folder, "in.resume", "read_restart md.*.restart\n"+run)
	try(t, kind{
		"command": []string{lmp, "-in", "payload"}, "resume_command": []string{lmp, "-in", resume},
		"checkpoint_files": []string{"md.*.restart"}, "outputs": map[string]any{"from": []string{"final.data"}},
		"environment": map[string]string{"OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"},
	}, `units lj
atom_style atomic
lattice fcc 0.8442
region box block 0 6 0 6 0 6
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 3.0 87287 loop geom
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
`+run, 2)
}

// TestJohn searches passwords in a list. John keeps its files below the home of its user, or
// in its working folder for a user without an entry in /etc/passwd, as a worker's programs
// are: here that takes a user namespace.
func TestJohn(t *testing.T) {
	john := need.Command(t, "john")
	unshare, perl := need.Command(t, "unshare"), need.Command(t, "perl")
	t.Parallel()
	const words = 100_000
	hash := func(word int) string {
		return strings.TrimSpace(output(t, "", perl, "-e", fmt.Sprintf(`print crypt("%08d", '$1$spot')`, word)))
	}
	var list, hashes bytes.Buffer
	for i := range words {
		fmt.Fprintf(&list, "%08d\n", i)
	}
	for i, word := range []int{words / 10, words / 2, words - 1} {
		fmt.Fprintf(&hashes, "user%d:%s\n", i, hash(word))
	}
	file := write(t, t.TempDir(), "words", list.String())
	as := func(command string) []string {
		return []string{unshare, "--user", "--map-user=65001", "sh", "-c", command}
	}
	try(t, kind{
		"command":          as("mkdir .john && exec " + john + " --session=s --wordlist=" + file + " payload"),
		"resume_command":   as("exec " + john + " --restore=s"),
		"checkpoint_files": []string{"s.rec", "s.log", ".john/*"}, "outputs": map[string]any{"from": []string{".john/john.pot"}},
		"environment": map[string]string{"OMP_NUM_THREADS": "1"},
	}, hashes.String(), 2)
}

// TestGROMACS simulates a drop of water. mdrun saves when it gets SIGTERM, exits with 1, and
// appends to its own files when it continues.
func TestGROMACS(t *testing.T) {
	gmx, box := []string{need.Command(t, "gmx")}, "7" // nanometres: some seconds of work
	if flags, err := os.ReadFile("/proc/cpuinfo"); err == nil && !bytes.Contains(flags, []byte(" rdtscp")) {
		// Debian's build needs that instruction. The emulator is much slower.
		gmx, box = []string{need.Command(t, "qemu-x86_64"), "-cpu", "max", gmx[0]}, "1.4"
	}
	t.Parallel()
	folder := t.TempDir()
	write(t, folder, "md.mdp", `integrator = md
dt = 0.001
nsteps = 500
nstlist = 5
nstxout-compressed = 50
nstenergy = 50
verlet-buffer-tolerance = 0.1
coulombtype = cut-off
rcoulomb = 0.5
rvdw = 0.5
constraints = all-bonds
gen-vel = yes
gen-seed = 7
ld-seed = 7
`)
	write(t, folder, "topol.top", "#include \"oplsaa.ff/forcefield.itp\"\n#include \"oplsaa.ff/spce.itp\"\n[ system ]\nwater\n[ molecules ]\n")
	output(t, folder, "gmx", "solvate", "-cs", "spc216", "-box", box, box, box, "-o", "conf.gro", "-p", "topol.top")
	output(t, folder, "gmx", "grompp", "-f", "md.mdp", "-c", "conf.gro", "-p", "topol.top", "-o", "md.tpr", "-maxwarn", "5")
	command := append(gmx, "mdrun", "-s", filepath.Join(folder, "md.tpr"), "-deffnm", "md", "-cpt", "0.03",
		"-ntmpi", "1", "-ntomp", "1", "-reprod")
	try(t, kind{
		"command": command, "resume_command": append(slices.Clip(command), "-cpi", "md.cpt"),
		"checkpoint_files": []string{"md.cpt", "md.*"}, "outputs": map[string]any{"from": []string{"md.gro", "md.xtc"}},
	}, "", 2)
}
