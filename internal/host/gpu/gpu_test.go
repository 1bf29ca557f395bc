//go:build unix

package gpu

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// machine is a stand-in for the files of a machine.
type machine struct {
	t   *testing.T
	dir string
}

func newMachine(t *testing.T, files ...string) machine {
	m := machine{t, t.TempDir()}
	t.Setenv("PATH", filepath.Join(m.dir, "bin")+":/usr/bin:/bin")
	for _, file := range files {
		m.write(file, "1\n", 0o600)
	}
	return m
}

func (m machine) write(name, text string, mode os.FileMode) {
	m.t.Helper()
	name = filepath.Join(m.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), mode)); err != nil {
		m.t.Fatal(err)
	}
}

func (m machine) remove(name string) {
	m.t.Helper()
	if err := os.Remove(filepath.Join(m.dir, name)); err != nil {
		m.t.Fatal(err)
	}
}

// smi installs the stand-in for nvidia-smi. It prints the file with the index that it is asked for,
// and fails where there is none.
func (m machine) smi() {
	m.write("bin/nvidia-smi", `#!/bin/sh
[ "$2" = --query-gpu=name ] || exit 2
cat "`+m.dir+`/${1#--id=}" 2>/dev/null && exit
echo "Unable to determine the device handle for GPU 0001:00:00.0: GPU is lost."
exit 15
`, 0o700)
	m.write("0", "Tesla T4\n", 0o600)
	m.write("1", "Tesla T4\n", 0o600)
}

func (m machine) pool(list ...string) *Pool {
	p := Open(Config{List: list, Log: slog.New(slog.DiscardHandler), Root: m.dir})
	m.t.Cleanup(p.Close)
	return p
}

