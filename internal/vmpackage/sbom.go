package vmpackage

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"runtime/debug"
	"strings"
	"time"

	"github.com/google/uuid"
)

// bill is a bill of materials in the form of CycloneDX 1.6
// (https://cyclonedx.org/docs/1.6/json/).
type bill struct {
	Format       string       `json:"bomFormat"`
	SpecVersion  string       `json:"specVersion"`
	SerialNumber string       `json:"serialNumber"`
	Version      int          `json:"version"`
	Metadata     billMetadata `json:"metadata"`
	Components   []component  `json:"components"`
}

type billMetadata struct {
	Timestamp string    `json:"timestamp"`
	Component component `json:"component"`
}

// component is a module, a file or the product itself.
type component struct {
	Type       string     `json:"type"`
	Ref        string     `json:"bom-ref,omitempty"`
	Name       string     `json:"name"`
	Version    string     `json:"version,omitempty"`
	PURL       string     `json:"purl,omitempty"`
	Hashes     []hash     `json:"hashes,omitempty"`
	Properties []property `json:"properties,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// billOfMaterials lists what a package is made of: the modules that the binary
// says are in it, the Go that built it, and the handlers' files.
func billOfMaterials(c Config, target target, binary []byte, info *debug.BuildInfo, handlers []file) ([]byte, error) {
	components := []component{
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
	b := bill{
		Format: "CycloneDX", SpecVersion: "1.6", Version: 1,
		SerialNumber: "urn:uuid:" + uuid.NewSHA1(uuid.NameSpaceOID, digest[:]).String(),
		Metadata: billMetadata{
			Timestamp: c.Time.UTC().Truncate(time.Second).Format(time.RFC3339),
			Component: component{
				Type: "application", Ref: "spotworker", Name: "spotworker", Version: c.Version,
				Properties: []property{{"go:main", info.Path}, {"go:os", target.system}, {"go:architecture", target.architecture}},
			},
		},
		Components: components,
	}
	out, err := json.MarshalIndent(b, "", "  ")
	return append(out, '\n'), err
}

// dependencyComponent is the module that is really in the binary, where another
// was asked for.
func dependencyComponent(m *debug.Module) component {
	if m.Replace != nil && m.Replace.Version != "" {
		m = m.Replace
	}
	return module(m.Path, m.Version, m.Sum)
}

// module is a Go module. Its checksum is go.sum's, which is no digest of a file.
func module(path, version, sum string) component {
	purl := "pkg:golang/" + path + "@" + version
	c := component{Type: "library", Ref: purl, Name: path, Version: version, PURL: purl}
	if sum != "" {
		c.Properties = []property{{"go:sum", sum}}
	}
	return c
}

func fileComponent(name string, data []byte) component {
	digest := sha256.Sum256(data)
	return component{Type: "file", Ref: "file:" + name, Name: name, Hashes: []hash{{"SHA-256", hex.EncodeToString(digest[:])}}}
}
