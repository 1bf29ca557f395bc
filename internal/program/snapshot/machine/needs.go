package machine

import (
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// # Needs
//
// The needs of a snapshot are a text for the record of its job, so that a worker knows whether
// it can restore the snapshot before it fetches it:
//
//	OFFER arch=amd64; kernel=6.12.1; cpu=…; vendor=…; registers=…; criu=4.1; page=4096 | FILES
//
// OFFER is the digest of the facts behind it without the model in cpu, and with `+` the features of
// the processor, as package presence compares them. FILES are the files in use with their sizes
// and the start of their hashes, deflated, in base64: as many as there is room for.

// maxNeeds bounds the needs, in bytes: MaxNeeds of package job.
const maxNeeds = 1 << 10

// hashPrefix is the length of a file's hash in the needs, in bytes.
const hashPrefix = 4

// maxFileList bounds the list of files in the needs of a record, in bytes. Records come from storage.
const maxFileList = 64 << 10

// fact is a fact of a machine in the needs.
type fact struct {
	key string
	at  func(*Facts) *string
}

var facts = []fact{
	{"arch", func(m *Facts) *string { return &m.Arch }},
	{"kernel", func(m *Facts) *string { return &m.Kernel }},
	{"cpu", func(m *Facts) *string { return &m.CPU }},
	{"vendor", func(m *Facts) *string { return &m.Vendor }},
	{"registers", func(m *Facts) *string { return &m.Registers }},
	{"criu", func(m *Facts) *string { return &m.CRIU }},
}

// described returns the facts as the needs have them.
func (m Facts) described() string {
	var out strings.Builder
	for _, f := range facts {
		fmt.Fprintf(&out, "%s=%s; ", f.key, printable(*f.at(&m)))
	}
	return out.String() + "page=" + strconv.Itoa(m.PageSize)
}

// printable replaces characters that end a fact or cannot be shown.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || r == ';' || r == '|' {
			return '?'
		}
		return r
	}, strings.Join(strings.Fields(s), " "))
}

// Offer is the first word of the needs of a machine's snapshots.
func (m Facts) Offer() string {
	m.CPU = ""
	sum := sha256.Sum256([]byte(m.described()))
	offer := hex.EncodeToString(sum[:8])
	if m.Features != "" {
		offer += "+" + m.Features
	}
	return offer
}

// parseMachine reads described.
func parseMachine(text string) (m Facts, err error) {
	for part := range strings.SplitSeq(text, ";") {
		key, value, ok := strings.Cut(strings.TrimSpace(part), "=")
		if !ok {
			return m, fmt.Errorf("%q is no fact of a machine", part)
		}
		for _, f := range facts {
			if f.key == key {
				*f.at(&m) = value
			}
		}
		if key == "page" {
			if m.PageSize, err = strconv.Atoi(value); err != nil {
				return m, err
			}
		}
	}
	return m, nil
}

// asNeeds returns the machine as it is read from needs.
func (m Facts) asNeeds() Facts {
	same, _ := parseMachine(m.described())
	same.Features = m.Features
	return same
}

// Needs returns the needs of a snapshot of a machine, as many of its files among them as there is
// room for.
func Needs(m Facts, files []File) string {
	needs := m.Offer() + " " + m.described() + " | "
	hashed := slices.DeleteFunc(slices.Clone(files), func(f File) bool { return f.SHA256 == "" })
	for n := len(hashed); n > 0; n = n * 9 / 10 {
		if files := packFiles(hashed[:n]); len(needs)+len(files) <= maxNeeds {
			return needs + files
		}
	}
	return strings.TrimSuffix(needs, " | ")
}

// CheckNeeds returns a [*MismatchError] if a snapshot with these needs cannot be restored on
// a machine. Needs of another form say nothing: then the snapshot itself decides.
func (m Facts) CheckNeeds(needs string, hashes *Hashes) error {
	shown, packed, _ := strings.Cut(needs, " | ")
	offer, described, _ := strings.Cut(shown, " ")
	theirs, err := parseMachine(described)
	if err != nil {
		return nil //nolint:nilerr // see above
	}
	_, theirs.Features, _ = strings.Cut(offer, "+")
	if err := theirs.Compare(m.asNeeds()); err != nil {
		return err
	}
	files, err := unpackFiles(packed)
	if err != nil {
		return nil //nolint:nilerr // see above
	}
	if err, differs := errors.AsType[*MismatchError](hashes.Check(files)); differs {
		return err
	}
	return nil
}

// packFiles returns a list of files: their paths, an empty line, and for each its size and
// the start of its hash.
func packFiles(files []File) string {
	var list, out bytes.Buffer
	for _, f := range files {
		list.WriteString(f.Path + "\n")
	}
	list.WriteByte('\n')
	for _, f := range files {
		sum, _ := hex.DecodeString(f.SHA256)
		list.Write(binary.AppendUvarint(nil, uint64(f.Size)))
		list.Write(sum[:min(hashPrefix, len(sum))])
	}
	w, err := flate.NewWriter(&out, flate.BestCompression)
	if err == nil {
		_, err = w.Write(list.Bytes())
		err = errors.Join(err, w.Close())
	}
	if err != nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(out.Bytes())
}

// unpackFiles reads a list of packFiles.
func unpackFiles(packed string) ([]File, error) {
	if packed == "" {
		return nil, nil
	}
	data, err := base64.RawURLEncoding.DecodeString(packed)
	if err != nil {
		return nil, err
	}
	data, err = io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(data)), maxFileList+1))
	if err != nil {
		return nil, err
	}
	paths, rest, ok := bytes.Cut(data, []byte("\n\n"))
	if !ok || len(data) > maxFileList {
		return nil, errors.New("the list of files is damaged")
	}
	var files []File
	for path := range bytes.SplitSeq(paths, []byte("\n")) {
		size, n := binary.Uvarint(rest)
		if n <= 0 || len(rest) < n+hashPrefix || size > maxHashed || len(path) == 0 || path[0] != '/' {
			return nil, errors.New("the list of files is damaged")
		}
		files = append(files, File{Path: string(path), Size: int64(size), SHA256: hex.EncodeToString(rest[n : n+hashPrefix])})
		rest = rest[n+hashPrefix:]
	}
	return files, nil
}
