package snapshot

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// # Deleted files in memory
//
// criu opens a file in the memory of a process by the name that the kernel shows, since other ways
// take rights over the machine. A deleted file is shown as "NAME (deleted)". So before a dump the
// init gives each one a name of that form:
//
//   - a link to another name of the file, or to its descriptor, where it has one
//   - where only memory holds it, as with semaphores of POSIX, nothing can open it. All its
//     processes get the same content in a new file of the job's folder (moveContent).

// inode identifies a file: its device as in /proc/PID/maps, and its number.
type inode struct {
	device string
	number uint64
}

func inodeOf(info fs.FileInfo) inode {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return inode{}
	}
	return inode{fmt.Sprintf("%02x:%02x", unix.Major(stat.Dev), unix.Minor(stat.Dev)), stat.Ino}
}

// mapping is a part of the memory of a process that shows a file.
type mapping struct {
	pid                int
	start, end, offset uint64
	mode               string // such as rw-s
	file               inode
	path               string // as the kernel shows it
}

// length is the length in bytes.
func (m mapping) length() uint64 { return m.end - m.start }

// parseMapping reads a line of /proc/PID/maps.
func parseMapping(pid int, line string) (m mapping, ok bool) {
	at := strings.IndexByte(line, '/')
	if at < 0 {
		return m, false
	}
	m.pid, m.path = pid, strings.TrimSuffix(line[at:], "\n")
	_, err := fmt.Sscanf(line, "%x-%x %s %x %s %d", &m.start, &m.end, &m.mode, &m.offset, &m.file.device, &m.file.number)
	return m, err == nil
}

// deletedFiles are the deleted files of the job's folder in the memory of processes.
type deletedFiles struct {
	mappings map[inode][]mapping
	targets  map[inode]string // where else a file can be opened
	opened   []*os.File       // behind some targets
	kept     map[string]bool  // names of moveContent that are in use
}

// findDeleted finds the deleted files in the memory of processes.
func findDeleted(pids []int) *deletedFiles {
	d := &deletedFiles{mappings: map[inode][]mapping{}, targets: map[inode]string{}, kept: map[string]bool{}}
	for _, pid := range pids {
		file, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
		if err != nil {
			continue // it has ended
		}
		for lines := bufio.NewScanner(file); lines.Scan(); {
			m, ok := parseMapping(pid, lines.Text())
			switch {
			case !ok || !isInside(m.path):
			case strings.HasSuffix(m.path, deleted):
				d.mappings[m.file] = append(d.mappings[m.file], m)
			default:
				d.kept[filepath.Base(m.path)] = true
			}
		}
		_ = file.Close()
	}
	return d
}

// findTargets finds where else the files of stopped processes can be opened.
func (d *deletedFiles) findTargets(pids []int) error {
	err := eachName(func(file inode, name string) {
		if d.mappings[file] != nil {
			d.targets[file] = name
		}
	})
	if err == nil {
		d.findDescriptors(pids)
	}
	return err
}

// eachName calls visit for everything in the job's folder.
func eachName(visit func(file inode, name string)) error {
	for _, part := range folderParts {
		err := filepath.WalkDir(filepath.Join(Place, part), func(name string, entry fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) { // deleted meanwhile, or closed
				return nil
			}
			if err != nil {
				return err
			}
			if info, err := entry.Info(); err == nil {
				visit(inodeOf(info), name)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// findDescriptors finds files without another name that processes have open, and opens them here too.
func (d *deletedFiles) findDescriptors(pids []int) {
	for _, pid := range pids {
		names, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		for _, name := range names {
			if target, err := os.Readlink(name); err != nil || !strings.HasSuffix(target, deleted) {
				continue
			}
			info, err := os.Stat(name)
			if err != nil {
				continue
			}
			file := inodeOf(info)
			if d.mappings[file] == nil || d.targets[file] != "" {
				continue
			}
			if here, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0); err == nil {
				d.opened = append(d.opened, here)
				d.targets[file] = fmt.Sprintf("/proc/1/fd/%d", here.Fd())
			}
		}
	}
}

// onlyMapped returns the files that cannot be opened.
func (d *deletedFiles) onlyMapped() (all [][]mapping, err error) {
	files := slices.SortedFunc(maps.Keys(d.mappings), func(a, b inode) int { return cmp.Compare(a.number, b.number) })
	for _, file := range files {
		if d.targets[file] != "" {
			continue
		}
		for _, m := range d.mappings[file] {
			if !strings.HasSuffix(m.mode, "s") {
				return nil, &RefusedError{Reason: "the program has a private copy of " + m.path + " in its memory, which cannot be kept", Known: true}
			}
		}
		all = append(all, d.mappings[file])
	}
	return all, nil
}

// names are the names of deleted files in the memory of a program, and the processes that are stopped by
// SIGSTOP, so that they delete no others before criu has frozen them.
type names struct {
	links   []string
	files   *deletedFiles
	stopped []int
}

// nameDeleted gives the deleted files in the memory of the program names by which criu can open them. It
// stops a program that has some, or had some before.
func (p *initProcess) nameDeleted() (n *names, err error) {
	pids, err := processesInside()
	if err != nil {
		return nil, err
	}
	n = &names{files: findDeleted(pids)}
	removeKept(n.files.kept)
	if p.deletes = p.deletes || len(n.files.mappings) > 0; !p.deletes {
		return n, nil
	}
	if pids, n.stopped, err = hold(); err != nil {
		return nil, err
	}
	n.files = findDeleted(pids)
	if err = n.files.findTargets(pids); err == nil {
		err = p.nameAll(n)
	}
	if err != nil {
		n.remove()
		return nil, errors.Join(err, resume(n.stopped))
	}
	return n, nil
}

func (p *initProcess) nameAll(n *names) error {
	moved, err := n.files.onlyMapped()
	if err == nil && len(moved) > 0 {
		err = p.moveContent(moved)
	}
	if err != nil {
		return err
	}
	for file, target := range n.files.targets {
		for _, m := range n.files.mappings[file] {
			if slices.Contains(n.links, m.path) {
				continue
			}
			if err := os.Symlink(target, m.path); err != nil {
				return notNow(err)
			}
			n.links = append(n.links, m.path)
		}
	}
	return nil
}

// remove removes the names of files that can be opened otherwise.
func (n *names) remove() {
	for _, link := range n.links {
		_ = os.Remove(link)
	}
	for _, file := range n.files.opened {
		_ = file.Close()
	}
	n.links, n.files.opened = nil, nil
}

// keptPrefix begins the names of the files of moveContent. A file that no process has in its memory is
// removed by the next snapshot.
const keptPrefix = ".spotworker-"

func removeKept(used map[string]bool) {
	names, _ := filepath.Glob(filepath.Join(Place, "shm", keptPrefix+"*"))
	for _, name := range names {
		if !used[filepath.Base(name)] {
			_ = os.Remove(name)
		}
	}
}
