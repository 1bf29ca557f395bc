package vmpackage

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"runtime/debug"
	"strings"
	"time"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/uuid"
)

// billOfMaterials lists the parts of a package: the modules that the binary
// says are in it, the Go that built it, and the handlers' files. It has the form of
// CycloneDX 1.6 (https://cyclonedx.org/docs/1.6/json/).
func billOfMaterials(c Config, target target, binary []byte, info *debug.BuildInfo, handlers []file) ([]byte, error) {
	components := []cyclonedx.Component{
		module("std", strings.TrimPrefix(info.GoVersion, "go"), ""),
		fileComponent(target.binary(), binary),
	}
	for _, dependency := range info.Deps {
		components = append(components, dependencyComponent(dependency))
	}
	for _, f := range handlers {
		components = append(components, fileComponent("handlers/"+f.name, f.data))
	}
	digest := sha256.Sum256(checksums(append([]file{{name: c.Version, data: binary}}, handlers...)))
	bill := cyclonedx.NewBOM()
	bill.SerialNumber = "urn:uuid:" + uuid.NewSHA1(uuid.NameSpaceOID, digest[:]).String()
	bill.Metadata = &cyclonedx.Metadata{
		Timestamp: c.Time.UTC().Truncate(time.Second).Format(time.RFC3339),
		Component: &cyclonedx.Component{
			Type: cyclonedx.ComponentTypeApplication, BOMRef: "spotworker", Name: "spotworker", Version: c.Version,
			Properties: &[]cyclonedx.Property{
				{Name: "go:main", Value: info.Path},
				{Name: "go:os", Value: target.system},
				{Name: "go:architecture", Value: target.architecture},
			},
		},
	}
	bill.Components = &components
	var out bytes.Buffer
	err := cyclonedx.NewBOMEncoder(&out, cyclonedx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bill, cyclonedx.SpecVersion1_6)
	return out.Bytes(), err
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
