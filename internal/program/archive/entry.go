package archive

import (
	"archive/tar"
	"bytes"
	"strconv"
	"strings"
	"time"
)

const (
	block    = 512       // bytes; everything in a tar archive is a multiple of it
	page     = 4096      // bytes; see appendHeader
	trailer  = 2 * block // zeros at the end
	fileMode = 0o600
	execMode = 0o700 // of a folder too
)

// entry is a file, a folder or a link.
type entry struct {
	kind     byte    // tar.TypeReg, TypeDir, TypeLink or TypeSymlink
	path     string  // with slashes, below the folder
	target   string  // of a symbolic link; of a hard link the path of the file
	size     int64   // of a file's data, bytes; without holes
	holes    *ranges // of a file with holes
	exec     bool
	modified time.Time // of a file
	stamp    stamp     // when it was found
}

// padding returns how many zeros follow the entry's data.
func (e *entry) padding() int64 { return -e.size & (block - 1) }

// Names of the records of a file with holes (PAX, version 0.1 of GNU tar), which has
// the map of its data in the header.
const (
	sparsePrefix = "GNU.sparse."
	sparseCount  = sparsePrefix + "numblocks"
	sparseMap    = sparsePrefix + "map"
	sparseSize   = sparsePrefix + "size"
)

// appendHeader appends the entry's header, which begins there in the stream. The data of a
// large file begins at a whole page, since a state in which pages have changed is stored in
// pages (package checkpoint): a comment in the header fills the gap.
func (e *entry) appendHeader(to []byte, at int64) ([]byte, error) {
	for comment := 0; ; comment += block {
		header, err := e.appendCommented(to, strings.Repeat(" ", comment))
		if err != nil || e.size < leastCompared || (at+int64(len(header)-len(to)))%page == 0 {
			return header, err
		}
	}
}

func (e *entry) appendCommented(to []byte, comment string) ([]byte, error) {
	h := &tar.Header{Typeflag: e.kind, Name: e.path, Linkname: e.target, Size: e.size, Mode: fileMode, Format: tar.FormatPAX,
		ModTime: e.modified}
	switch {
	case e.kind == tar.TypeDir:
		h.Name, h.Mode = e.path+"/", execMode
	case e.exec:
		h.Mode = execMode
	}
	h.PAXRecords = map[string]string{}
	if comment != "" {
		h.PAXRecords["comment"] = comment
	}
	if e.holes != nil {
		// The writer sorts the records and leaves out records of sparse files, but tar wants the
		// number before the map. So they have other names of the same length until they are written.
		h.PAXRecords["GNA.sparse.numblocks"] = strconv.Itoa(len(e.holes.all))
		h.PAXRecords["GNB.sparse.map"] = e.holes.String()
		h.PAXRecords["GNB.sparse.size"] = strconv.FormatInt(e.holes.size, 10)
	}
	buffer := bytes.NewBuffer(to)
	if err := tar.NewWriter(buffer).WriteHeader(h); err != nil {
		return nil, err
	}
	if e.holes != nil {
		records := buffer.Bytes()[len(to)+block:] // behind the first block; the records of holes come first
		for _, name := range []string{"GNA.sparse.", "GNB.sparse.", "GNB.sparse."} {
			copy(records[bytes.Index(records, []byte(name)):], sparsePrefix) //nolint:gocritic // the header has all three
		}
	}
	return buffer.Bytes(), nil
}