// TestFind: indexes are those of the GPUs that are found, whatever else has a similar name.
func TestFind(t *testing.T) {
	for name, row := range map[string]struct {
		files, list []string
		want        map[string]string // of a job that takes all
		hidden      map[string]string // of one that takes none
	}{
		"none": {files: []string{"dev/nvidiactl", "dev/nvidia-uvm", "dev/dri/renderD128"}},
		"NVIDIA": {files: []string{"dev/nvidia0", "dev/nvidia3", "dev/nvidiactl", "dev/kfd", "dev/dri/renderD128"},
			want:   map[string]string{"CUDA_VISIBLE_DEVICES": "0,1", "NVIDIA_VISIBLE_DEVICES": "0,1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
			hidden: map[string]string{"CUDA_VISIBLE_DEVICES": "-1", "NVIDIA_VISIBLE_DEVICES": "void"}},
		"a list": {files: []string{"dev/nvidia0", "dev/nvidia1"}, list: []string{"GPU-aa", "1", "7"},
			want:   map[string]string{"CUDA_VISIBLE_DEVICES": "GPU-aa,1", "NVIDIA_VISIBLE_DEVICES": "GPU-aa,1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
			hidden: map[string]string{"CUDA_VISIBLE_DEVICES": "-1", "NVIDIA_VISIBLE_DEVICES": "void"}},
		"an empty list": {files: []string{"dev/nvidia0"}, list: []string{}},
	} {
		m := newMachine(t, row.files...)
		p := m.pool(row.list...)
		var got map[string]string
		if n := p.Count(); n > 0 {
			if _, _, err := p.Reserve("a", n); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			devices, _ := p.Join("a")
			got = p.Variables(devices)
		}
		if diff := cmp.Diff(row.want, got); diff != "" {
			t.Errorf("%s: variables (-want +got)\n%s", name, diff)
		}
		if got := p.Variables(nil); !maps.Equal(got, row.hidden) {
			t.Errorf("%s: variables of another job = %v, want %v", name, got, row.hidden)
		}
		if _, _, err := p.Reserve("b", p.Count()+1); err == nil || !strings.Contains(err.Error(), "jobs can have") {
			t.Errorf("%s: Reserve of too many = %v", name, err)
		}
	}
}

// TestExclusive: however many jobs ask at once, no GPU has two, and a job that waits gets what
// becomes free. A handler that outlives its delivery keeps its GPUs.
func TestExclusive(t *testing.T) {
	p := newMachine(t, "dev/nvidia0", "dev/nvidia1", "dev/nvidia2").pool()
	var users sync.Map
	var jobs sync.WaitGroup
	for i := range 24 {
		jobs.Go(func() {
			id, n := fmt.Sprint(i), 1+i%2
			for {
				release, changed, err := p.Reserve(id, n)
				if err != nil {
					t.Error(err)
					return
				}
				if changed != nil {
					<-changed
					continue
				}
				devices, leave := p.Join(id)
				release()
				for _, d := range devices {
					if other, loaded := users.LoadOrStore(d, id); loaded {
						t.Errorf("jobs %s and %s have GPU %s", id, other, d)
					}
				}
				time.Sleep(time.Millisecond)
				for _, d := range devices {
					users.Delete(d)
				}
				if leave(); len(devices) != n {
					t.Errorf("job %s has %v, want %d", id, devices, n)
				}
				return
			}
		})
	}
	jobs.Wait()
	if devices, _ := p.Join("1"); devices != nil || len(p.jobs) != 0 {
		t.Errorf("a job that has ended has %v", devices)
	}
}

// TestBroken: a GPU that nvidia-smi cannot reach, or that it reports as lost, is given to no job
// until that is over, and is named. A job that has it keeps it.
func TestBroken(t *testing.T) {
	m := newMachine(t, "dev/nvidia0", "dev/nvidia1")
	m.smi()
	p := m.pool()
	release, _, err := p.Reserve("a", 2)
	if err != nil || p.Faults() != "" {
		t.Fatalf("Reserve = %v with %q broken", err, p.Faults())
	}
	for name, row := range map[string]struct {
		do   func()
		want string
	}{
		"fails":   {func() { m.remove("1") }, "1 (Tesla T4): nvidia-smi fails (exit status 15): Unable to determine the device handle"},
		"says so": {func() { m.write("1", "[GPU is lost]\n", 0o600) }, "1 (Tesla T4): nvidia-smi says: [GPU is lost]"},
		"is gone": {func() { m.remove("dev/nvidia1") }, "1 (Tesla T4): its device is gone"},
	} {
		row.do()
		p.check(t.Context())
		if got := p.Faults(); !strings.HasPrefix(got, row.want) {
			t.Errorf("%s: broken = %q, want %q", name, got, row.want)
		}
		if _, _, err := p.Reserve("b", 2); err == nil {
			t.Errorf("%s: Reserve of both = %v, want it left to others", name, err)
		}
		if devices, leave := p.Join("a"); len(devices) != 2 {
			t.Errorf("%s: the job that runs has %v", name, devices)
		} else {
			leave()
		}
		changed := p.changed
		m.write("dev/nvidia1", "", 0o600)
		m.smi()
		p.check(t.Context())
		if <-changed; p.Count() != 2 || p.Faults() != "" {
			t.Errorf("%s: %d work, with %q broken, want both again", name, p.Count(), p.Faults())
		}
	}
	m.remove("0")
	p.check(t.Context())
	release()
	if _, _, err := p.Reserve("b", 1); err != nil {
		t.Fatal(err)
	}
	if devices, _ := p.Join("b"); len(devices) != 1 || devices[0] != "1" {
		t.Errorf("the next job has %v, want the GPU that works", devices)
	}
}

// driver adds the driver's files of a GPU in the order of PCI addresses.
func (m machine) driver(address, uuid string, minor int, render string) {
	m.write("proc/driver/nvidia/gpus/"+address+"/information", fmt.Sprintf("Model: \t\t Tesla T4\nGPU UUID: \t %s\nBus Type: \t PCIe\n"+
		"Bus Location: \t %s\nDevice Minor: \t %d\nGPU Excluded:\t No\n", uuid, address, minor), 0o600)
	m.write("sys/bus/pci/devices/"+address+"/drm/renderD"+render+"/dev", "226:"+render+"\n", 0o600)
}

// TestVisible: a program can open the devices of its GPUs, whose numbers need not be their indexes.
// To its libraries they are the first ones. A GPU whose device is not known gets no job.
func TestVisible(t *testing.T) {
	m := newMachine(t, "dev/nvidia0", "dev/nvidia1", "dev/nvidia3")
	m.driver("0001:00:00.0", "GPU-b", 3, "129")
	m.driver("0002:00:00.0", "GPU-a", 0, "128")
	p := Open(Config{List: []string{"GPU-a", "0", "GPU-c"}, Hide: true, Log: slog.New(slog.DiscardHandler), Root: m.dir})
	defer p.Close()
	if n, faults := p.Count(), p.Faults(); n != 2 || !strings.HasPrefix(faults, "GPU-c: its device is not known") {
		t.Errorf("%d GPUs are known, with %q broken", n, faults)
	}
	a, b := []node{{195, 0}, {226, 128}}, []node{{195, 3}, {226, 129}}
	for ids, row := range map[string]struct {
		own  []node
		cuda string
	}{"0": {b, "0"}, "GPU-a": {a, "0"}, "GPU-a 0": {slices.Concat(a, b), "0,1"}, "": {nil, "-1"}} {
		got := p.Visible(strings.Fields(ids))
		if !slices.Equal(got.own, row.own) || !slices.Equal(got.others, []node{{226, 129}, {226, 128}}) {
			t.Errorf("Visible of %q = %v, want %v", ids, *got, row.own)
		}
		if got := p.Variables(strings.Fields(ids))["CUDA_VISIBLE_DEVICES"]; got != row.cuda {
			t.Errorf("CUDA_VISIBLE_DEVICES of %q = %q, want %q", ids, got, row.cuda)
		}
	}
}

// TestHangs: a nvidia-smi that does not end does not hold up the worker, nor its end.
func TestHangs(t *testing.T) {
	m := newMachine(t, "dev/nvidia0")
	m.write("bin/nvidia-smi", "#!/bin/sh\nexec sleep 1000\n", 0o700)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if out, err := ask(ctx, filepath.Join(m.dir, "bin/nvidia-smi")); err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("ask = %q, %v", out, err)
	}
	p := newPool(Config{Log: slog.New(slog.DiscardHandler), Root: m.dir})
	if p.check(ctx); p.Faults() != "" {
		t.Errorf("a worker that ends reports %q", p.Faults())
	}
}

// TestSeveralWorkers: what another worker of the machine has locked is not free, and what a failed
// attempt has locked is.
func TestSeveralWorkers(t *testing.T) {
	locked := map[string]bool{"gpu-1": true}
	p := newMachine(t, "dev/nvidia0", "dev/nvidia1").pool()
	p.Lock = func(name string) (func(), bool) {
		if locked[name] {
			return nil, false
		}
		locked[name] = true
		return func() { delete(locked, name) }, true
	}
	if _, changed, err := p.Reserve("a", 2); changed == nil || err != nil || locked["gpu-0"] {
		t.Errorf("Reserve of both = %v, %v, with %v locked", changed, err, locked)
	}
	release, _, err := p.Reserve("a", 1)
	if release == nil || !locked["gpu-0"] {
		t.Fatalf("Reserve = %v with %v locked", err, locked)
	}
	if release(); locked["gpu-0"] {
		t.Error("the lock of a job that has ended is kept")
	}
}
