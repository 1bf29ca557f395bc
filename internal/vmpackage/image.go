package vmpackage

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

const (
	// ImageName is the file with the container image.
	ImageName = "spotworker-image.tar"

	imageUser = "65532"

	layerType    = "application/vnd.oci.image.layer.v1.tar+gzip"
	configType   = "application/vnd.oci.image.config.v1+json"
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	indexType    = "application/vnd.oci.image.index.v1+json"
)

// descriptor names a blob of an image.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Platform    map[string]string `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// manifest is a manifest, or an index of manifests, of the OCI image specification 1.1.
type manifest struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Config        *descriptor  `json:"config,omitempty"`
	Layers        []descriptor `json:"layers,omitempty"`
	Manifests     []descriptor `json:"manifests,omitempty"`
}

// MakeImage makes a container image for the Linux architectures of c: an OCI archive with the
// worker, certificates of authorities, and the licence texts. It needs no daemon and no
// base image. The image has no shell. The worker runs as user 65532. Beside the archive is a
// bill of materials for each architecture.
func MakeImage(ctx context.Context, c Config) (path string, err error) {
	if err := c.Validate(); err != nil {
		return "", err
	}
	if c.Handlers != "" {
		return "", errors.New("the image has no programs for jobs: copy the worker into an image of yours (docs/deploy.md)")
	}
	var layout imageLayout
	var bills []file
	all := manifest{SchemaVersion: 2, MediaType: indexType}
	for _, architecture := range c.Architectures {
		target := targetFor(architecture)
		if target.system != linux {
			return "", fmt.Errorf("image for %s: give architectures of Linux", architecture)
		}
		files, bill, err := imageFiles(ctx, c, target)
		if err != nil {
			return "", fmt.Errorf("image for %s: %w", architecture, err)
		}
		bills = append(bills, bill)
		one, err := layout.add(files, c, target)
		if err != nil {
			return "", err
		}
		all.Manifests = append(all.Manifests, one)
	}
	index, err := layout.addJSON(indexType, all)
	if err != nil {
		return "", err
	}
	index.Annotations = map[string]string{"org.opencontainers.image.ref.name": imageTag(c.Version)}
	archive, err := layout.archive(index, c.Time)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(c.Out, 0o755); err != nil { //nolint:gosec // images are for everybody
		return "", err
	}
	for _, bill := range bills {
		if err := writeWhole(filepath.Join(c.Out, bill.name), bill.data); err != nil {
			return "", err
		}
	}
	path = filepath.Join(c.Out, ImageName)
	return path, writeWhole(path, archive)
}

// imageTag returns the name and the tag of the image. A tag has fewer characters than a version.
func imageTag(version string) string {
	return "spotworker:" + strings.NewReplacer("+", "_", "~", "_").Replace(version)
}

// imageFiles returns the files of the image, and its bill of materials.
func imageFiles(ctx context.Context, c Config, target target) (files []file, bill file, err error) {
	binary, err := buildWorker(ctx, c, target)
	if err != nil {
		return nil, file{}, err
	}
	info, err := buildinfo.Read(bytes.NewReader(binary))
	if err != nil {
		return nil, file{}, fmt.Errorf("modules in the worker: %w", err)
	}
	licenses, err := Licenses(ctx, c.Worker, modulesIn(info))
	if err != nil {
		return nil, file{}, err
	}
	worker := file{name: "worker", data: binary, executable: true}
	others := []file{
		{name: "etc/group", data: []byte("spotworker:x:" + imageUser + ":\n")},
		{name: "etc/passwd", data: []byte("spotworker:x:" + imageUser + ":" + imageUser + "::/:/nologin\n")},
		{name: "etc/ssl/certs/ca-certificates.crt", data: authorities()},
		{name: licensesName, data: licenses},
	}
	text, err := billOfMaterials(c.Version, c.Time, target, []goProgram{{file: worker, info: info}}, others)
	return append(others, worker), file{name: ImageBillName(target.architecture), data: text}, err
}

// ImageBillName returns the name of the bill of materials of the image for an architecture.
func ImageBillName(architecture string) string {
	return strings.TrimSuffix(ImageName, ".tar") + "-" + architecture + ".cdx.json"
}

// authorities returns the root certificates of Mozilla, without the partly trusted
// certificates. They come from a module, so that they do not depend on the machine.
func authorities() []byte {
	var text bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			text.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}))
		}
	}
	return text.Bytes()
}

// imageLayout holds the blobs of an image by name.
type imageLayout struct{ blobs []file }

func (l *imageLayout) addBlob(mediaType string, data []byte) descriptor {
	sum := sha256.Sum256(data)
	name := hex.EncodeToString(sum[:])
	l.blobs = append(l.blobs, file{name: "blobs/sha256/" + name, data: data})
	return descriptor{MediaType: mediaType, Digest: "sha256:" + name, Size: len(data)}
}

func (l *imageLayout) addJSON(mediaType string, value any) (descriptor, error) {
	data, err := json.Marshal(value)
	return l.addBlob(mediaType, data), err
}

// add adds the image for one architecture and returns the descriptor of its manifest.
func (l *imageLayout) add(files []file, c Config, target target) (descriptor, error) {
	content, err := writeTar(files, c.Time, "tmp")
	if err != nil {
		return descriptor{}, err
	}
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	if _, err := z.Write(content); err != nil {
		return descriptor{}, err
	}
	if err := z.Close(); err != nil {
		return descriptor{}, err
	}
	config, err := l.addJSON(configType, map[string]any{
		"created": c.Time.UTC().Format(time.RFC3339), "architecture": target.architecture, "os": target.system,
		"config": map[string]any{
			"User": imageUser + ":" + imageUser, "Entrypoint": []string{"/worker"},
			"Labels": map[string]string{"org.opencontainers.image.version": c.Version, "org.opencontainers.image.licenses": "MIT"},
		},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(content))}},
	})
	if err != nil {
		return descriptor{}, err
	}
	layers := []descriptor{l.addBlob(layerType, zipped.Bytes())}
	one, err := l.addJSON(manifestType, manifest{SchemaVersion: 2, MediaType: manifestType, Config: &config, Layers: layers})
	one.Platform = map[string]string{"architecture": target.architecture, "os": target.system}
	return one, err
}

// archive returns the OCI archive.
func (l *imageLayout) archive(index descriptor, at time.Time) ([]byte, error) {
	entry, err := json.Marshal(manifest{SchemaVersion: 2, MediaType: indexType, Manifests: []descriptor{index}})
	if err != nil {
		return nil, err
	}
	return writeTar(append(l.blobs, file{name: "index.json", data: entry},
		file{name: "oci-layout", data: []byte(`{"imageLayoutVersion":"1.0.0"}`)}), at)
}

// writeTar returns a tar archive of files in the given order, after their folders. Each user
// may write into the shared folders.
func writeTar(files []file, at time.Time, shared ...string) ([]byte, error) {
	var out bytes.Buffer
	archive := tar.NewWriter(&out)
	at = at.UTC().Truncate(time.Second)
	for _, folder := range slices.Concat(folders(files), shared) {
		mode := int64(executableMode)
		if slices.Contains(shared, folder) {
			mode = 0o1777
		}
		if err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: folder + "/", Mode: mode, ModTime: at}); err != nil {
			return nil, err
		}
	}
	for _, f := range files {
		if err := writeFile(archive, f, at); err != nil {
			return nil, err
		}
	}
	err := archive.Close()
	return out.Bytes(), err
}
