package archive

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/test/need"
)

// item is an entry of an archive that an attacker has made.
type item struct {
	header tar.Header
	data   string
}

func folder(name string) item {
	return item{tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o777}, ""}
}

func file(name, data string) item {
	return item{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(data))}, data}
}

func symlink(name, target string) item {
	return item{tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target}, ""}
}

func hardLink(name, target string) item {
	return item{tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: target}, ""}
}

// special is an entry of another type or format.
func special(kind byte, format tar.Format, records map[string]string) item {
	return item{tar.Header{Typeflag: kind, Name: "a", Format: format, PAXRecords: records}, ""}
}

// holed is a file with holes. The records have the names of appendHeader.
func holed(count, places, size, data string) item {
	i := file("a", data)
	i.header.PAXRecords = map[string]string{"GNA.sparse.numblocks": count, "GNB.sparse.map": places, "GNB.sparse.size": size}
	return i
}

// archiveOf is an archive of items.
func archiveOf(t testing.TB, items ...item) []byte {
	t.Helper()
	var to bytes.Buffer
	w := tar.NewWriter(&to)
	for _, i := range items {
		err := w.WriteHeader(&i.header)
		if err == nil {
			_, err = w.Write([]byte(i.data))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"GNA.sparse.", "GNB.sparse."} {
		copy(to.Bytes(), bytes.ReplaceAll(to.Bytes(), []byte(name), []byte(sparsePrefix)))
	}
	return to.Bytes()
}

// withSize is a file whose header has another size than its data.
func withSize(t testing.TB, size int64) []byte {
	t.Helper()
	var to bytes.Buffer
	err := tar.NewWriter(&to).WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "a", Size: size})
	if err != nil {
		t.Fatal(err)
	}
	return to.Bytes()
}

