package vmpackage

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/uuid"
)

// goProgram is a Go program with the information about its build.
type goProgram struct {
	file

	info *debug.BuildInfo
}

// billOfMaterials lists the parts of a package: the modules that its programs say are in
// them, the Go that built them, and the other files. It has the form of CycloneDX 1.6
// (https://cyclonedx.org/docs/1.6/json/). There must be a program.
func billOfMaterials(version string, at time.Time, target target, programs []goProgram, others []file) ([]byte, error) {
	components := []cyclonedx.Component{module("std", strings.TrimPrefix(programs[0].info.GoVersion, "go"), "")}
	properties := []cyclonedx.Property{}
	all := []file{}
	for _, p := range programs {
		components = append(components, fileComponent(p.name, p.data))
		properties = append(properties, cyclonedx.Property{Name: "go:main", Value: p.info.Path})
		all = append(all, p.file)
	}
	listed := map[string]bool{}
	for _, p := range programs {
		for _, dependency := range p.info.Deps {
			if c := dependencyComponent(dependency); !listed[c.BOMRef] {
				listed[c.BOMRef] = true
				components = append(components, c)
			}
		}
	}
	for _, f := range others {
		components = append(components, fileComponent(f.name, f.data))
	}
	all = append(all, others...)
	digest := sha256.Sum256(append([]byte(version+"\n"), checksums(all)...))
	bill := cyclonedx.NewBOM()
	bill.SerialNumber = "urn:uuid:" + uuid.NewSHA1(uuid.NameSpaceOID, digest[:]).String()
	properties = append(properties, cyclonedx.Property{Name: "go:os", Value: target.system},
		cyclonedx.Property{Name: "go:architecture", Value: target.architecture})
	bill.Metadata = &cyclonedx.Metadata{
		Timestamp: at.UTC().Truncate(time.Second).Format(time.RFC3339),
		Component: &cyclonedx.Component{
			Type: cyclonedx.ComponentTypeApplication, BOMRef: "spotworker", Name: "spotworker", Version: version, Properties: &properties,
		},
	}
	bill.Components = &components
	var out bytes.Buffer
	err := cyclonedx.NewBOMEncoder(&out, cyclonedx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bill, cyclonedx.SpecVersion1_6)
	return out.Bytes(), err
}

// ArchiveBill returns the bill of materials of an archive of programs (.tar.gz or .zip), or of a
// Debian package.
func ArchiveBill(archive, version string) ([]byte, error) {
	read := readArchive
	switch filepath.Ext(archive) {
	case ".zip":
		read = readZip
	case ".deb":
		read = readDeb
	}
	files, at, err := read(archive)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", archive, err)
	}
	var programs []goProgram
	var others []file
	for _, f := range files {
		if info, err := buildinfo.Read(bytes.NewReader(f.data)); err == nil {
			programs = append(programs, goProgram{f, info})
		} else {
			others = append(others, f)
		}
	}
	if len(programs) == 0 {
		return nil, fmt.Errorf("%s has no program that Go built", archive)
	}
	settings := map[string]string{}
	for _, s := range programs[0].info.Settings {
		settings[s.Key] = s.Value
	}
	return billOfMaterials(version, at, target{settings["GOOS"], settings["GOARCH"]}, programs, others)
}

// dependencyComponent is the module that is really in the binary, where another
// was asked for.
func dependencyComponent(m *debug.Module) cyclonedx.Component {
	if m.Replace != nil && m.Replace.Version != "" {
		m = m.Replace
	}
	return module(m.Path, m.Version, m.Sum)
}

// module is a Go module. Its checksum is go.sum's, which is no digest of a file.
func module(path, version, sum string) cyclonedx.Component {
	purl := "pkg:golang/" + path + "@" + version
	c := cyclonedx.Component{
		Type: cyclonedx.ComponentTypeLibrary, BOMRef: purl, Name: path, Version: version, PackageURL: purl,
	}
	if sum != "" {
		c.Properties = &[]cyclonedx.Property{{Name: "go:sum", Value: sum}}
	}
	return c
}

func fileComponent(name string, data []byte) cyclonedx.Component {
	digest := sha256.Sum256(data)
	return cyclonedx.Component{
		Type: cyclonedx.ComponentTypeFile, BOMRef: "file:" + name, Name: name,
		Hashes: &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(digest[:])}},
	}
}