// TestExtractRefuses hands Extract archives that an attacker, or a damaged disk, could
// have changed. Nothing may appear beside the folder.
func TestExtractRefuses(t *testing.T) {
	of := func(items ...item) []byte { return archiveOf(t, items...) }
	whole := of(file("a", "x"))
	rows := map[string]struct {
		stream []byte
		want   error
	}{
		"nothing":                    {nil, ErrDamaged},
		"something else":             {[]byte(strings.Repeat("PK", 1000)), ErrDamaged},
		"zeros that are too few":     {make([]byte, block), ErrDamaged},
		"a path to the top":          {of(file("/etc/x", "x")), ErrDamaged},
		"a path upwards":             {of(file("../x", "x")), ErrDamaged},
		"a path that hides it":       {of(folder("a"), file("a/../../x", "x")), ErrDamaged},
		"a path that is not clean":   {of(folder("a"), file("a//b", "x")), ErrDamaged},
		"the folder itself":          {of(folder(".")), ErrDamaged},
		"a path that is too long":    {of(file(strings.Repeat("a", maxPath+1), "x")), ErrDamaged},
		"a missing folder":           {of(file("no/x", "x")), ErrDamaged},
		"a folder that has ended":    {of(folder("a"), folder("b"), file("a/x", "x")), ErrDamaged},
		"twice the same":             {of(file("a", "x"), file("a", "y")), ErrDamaged},
		"out of order":               {of(file("b", "x"), file("a", "y")), ErrDamaged},
		"below a file":               {of(file("a", "x"), file("a/b", "y")), ErrDamaged},
		"a pipe":                     {of(special(tar.TypeFifo, 0, nil)), ErrDamaged},
		"a device":                   {of(special(tar.TypeChar, 0, nil)), ErrDamaged},
		"a format of others":         {of(special(tar.TypeReg, tar.FormatGNU, nil)), ErrDamaged},
		"a global header":            {of(special(tar.TypeXGlobalHeader, tar.FormatPAX, map[string]string{"path": "../x"})), ErrDamaged},
		"a long name of others":      {of(item{tar.Header{Name: strings.Repeat("a", 200), Format: tar.FormatGNU}, ""}), ErrDamaged},
		"more behind":                {append(of(file("a", "x")), 'x'), ErrDamaged},
		"less than it says":          {withSize(t, 10), ErrDamaged},
		"a file that is too large":   {withSize(t, 1<<40), ErrTooLarge},
		"a size that overflows":      {append(whole[:2*block:2*block], withSize(t, 1<<62)...), ErrDamaged},
		"a bit that has changed":     {flipped(whole, 10), ErrDamaged},
		"a hard link to nothing":     {of(hardLink("b", "a")), ErrDamaged},
		"a hard link to a later one": {of(hardLink("a", "b"), file("b", "x")), ErrDamaged},
		"a hard link to a folder":    {of(folder("a"), hardLink("b", "a")), ErrDamaged},
		"a hard link to a link":      {of(symlink("a", "c"), hardLink("b", "a")), ErrDamaged},
		"a hard link below a file":   {of(file("a", "x"), hardLink("b", "a/x")), ErrDamaged},
		"a hard link out":            {of(hardLink("b", "../../x")), ErrDamaged},
		"a hard link to the top":     {of(hardLink("b", "/etc/hostname")), ErrDamaged},
		"holes: less data":           {of(holed("1", "0,600", "1000", "x")), ErrDamaged},
		"holes: more data":           {of(holed("1", "0,1", "1000", strings.Repeat("x", 600))), ErrDamaged},
		"holes: overlapping":         {of(holed("2", "0,4,2,4", "16", "12345678")), ErrDamaged},
		"holes: behind the end":      {of(holed("1", "0,4", "2", "1234")), ErrDamaged},
		"holes: not as many":         {of(holed("2", "0,4", "16", "1234")), ErrDamaged},
		"holes: no numbers":          {of(holed("1", "x,y", "16", "1234")), ErrDamaged},
		"holes: negative":            {of(holed("1", "-4,4", "16", "1234")), ErrDamaged},
		"holes: too many":            {of(holed("1002", strings.TrimPrefix(strings.Repeat(",0,0", 1002), ","), "16", "")), ErrDamaged},
		"holes: of a folder": {of(item{tar.Header{Typeflag: tar.TypeDir, Name: "a/", PAXRecords: holed("1", "0,0", "0",
			"").header.PAXRecords}, ""}),
			ErrDamaged},
		"holes: in another version": {of(item{tar.Header{Typeflag: tar.TypeReg, Name: "a",
			PAXRecords: map[string]string{"GNA.sparse.major": "1", "GNA.sparse.minor": "0"}}, ""}), ErrDamaged},
		"holes: another name": {of(item{tar.Header{Typeflag: tar.TypeReg, Name: "a",
			PAXRecords: map[string]string{"GNA.sparse.numblocks": "1", "GNB.sparse.map": "0,0", "GNB.sparse.name": "../x"}}, ""}), ErrDamaged},
	}
	for name, row := range rows {
		demandRefused(t, name, row.stream, row.want)
	}
	few := Limits{Bytes: 9, Entries: 4, Names: 100}
	for name, stream := range map[string][]byte{
		"entries": of(folder("a"), folder("b"), folder("c"), folder("d"), folder("e")),
		"names":   of(folder(strings.Repeat("a", 101))),
		"targets": of(symlink("a", strings.Repeat("b", 100))),
		"bytes":   of(file("a", "123456"), file("b", "123456")),
	} {
		if err := Extract(bytes.NewReader(stream), t.TempDir(), few); !errors.Is(err, ErrTooLarge) {
			t.Errorf("Extract of more %s than allowed = %v, want ErrTooLarge", name, err)
		}
	}
}

// flipped is an archive with another byte in a place.
func flipped(stream []byte, at int) []byte {
	stream = bytes.Clone(stream)
	stream[at]++
	return stream
}

// demandRefused demands that an archive is refused, and that nothing appears beside the folder.
func demandRefused(t *testing.T, name string, stream []byte, want error) {
	t.Helper()
	outside := t.TempDir()
	dir := filepath.Join(outside, "in", "folder")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Extract(bytes.NewReader(stream), dir, roomy); !errors.Is(err, want) {
		t.Errorf("%s: Extract = %v, want %v", name, err, want)
	}
	if got := contentOf(t, outside); len(got)-len(contentOf(t, dir)) != 2 {
		t.Errorf("%s: beside the folder there is %v", name, got)
	}
}

// TestExtractRefusesLinks hands Extract the links of an attacker.
func TestExtractRefusesLinks(t *testing.T) {
	rows := map[string][]item{
		"an empty target":           {symlink("a", "")},
		"a target that is too long": {symlink("a", strings.Repeat("b", maxTarget+1))},
		"a path out":                {symlink("../a", "b")},
		"twice":                     {symlink("a", "b"), symlink("a", "c")},
		"a file through it":         {symlink("a", "."), file("a/x", "x")},
		"a file in its place":       {symlink("a", "../x"), file("a", "x")},
		"a folder through it":       {symlink("a", "."), folder("a/x")},
		"a link through it":         {symlink("a", "."), symlink("a/x", "b")},
		"a hard link through it":    {folder("a"), symlink("l", "a"), hardLink("m", "l/x")},
		"a chain that leads out":    {folder("a"), folder("a/b"), symlink("a/b/up", "../.."), symlink("out", "a/b/up/..")},
	}
	for target := range badTargets {
		rows["to "+target] = []item{folder("a"), symlink("a/b", target)}
	}
	for name, items := range rows {
		demandRefused(t, name, archiveOf(t, items...), ErrDamaged)
	}
}

// FuzzExtract: for all bytes, Extract stays within its folder and its limits, and Scan
// and Extract agree about every accepted folder.
func FuzzExtract(f *testing.F) {
	f.Add(streamOf(f, folderOf(f, files{"a": "one", "b/c": "two", "d/": ""})))
	f.Add(archiveOf(f, file("../x", "x")))
	f.Add(archiveOf(f, folder("a"), symlink("a/l", "../b"), file("b", "x"), hardLink("c", "b")))
	f.Add(archiveOf(f, holed("2", "0,4,4096,0", "4096", "1234")))
	for _, target := range []string{".", "a/..", "..", "/", "b/c", "l"} {
		f.Add(archiveOf(f, symlink("l", target), folder("l/x")))
		f.Add(archiveOf(f, symlink("l", target), symlink("m", "l/"+target)))
	}
	small := Limits{Bytes: 4 << 20, Entries: 50, Names: maxNames}
	f.Fuzz(func(t *testing.T, data []byte) {
		outside := t.TempDir()
		dir := filepath.Join(outside, "folder")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		err := Extract(bytes.NewReader(data), dir, small)
		names, total := 0, int64(0)
		for name, facts := range sizesOf(t, outside) {
			if !strings.HasPrefix(name, "folder") {
				t.Fatalf("%q is beside the folder", name)
			}
			names++
			total += facts
		}
		if names-1 > small.Entries || total > small.Bytes {
			t.Fatalf("%d entries and %d bytes, more than allowed", names-1, total)
		}
		if out := leadsOut(dir); out != "" {
			t.Fatal(out)
		}
		if err != nil {
			return
		}
		back := t.TempDir()
		if err := Extract(bytes.NewReader(streamOf(t, dir)), back, roomy); err != nil {
			t.Fatalf("Extract of what was extracted = %v", err)
		}
	})
}

// sizesOf returns how many bytes of each file in a folder are on the disk.
func sizesOf(t testing.TB, dir string) map[string]int64 {
	t.Helper()
	sizes := map[string]int64{}
	err := filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
		if err != nil || name == dir {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		relative, _ := filepath.Rel(dir, name)
		if sizes[relative] = 0; info.Mode().IsRegular() {
			sizes[relative] = Allocated(info)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return sizes
}

// TestFormat holds the format to archives in people's accounts.
func TestFormat(t *testing.T) {
	need.NotOn(t, "windows", "it has no such links")
	want, err := os.ReadFile("testdata/folder.tar")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := Extract(bytes.NewReader(want), dir, roomy); err != nil {
		t.Fatal(err)
	}
	if got := streamOf(t, dir); !bytes.Equal(got, want) {
		t.Errorf("the stream of the restored folder differs:\n%q, want\n%q", got, want)
	}
	if got, want := fmt.Sprint(contentOf(t, dir)), "map[a/: a/first:one\n b:one\n latest:a link to a tool:#! ü:]"; got != want {
		t.Errorf("the folder has %s, want %s", got, want)
	}
}
